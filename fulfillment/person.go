package fulfillment

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"github.com/keytill/keytill/internal/pg"
	"github.com/keytill/keytill/inventory"
)

// Errors about what a person asked for.
var (
	ErrNoReason    = errors.New("say why: it is kept in the audit")
	ErrNoUnit      = errors.New("the order has no such unit: `keytill order show` lists its lines and units")
	ErrNoKey       = errors.New("this unit has no live key")
	ErrNoRefund    = errors.New("no such refund is known of any order; `keytill order settle re_…` makes keytill look at it")
	ErrNoLine      = errors.New("the order has no such line, price, product or SKU")
	ErrAmbiguous   = errors.New("that means more than one")
	ErrAttribution = errors.New("the refund cannot be attributed like that")
	ErrNoAddress   = errors.New("no usable e-mail address")
	ErrOtherKey    = errors.New("this unit has another key by now: look at the order again")
	ErrRecalled    = errors.New("this unit's key was taken back, so it is not sent again")
)

// A Person is who asks for something, and why.
type Person struct {
	Name   string
	Reason string
}

func (p Person) check() error {
	if strings.TrimSpace(p.Reason) == "" {
		return ErrNoReason
	}
	return nil
}

// A UnitRef names a unit of an order. An empty line is the order's only one.
type UnitRef struct {
	Order string
	Line  string
	Unit  int

	// KeyID, if set, is the key that the unit must still have: a form that is sent twice does not take two keys.
	KeyID int64
}

func (r UnitRef) String() string { return fmt.Sprintf("%s unit %d", r.Line, r.Unit) }

const (
	// Index: fulfilments_pkey.
	readOrderPools = `SELECT DISTINCT pool_id FROM keytill.fulfilments WHERE merchant_id = $1 AND order_id = $2`

	// When the last of an order's pools may be announced. Index: fulfilments_pkey, pools_pkey.
	readOrderRelease = `
SELECT max(p.release_at)
  FROM keytill.fulfilments f
  JOIN keytill.pools p ON p.merchant_id = f.merchant_id AND p.pool_id = f.pool_id
 WHERE f.merchant_id = $1 AND f.order_id = $2 AND f.state = 'fulfilled'`

	// Lock: the order, as a settle takes it. Index: orders_pkey.
	lockOrderByID = `SELECT email FROM keytill.orders WHERE merchant_id = $1 AND order_id = $2 FOR NO KEY UPDATE`

	// Lock: the unit. Index: fulfilments_pkey, pools_pkey.
	lockUnit = `
SELECT f.line_id, f.state, coalesce(f.key_id, 0), p.pool_id, p.sku, p.release_at
  FROM keytill.fulfilments f
  JOIN keytill.pools p ON p.merchant_id = f.merchant_id AND p.pool_id = f.pool_id
 WHERE f.merchant_id = $1 AND f.order_id = $2 AND (f.line_id = $3 OR $3 = '') AND f.unit = $4
   FOR NO KEY UPDATE OF f`

	setUnit = `
UPDATE keytill.fulfilments SET state = $5, key_id = nullif($6::bigint, 0), revoked_by = nullif($7, ''), changed_at = $8
 WHERE merchant_id = $1 AND order_id = $2 AND line_id = $3 AND unit = $4`
)

// personal is one act of a person on one unit, in a transaction that holds the order and the unit.
type personal struct {
	*Service
	tx       pgx.Tx
	merchant string
	who      Person
	ref      UnitRef
	at       time.Time

	email   string
	state   UnitState
	key     int64
	pool    int64
	sku     string
	release *time.Time
	channel channelNames

	next    UnitState // what the unit becomes
	nextKey int64
}

func (s *Service) onUnit(ctx context.Context, merchant string, ref UnitRef, who Person, act func(p *personal) error) error {
	if err := who.check(); err != nil {
		return err
	}
	order, err := s.orderID(ctx, merchant, ref.Order)
	if err != nil {
		return err
	}
	ref.Order = order
	return pg.InTx(ctx, s.db, func(tx pgx.Tx) error {
		p := &personal{Service: s, tx: tx, merchant: merchant, who: who, ref: ref, at: s.now()}
		if err := p.lockPools(ctx); err != nil {
			return err
		}
		if err := p.lock(ctx); err != nil {
			return fmt.Errorf("order %s: %w", ref.Order, err)
		}
		if err := act(p); err != nil {
			return fmt.Errorf("order %s, %s: %w", ref.Order, p.ref, err)
		}
		return nil
	})
}

// orderID finds the one order that an id of its payment means.
func (s *Service) orderID(ctx context.Context, merchant, query string) (string, error) {
	orders, err := FindOrders(ctx, s.db, merchant, query)
	if err != nil {
		return "", fmt.Errorf("%s: %w", query, err)
	}
	if len(orders) > 1 {
		return "", fmt.Errorf("%w: %d orders match; name one by its id: `keytill order show` lists them", ErrAmbiguous, len(orders))
	}
	return orders[0].ID, nil
}

