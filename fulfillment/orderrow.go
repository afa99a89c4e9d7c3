package fulfillment

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/inventory"
)

// orderRow is what a settle needs to know of an order, read under its lock.
type orderRow struct {
	exists   bool
	id       string
	ticket   int64
	payment  PaymentState      // as the last settle left it
	answers  map[string]string // a person's attributions of refunds
	channels channelNames      // the delivery channels that are served
	held     map[int64]int     // keys that are held for this payment, by pool
	unheld   bool              // nothing at all is held for it
}

// An order is called by its session or by its PaymentIntent, so both names find everything of it.
const (
	// Lock: the order, to the end of the transaction. Index: orders_pkey, orders_payment_intent.
	lockOrder = `
SELECT order_id, ticket, payment FROM keytill.orders
 WHERE merchant_id = $1 AND (order_id = $2 OR payment_intent = $3)
 ORDER BY order_id
   FOR NO KEY UPDATE`

	readChannels = `SELECT channels FROM keytill.merchants WHERE merchant_id = $1`

	// Index: lines_pkey.
	readLines = `
SELECT l.order_id, l.line_id, l.price, l.product, l.description, l.quantity, l.amount, l.keyless, l.per_unit,
       ` + inventory.PoolColumns + `
  FROM keytill.lines l
  LEFT JOIN keytill.pools p ON p.merchant_id = l.merchant_id AND p.pool_id = l.pool_id
 WHERE l.merchant_id = $1 AND l.order_id IN ($2, $3)
 ORDER BY l.order_id, l.ordinal`

	// Lock: the order's units, which a restock that serves waiting units locks too. Index: fulfilments_pkey.
	lockUnits = `
SELECT order_id, line_id, unit, pool_id, state, coalesce(key_id, 0), coalesce(revoked_by, '')
  FROM keytill.fulfilments
 WHERE merchant_id = $1 AND order_id IN ($2, $3)
 ORDER BY order_id, line_id, unit
   FOR NO KEY UPDATE`

	// Index: refunds_order.
	readAnswers = `
SELECT refund_id, attribution FROM keytill.refunds
 WHERE merchant_id = $1 AND order_id IN ($2, $3) AND attribution IS NOT NULL`
)

// read locks the order, if it exists, and reads all that the plan is made of, in one round trip.
func (a *application) read(ctx context.Context, tx pgx.Tx) error {
	session, intent := a.names()
	batch := &pgx.Batch{}
	var (
		orders   []string
		mappings map[string]inventory.Mapping
		stored   []storedLine
		units    []storedUnit
	)
	batch.Queue(lockOrder, a.merchant, session, intent).Query(func(rows pgx.Rows) error {
		var id string
		_, err := pgx.ForEachRow(rows, []any{&id, &a.order.ticket, &a.order.payment}, func() error {
			orders = append(orders, id)
			return nil
		})
		return err
	})
	batch.Queue(readChannels, a.merchant).QueryRow(func(row pgx.Row) error { return row.Scan(&a.order.channels) })
	inventory.QueueMappings(batch, a.merchant, a.items()).Query(func(rows pgx.Rows) (err error) {
		mappings, err = inventory.CollectMappings(rows, a.merchant)
		return err
	})
	batch.Queue(readLines, a.merchant, session, intent).Query(func(rows pgx.Rows) (err error) {
		stored, err = pgx.CollectRows(rows, a.scanLine)
		return err
	})
	batch.Queue(lockUnits, a.merchant, session, intent).Query(func(rows pgx.Rows) (err error) {
		units, err = pgx.CollectRows(rows, scanUnit)
		return err
	})
	batch.Queue(readAnswers, a.merchant, session, intent).Query(func(rows pgx.Rows) error {
		var refund, answer string
		_, err := pgx.ForEachRow(rows, []any{&refund, &answer}, func() error {
			a.order.answers[refund] = answer
			return nil
		})
		return err
	})
	inventory.QueueHeld(batch, a.merchant, a.holdRefs()).Query(func(rows pgx.Rows) (err error) {
		a.order.held, err = inventory.CollectHeld(rows)
		return err
	})
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		if errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("%s: %w", a.merchant, inventory.ErrNoMerchant)
		}
		return fmt.Errorf("read the order: %w", err)
	}
	if len(orders) > 1 {
		return fmt.Errorf("payment %s has the orders %v: keytill doctor says more", a.payment.OrderID(), orders)
	}
	if len(orders) == 1 {
		a.order.exists, a.order.id = true, orders[0]
		if a.payment.Session != nil && a.order.id == intent {
			a.payment = a.payment.asIntent()
		}
	}
	return a.arrange(ctx, tx, mappings, stored, units)
}

