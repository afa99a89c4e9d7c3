package fulfillment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/internal/pg"
	"github.com/keytill/keytill/inventory"
)

// staleRetries is how often a settle that was overtaken reads Stripe again before it leaves that to the job queue.
const staleRetries = 3

// Settle brings one payment's order to what Stripe says now, and returns it. It is the only way to a key: webhook, sweep,
// storefront and operator all come here, and calling it twice is calling it once. ref is any id of the payment.
//
// It returns ErrNotFound or ErrNotOurs where there is nothing to sell, ErrNoOrder for a payment that has come to
// nothing before it became an order, and else what failed; then nothing has changed.
func (s *Service) Settle(ctx context.Context, merchant, ref string) (Order, error) {
	done, err := s.settle(ctx, cause{merchant: merchant, ref: ref, actor: actorSettle, reads: true})
	if err != nil {
		return Order{}, fmt.Errorf("settle %s: %w", ref, err)
	}
	if done.order != nil {
		return *done.order, nil
	}
	order, err := s.orders.Do(ctx, orderName{merchant, done.id})
	if err == nil && order.ID == "" {
		err = fmt.Errorf("settle %s: %w", ref, ErrNoOrder)
	}
	return order, err
}

// cause is why a payment is looked at.
type cause struct {
	merchant string
	ref      string // any id of the payment
	event    string // the event that pointed at it, if one did
	actor    string
	retry    bool // failed units are tried again
	reads    bool // the order is wanted, not only its id
}

// settled is an order that was settled.
type settled struct {
	id    string
	order *Order // as the settle left it; nil where that was not read
}

const actorSettle = "settle"

// takeTickets numbers settles before they read Stripe, and says which payments have an order already. A number is never
// given out twice, not even after a crash. Subqueries for a value are never hashed, so that a plan from when there were few
// orders still goes by the index. Index: orders_pkey, orders_payment_intent.
const takeTickets = `
SELECT nextval('keytill.ticket'),
       coalesce((SELECT true FROM keytill.orders o WHERE o.merchant_id = asked.merchant_id AND o.order_id = asked.ref),
                (SELECT true FROM keytill.orders o WHERE o.merchant_id = asked.merchant_id AND o.payment_intent = asked.ref), false)
  FROM unnest($1::text[], $2::text[]) AS asked (merchant_id, ref)`

// ticket is a settle's number.
type ticket struct {
	number int64
	known  bool // its payment has an order
}

func (s *Service) takeTickets(ctx context.Context, asked []orderName) ([]ticket, error) {
	merchants, refs := make([]string, len(asked)), make([]string, len(asked))
	for i, a := range asked {
		merchants[i], refs[i] = a.merchant, a.id
	}
	rows, err := s.db.Query(ctx, takeTickets, merchants, refs)
	if err != nil {
		return nil, err
	}
	tickets, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (t ticket, err error) {
		return t, row.Scan(&t.number, &t.known)
	})
	if err == nil && len(tickets) != len(asked) {
		err = fmt.Errorf("%d numbers for %d settles", len(tickets), len(asked))
	}
	return tickets, err
}

func (s *Service) settle(ctx context.Context, c cause) (done settled, err error) {
	began := time.Now()
	defer func() { s.observeSettle(began, err) }()
	for attempt := 1; ; attempt++ {
		done, err := s.settleOnce(ctx, c)
		if errors.Is(err, ErrElsewhere) {
			return settled{}, errors.Join(err, s.leaveToProcess(ctx, c))
		}
		if !errors.Is(err, ErrStale) || attempt == staleRetries {
			return done, err
		}
	}
}

func (s *Service) settleOnce(ctx context.Context, c cause) (settled, error) {
	if s.stripe == nil {
		return settled{}, errors.New("no Stripe API key is configured: set KEYTILL_STRIPE_API_KEY")
	}
	r := reading{cause: c}
	t, err := s.tickets.Do(ctx, orderName{c.merchant, c.ref})
	if err != nil {
		return settled{}, fmt.Errorf("number the settle: %w", err)
	}
	r.ticket, r.known = t.number, t.known
	if r.payment, err = s.stripe.Payment(ctx, c.merchant, c.ref); err != nil {
		return settled{}, err
	}
	if !r.payment.Ours() {
		return settled{}, ErrNotOurs
	}
	if r.isSale() {
		// Whatever keeps it from being settled with others, settling it alone says what it is.
		if sold, err := s.sales.Do(ctx, r); err == nil && sold.id != "" {
			return sold, nil
		}
	}
	id, err := s.apply(ctx, r)
	return settled{id: id}, err
}