// lockPools takes the locks of the order's pools before the order's own, as a claim that waits for keys needs.
func (p *personal) lockPools(ctx context.Context) error {
	rows, err := p.tx.Query(ctx, readOrderPools, p.merchant, p.ref.Order)
	if err != nil {
		return fmt.Errorf("read the pools of order %s: %w", p.ref.Order, err)
	}
	pools, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return fmt.Errorf("read the pools of order %s: %w", p.ref.Order, err)
	}
	return inventory.LockPools(ctx, p.tx, p.merchant, pools)
}

func (p *personal) lock(ctx context.Context) error {
	if err := p.tx.QueryRow(ctx, lockOrderByID, p.merchant, p.ref.Order).Scan(&p.email); err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	if err := p.tx.QueryRow(ctx, readChannels, p.merchant).Scan(&p.channel); err != nil {
		return fmt.Errorf("read the channels: %w", err)
	}
	rows, err := p.tx.Query(ctx, lockUnit, p.merchant, p.ref.Order, p.ref.Line, p.ref.Unit)
	if err != nil {
		return fmt.Errorf("lock the unit: %w", err)
	}
	found := 0
	_, err = pgx.ForEachRow(rows, []any{&p.ref.Line, &p.state, &p.key, &p.pool, &p.sku, &p.release}, func() error {
		found++
		return nil
	})
	switch {
	case err != nil:
		return fmt.Errorf("lock the unit: %w", err)
	case found == 0:
		return ErrNoUnit
	case found > 1:
		return fmt.Errorf("%w: %d lines have a unit %d, say which with --line li_…", ErrAmbiguous, found, p.ref.Unit)
	}
	if p.elsewhere(p.channel) {
		return ErrElsewhere
	}
	if p.ref.KeyID != 0 && p.ref.KeyID != p.key {
		return ErrOtherKey
	}
	return nil
}

// takeKey takes the unit's live key for good. No payment gives it back.
func (p *personal) takeKey(ctx context.Context, reason string) error {
	from := keyStates[p.state]
	if p.key == 0 || !from.Live() {
		return ErrNoKey
	}
	return inventory.Move(ctx, p.tx, p.merchant, []int64{p.key}, from, inventory.Revoked,
		inventory.Change{Reason: reason, Actor: p.who.Name, At: p.at})
}

func (p *personal) set(ctx context.Context, state UnitState, key int64, by RevokedBy) error {
	if _, err := p.tx.Exec(ctx, setUnit, p.merchant, p.ref.Order, p.ref.Line, p.ref.Unit, state, key, by, p.at); err != nil {
		return fmt.Errorf("write the unit: %w", err)
	}
	p.next, p.nextKey = state, key
	return nil
}

// tell writes the deliveries of a notice, and the audit.
func (p *personal) tell(ctx context.Context, action string, kinds ...NoticeType) error {
	var rows deliveries
	after := p.at
	if p.release != nil && p.release.After(after) {
		after = *p.release
	}
	for _, kind := range kinds {
		n := notice{kind: kind, units: []NoticeUnit{{Line: p.ref.Line, Unit: p.ref.Unit, SKU: p.sku}}, after: after}
		if kind != KeysReady {
			for _, channel := range p.channel.storefront() {
				rows.add(p.ref.Order, channel, n, "")
			}
		} else if p.channel.has(ChannelEmail) && p.email != "" {
			rows.add(p.ref.Order, ChannelEmail, n, p.email)
		}
	}
	jobs, err := rows.insert(ctx, p.tx, p.merchant, p.at)
	if err != nil {
		return err
	}
	if err := insertJobs(ctx, p.jobs, p.tx, jobs); err != nil {
		return err
	}
	act := Act{At: p.at, Actor: p.who.Name, Action: action, Order: p.ref.Order, Subject: p.ref.String(), Reason: p.who.Reason}
	if err := Record(ctx, p.tx, p.merchant, act); err != nil {
		return err
	}
	return p.changed(ctx, p.tx, Change{Merchant: p.merchant, Order: p.ref.Order, At: p.at, Units: []UnitMove{{Line: p.ref.Line,
		Unit: p.ref.Unit, SKU: p.sku, From: p.state, To: p.next, KeyID: p.nextKey}}})
}

// RevokeKey takes a unit's key back for good: what a person revoked, no payment restores.
func (s *Service) RevokeKey(ctx context.Context, merchant string, ref UnitRef, who Person) error {
	return s.onUnit(ctx, merchant, ref, who, func(p *personal) error {
		if err := p.takeKey(ctx, "revoked by a person"); err != nil {
			return err
		}
		if err := p.set(ctx, UnitRevoked, p.key, ByPerson); err != nil {
			return err
		}
		if _, err := p.tx.Exec(ctx, cancelHeld, merchant, p.ref.Order, p.at); err != nil {
			return fmt.Errorf("cancel the held mails: %w", err)
		}
		return p.tell(ctx, "revoke", KeyRevoked)
	})
}

