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
	order, err := s.settle(ctx, cause{merchant: merchant, ref: ref, actor: actorSettle})
	if err != nil {
		return Order{}, fmt.Errorf("settle %s: %w", ref, err)
	}
	return LoadOrder(ctx, s.db, merchant, order)
}

// cause is why a payment is looked at.
type cause struct {
	merchant string
	ref      string // any id of the payment
	event    string // the event that pointed at it, if one did
	actor    string
	retry    bool // failed units are tried again
}

const actorSettle = "settle"

// takeTicket numbers a settle before it reads Stripe. A number is never given out twice, not even after a crash.
const takeTicket = `SELECT nextval('keytill.ticket')`

// settle returns the id of the order it settled.
func (s *Service) settle(ctx context.Context, c cause) (order string, err error) {
	began := time.Now()
	defer func() { s.observeSettle(began, err) }()
	for attempt := 1; ; attempt++ {
		order, err := s.settleOnce(ctx, c)
		if errors.Is(err, ErrElsewhere) {
			return "", errors.Join(err, s.leaveToProcess(ctx, c))
		}
		if !errors.Is(err, ErrStale) || attempt == staleRetries {
			return order, err
		}
	}
}

func (s *Service) settleOnce(ctx context.Context, c cause) (string, error) {
	if s.stripe == nil {
		return "", errors.New("no Stripe API key is configured: set KEYTILL_STRIPE_API_KEY")
	}
	var ticket int64
	if err := s.db.QueryRow(ctx, takeTicket).Scan(&ticket); err != nil {
		return "", fmt.Errorf("number the settle: %w", err)
	}
	payment, err := s.stripe.Payment(ctx, c.merchant, c.ref)
	if err != nil {
		return "", err
	}
	if !payment.Ours() {
		return "", ErrNotOurs
	}
	return s.apply(ctx, c, payment, ticket)
}

// apply converges in one transaction. Where keys are left but locked, it starts over and waits for them.
func (s *Service) apply(ctx context.Context, c cause, payment Payment, ticket int64) (string, error) {
	var patient []int64
	for {
		a := application{Service: s, cause: c, payment: payment, ticket: ticket, patient: patient}
		err := pg.InTx(ctx, s.db, func(tx pgx.Tx) error {
			a = application{Service: s, cause: c, payment: payment, ticket: ticket, patient: patient, at: s.now()}
			return a.run(ctx, tx)
		})
		switch {
		case errors.Is(err, inventory.ErrContended) && patient == nil:
			patient = a.pools()
		case errors.Is(err, errRaced):
			// Another settle made the order first: it is there now.
		case errors.Is(err, errOvertook):
			// An older order waits now: the next try waits behind it.
		default:
			return a.order.id, err
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
	cause
	payment Payment
	ticket  int64
	patient []int64 // the pools whose locked keys are waited for; empty at first
	at      time.Time

	order orderRow
	lines []line
	plan  plan
	shelf []int64 // pools of whose shelf keys were taken, past nobody who waits
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
	a.plan = makePlan(a.payment, a.lines, a.order.answers, a.policy, a.retry)
	if err := a.writeOrder(ctx, tx); err != nil {
		return err
	}
	if err := a.claimKeys(ctx, tx); err != nil {
		return err
	}
	if err := a.moveKeys(ctx, tx); err != nil {
		return err
	}
	return a.writeRest(ctx, tx)
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

// claimKeys gets keys for the units that are due and have none: first those that are held for the payment, then from the
// shelf. Units of a pool in which older orders wait, wait behind them, stock or not.
func (a *application) claimKeys(ctx context.Context, tx pgx.Tx) error {
	for _, want := range a.plan.claims {
		if a.order.held[want.pool.ID] > 0 {
			held, err := inventory.ClaimHeld(ctx, tx, a.request(want), a.holdRefs())
			if err != nil {
				return err
			}
			want.units = want.take(held)
		}
		if len(want.units) == 0 {
			continue
		}
		if want.pool.Shortage == inventory.Wait && a.order.queued[want.pool.ID] {
			a.plan.leave(want.units, UnitWaiting)
			continue
		}
		claimed, err := a.claimer.Claim(ctx, tx, a.request(want))
		if err != nil {
			return err
		}
		if len(claimed) > 0 && want.pool.Shortage == inventory.Wait {
			a.shelf = append(a.shelf, want.pool.ID)
		}
		a.plan.leave(want.take(claimed), shortState(want.pool))
	}
	decided := a.order.exists && a.order.payment != Pending && a.order.payment != Closed // an earlier settle let go
	if a.plan.verdict.Payment == Pending || decided {
		return nil
	}
	return a.letGo(ctx, tx)
}

func (a *application) request(want claimWanted) inventory.Request {
	units := make([]inventory.Unit, len(want.units))
	for i, u := range want.units {
		units[i] = inventory.Unit{Order: a.order.id, Line: u.line, Unit: u.number}
	}
	return inventory.Request{Merchant: a.merchant, Pool: want.pool.ID, Units: units, Change: a.change("paid"), Patient: a.patient != nil}
}

// take gives the first units their keys and returns those that got none.
func (w claimWanted) take(claimed []inventory.Claimed) []*unitChange {
	for i, c := range claimed {
		w.units[i].key = c.KeyID
	}
	return w.units[len(claimed):]
}

func shortState(pool inventory.Pool) UnitState {
	if pool.Shortage == inventory.Fail {
		return UnitFailed
	}
	return UnitWaiting
}

// moveKeys moves the keys that units have already, and their rows must be as they were read.
func (a *application) moveKeys(ctx context.Context, tx pgx.Tx) error {
	for _, m := range a.plan.moves() {
		if err := inventory.Move(ctx, tx, a.merchant, m.keys, m.from, m.to, a.change(m.reason)); err != nil {
			return err
		}
	}
	return nil
}