// names are the two ids that the payment's order may have.
func (a *application) names() (session, intent string) {
	if a.payment.Session != nil {
		session = a.payment.Session.ID
	}
	if a.payment.Intent != nil {
		intent = a.payment.Intent.ID
	}
	return session, intent
}

// reference is what the storefront tied to the payment.
func (a *application) reference() string {
	if a.payment.Session != nil {
		return a.payment.Session.ClientReferenceID
	}
	return a.payment.Intent.Reference
}

// holdRefs are the references under which keys may be held for the payment.
func (a *application) holdRefs() []string {
	refs := []string{a.payment.OrderID()}
	if ref := a.reference(); ref != "" {
		refs = append(refs, ref)
	}
	return refs
}

// items are the names under which the price map may know the payment's lines.
func (a *application) items() []string {
	lines := a.payment.Lines
	if a.payment.Intent != nil {
		lines = slices.Concat(lines, intentLines(*a.payment.Intent))
	}
	var items []string
	for _, l := range lines {
		items = append(items, l.Price, l.Product)
	}
	slices.Sort(items)
	return slices.DeleteFunc(slices.Compact(items), func(item string) bool { return item == "" })
}

type storedLine struct {
	order string
	line
}

type storedUnit struct {
	order string
	unit
}

func (a *application) scanLine(row pgx.CollectableRow) (storedLine, error) {
	var (
		l storedLine
		r inventory.PoolRow
	)
	err := row.Scan(append([]any{&l.order, &l.ID, &l.Price, &l.Product, &l.Description, &l.Quantity, &l.Amount, &l.mapped,
		&l.perUnit}, r.Dest()...)...)
	l.stored = true
	if l.pool = r.Pool(a.merchant); l.pool != nil {
		l.mapped = true
	}
	return l, err
}

func scanUnit(row pgx.CollectableRow) (storedUnit, error) {
	var u storedUnit
	err := row.Scan(&u.order, &u.line, &u.number, &u.pool, &u.state, &u.key, &u.revokedBy)
	return u, err
}

// arrange puts the payment's lines together with what is stored of them. A stored line keeps the pool it was given
// first, since its units have keys of it; what its price hands out today is for orders to come.
func (a *application) arrange(ctx context.Context, tx pgx.Tx, mappings map[string]inventory.Mapping, stored []storedLine, units []storedUnit) error {
	known := make(map[string]line, len(stored))
	for _, l := range stored {
		if l.order == a.order.id {
			known[l.ID] = l.line
		}
	}
	byLine := make(map[string][]unit)
	for _, u := range units {
		if u.order == a.order.id {
			byLine[u.line] = append(byLine[u.line], u.unit)
		}
	}
	var unknown []string
	a.lines = a.lines[:0]
	for _, l := range a.payment.lines() {
		next := line{Line: l, perUnit: 1}
		if was, ok := known[l.ID]; ok {
			next = was
			next.Unpriced = l.Unpriced
		}
		if !next.mapped {
			next.take(mappings)
		}
		if !next.mapped {
			unknown = append(unknown, l.Price, l.Product)
		}
		next.units = byLine[l.ID]
		a.lines = append(a.lines, next)
	}
	if len(unknown) > 0 {
		if err := a.lookAgain(ctx, tx, unknown); err != nil {
			return err
		}
	}
	a.pad()
	return nil
}

func (a *application) pad() {
	for i := range a.lines {
		a.lines[i].pad()
	}
}

// lookAgain holds the mappings of the unknown items still and reads them once more, so that whoever maps one of them
// either comes before this settle, or finds its order among those that wait.
func (a *application) lookAgain(ctx context.Context, tx pgx.Tx, unknown []string) error {
	slices.Sort(unknown)
	unknown = slices.DeleteFunc(slices.Compact(unknown), func(item string) bool { return item == "" })
	mappings, err := inventory.LockUnmapped(ctx, tx, a.merchant, unknown)
	if err != nil {
		return err
	}
	for i := range a.lines {
		if !a.lines[i].mapped {
			a.lines[i].take(mappings)
		}
	}
	return nil
}

// take maps a line by its price, else by its product.
func (l *line) take(mappings map[string]inventory.Mapping) {
	m, ok := mappings[l.Price]
	if !ok {
		m, ok = mappings[l.Product]
	}
	if !ok {
		return
	}
	l.mapped, l.pool, l.perUnit = true, m.Pool, m.PerUnit
	l.remap = l.stored && m.Pool != nil
}