// ReplaceKey takes a unit's key back for good and gives it another; where the pool has none, the unit waits. The key
// that was replaced is never sold again.
func (s *Service) ReplaceKey(ctx context.Context, merchant string, ref UnitRef, who Person) error {
	return s.onUnit(ctx, merchant, ref, who, func(p *personal) error {
		if p.state != UnitFulfilled {
			return fmt.Errorf("it is %s: %w", p.state, ErrNoKey)
		}
		if err := p.takeKey(ctx, "replaced"); err != nil {
			return err
		}
		claimed, err := s.claimer.Claim(ctx, p.tx, inventory.Request{Merchant: merchant, Pool: p.pool, Patient: true,
			Units:  []inventory.Unit{{Order: p.ref.Order, Line: p.ref.Line, Unit: p.ref.Unit}},
			Change: inventory.Change{Reason: "replacement", Actor: who.Name, At: p.at}})
		if err != nil {
			return err
		}
		if len(claimed) == 0 {
			if err := p.set(ctx, UnitWaiting, 0, ""); err != nil {
				return err
			}
			job := river.InsertManyParams{Args: ServeJob{Merchant: merchant, Pool: p.pool}}
			if err := insertJobs(ctx, s.jobs, p.tx, []river.InsertManyParams{job}); err != nil {
				return err
			}
			return p.tell(ctx, "replace", FulfillmentWaiting)
		}
		if err := p.set(ctx, UnitFulfilled, claimed[0].KeyID, ""); err != nil {
			return err
		}
		return p.tell(ctx, "replace", KeyReplaced, KeysReady)
	})
}

const (
	// Index: refunds_pkey.
	readRefundOrder = `SELECT order_id FROM keytill.refunds WHERE merchant_id = $1 AND refund_id = $2`

	setAttribution = `UPDATE keytill.refunds SET attribution = $3 WHERE merchant_id = $1 AND refund_id = $2`
)

// AttributeRefund says which lines a refund is for, in the form of keytill_lines, or "none". It is kept, so that every
// later settle knows it; a settle follows at once.
func (s *Service) AttributeRefund(ctx context.Context, merchant, refund, lines string, who Person) (order string, err error) {
	lines = strings.TrimSpace(lines)
	err = pg.InTx(ctx, s.db, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, readRefundOrder, merchant, refund).Scan(&order)
		if errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("%s: %w", refund, ErrNoRefund)
		}
		if err != nil {
			return fmt.Errorf("read refund %s: %w", refund, err)
		}
		var email string
		if err := tx.QueryRow(ctx, lockOrderByID, merchant, order).Scan(&email); err != nil {
			return fmt.Errorf("lock order %s: %w", order, err)
		}
		o, err := LoadOrder(ctx, tx, merchant, order)
		if err != nil {
			return err
		}
		if err := checkAttribution(o, lines); err != nil {
			return fmt.Errorf("order %s: %w", order, err)
		}
		if _, err := tx.Exec(ctx, setAttribution, merchant, refund, lines); err != nil {
			return fmt.Errorf("attribute refund %s: %w", refund, err)
		}
		if err := Record(ctx, tx, merchant, Act{At: s.now(), Actor: who.Name, Action: "attribute refund", Order: order,
			Subject: refund + " to " + lines, Reason: who.Reason}); err != nil {
			return err
		}
		return insertJobs(ctx, s.jobs, tx, []river.InsertManyParams{{Args: SettleJob{Merchant: merchant, Ref: order}}})
	})
	return order, err
}

func checkAttribution(o Order, list string) error {
	if list == noLines {
		return nil
	}
	mentions := parseMentions(list)
	if len(mentions) == 0 {
		return fmt.Errorf("%w: say which lines it is for: --lines li_…[:N],… or --lines none", ErrAttribution)
	}
	for _, m := range mentions {
		var quantity int64
		for _, l := range o.Lines {
			if m.name != "" && (m.name == l.ID || m.name == l.Price || m.name == l.Product || m.name == l.SKU) {
				quantity += l.Quantity
			}
		}
		if quantity == 0 {
			return fmt.Errorf("%s: %w", m.name, ErrNoLine)
		}
		if m.quantity > quantity {
			return fmt.Errorf("%w: %s has %d units, not %d", ErrAttribution, m.name, quantity, m.quantity)
		}
	}
	return nil
}

// Retry settles an order and tries its failed units again.
func (s *Service) Retry(ctx context.Context, merchant, query string, who Person) (Order, error) {
	id, err := s.orderID(ctx, merchant, query)
	if err != nil {
		return Order{}, err
	}
	if _, err := s.settle(ctx, cause{merchant: merchant, ref: id, actor: who.Name, retry: true}); err != nil {
		return Order{}, fmt.Errorf("retry %s: %w", id, err)
	}
	if err := Record(ctx, s.db, merchant, Act{At: s.now(), Actor: who.Name, Action: "retry", Order: id, Subject: id, Reason: who.Reason}); err != nil {
		return Order{}, err
	}
	return LoadOrder(ctx, s.db, merchant, id)
}