// A reading is a payment as it was read, and why.
type reading struct {
	cause
	payment Payment
	ticket  int64 // from before the payment was read
	known   bool  // it had an order then
}

// apply converges in one transaction. Where keys are left but locked, it starts over and waits for them.
func (s *Service) apply(ctx context.Context, r reading) (string, error) {
	var patient []int64
	for {
		var a *application
		err := pg.InTx(ctx, s.db, func(tx pgx.Tx) error {
			a = s.newApplication(r)
			a.patient = patient
			return a.run(ctx, tx)
		})
		switch {
		case errors.Is(err, inventory.ErrContended) && patient == nil:
			patient = a.pools()
		case errors.Is(err, errRaced):
			// Another settle made the order first: it is there now.
		case errors.Is(err, errOvertook):
			// An older order waits now: the next try waits behind it.
		case err != nil:
			return "", err
		default:
			return a.order.id, nil
		}
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
	}
}

// errRaced says that the order appeared between looking for it and making it.
var errRaced = errors.New("another settle made the order first")

// errOvertook says that an order has come to wait between looking for such and taking a key that has just come back.
var errOvertook = errors.New("an older order waits for this key")

// application is one run of the transaction that brings an order to what its payment's truth says.
type application struct {
	*Service
	reading
	patient []int64 // the pools whose locked keys are waited for; empty at first
	at      time.Time

	order orderRow
	lines []line
	plan  plan
}

func (s *Service) newApplication(r reading) *application {
	return &application{Service: s, reading: r, at: s.now(), order: orderRow{id: r.payment.OrderID(), answers: map[string]string{}}}
}

func (a *application) run(ctx context.Context, tx pgx.Tx) error {
	if err := inventory.LockPools(ctx, tx, a.merchant, a.patient); err != nil {
		return err
	}
	if err := a.read(ctx, tx); err != nil {
		return err
	}
	switch {
	case a.elsewhere(a.order.channels):
		return ErrElsewhere
	case a.order.exists && a.order.ticket >= a.ticket:
		return ErrStale
	case !a.order.exists && !a.isPaid():
		if err := a.takeTurn(ctx, tx); err != nil {
			return err
		}
		if !a.placed() {
			return a.writeNothing(ctx, tx)
		}
	}
	return a.converge(ctx, tx, []*application{a})
}

// placed reports whether the payment has become an order: a session that the buyer finished, or a PaymentIntent that
// is or may yet be paid. A cart that was left is none.
func (a *application) placed() bool {
	if s := a.payment.Session; s != nil {
		return s.Status == "complete" || a.payment.Intent != nil && a.payment.Intent.Status == "succeeded"
	}
	switch a.payment.Intent.Status {
	case "succeeded", "processing", "requires_capture":
		return true
	default:
		return false
	}
}

// pools are those the order's lines take keys from.
func (a *application) pools() []int64 {
	var pools []int64
	for _, l := range a.lines {
		if l.pool != nil {
			pools = append(pools, l.pool.ID)
		}
	}
	return pools
}

func (a *application) change(reason string) inventory.Change {
	return inventory.Change{Reason: reason, Actor: a.actor, Event: a.event, At: a.at}
}

// letGo gives back what is still held for a payment that has all it needs, or has come to nothing. A hold that was made
// anew since the payment began is another cart's under the same reference, and stays.
func (a *application) letGo(ctx context.Context, tx pgx.Tx) error {
	if len(a.order.held) == 0 && a.reference() == "" {
		return nil
	}
	refs, err := a.ownHolds(ctx, tx)
	if err != nil || len(refs) == 0 {
		return err
	}
	_, err = a.releaseRefs(ctx, tx, a.merchant, refs, a.change("not needed"))
	return err
}

// Index: reservations_pkey.
const readNewerHolds = `SELECT DISTINCT ref FROM keytill.reservations WHERE merchant_id = $1 AND ref = ANY ($2) AND created_at > $3`

// ownHolds are the references whose holds are not newer than the payment. Stripe's times are whole seconds.
func (a *application) ownHolds(ctx context.Context, tx pgx.Tx) ([]string, error) {
	rows, err := tx.Query(ctx, readNewerHolds, a.merchant, a.holdRefs(), a.payment.createdAt().Add(time.Second))
	if err != nil {
		return nil, fmt.Errorf("look for newer holds: %w", err)
	}
	newer, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("look for newer holds: %w", err)
	}
	return slices.DeleteFunc(a.holdRefs(), func(ref string) bool { return slices.Contains(newer, ref) }), nil
}
