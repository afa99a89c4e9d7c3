package fulfillment

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/internal/pg"
	"github.com/keytill/keytill/inventory"
)

// An Order is one payment as keytill last settled it, with its lines and units. It holds no key's text: Keys gets those.
type Order struct {
	ID                string       `json:"id"`
	PaymentIntent     string       `json:"payment_intent,omitempty"`
	Charge            string       `json:"charge,omitempty"`
	ClientReferenceID string       `json:"client_reference_id,omitempty"`
	Payment           PaymentState `json:"payment"`
	Currency          string       `json:"currency"`
	Total             int64        `json:"amount_total"` // minor units, as all amounts
	Captured          int64        `json:"amount_captured"`
	Refunded          int64        `json:"amount_refunded"`
	Email             string       `json:"email,omitempty"`
	Locale            string       `json:"locale,omitempty"` // the buyer's, as Stripe's checkout had it
	PlacedAt          time.Time    `json:"placed_at"`
	PaidAt            *time.Time   `json:"paid_at,omitempty"`
	SettledAt         time.Time    `json:"settled_at"`
	Lines             []OrderLine  `json:"lines"`
	LinkSerial        int          `json:"-"` // the number that links to the buyer's page carry
	ListedAt          time.Time    `json:"-"` // its place in the list that it was read for (see OrderPlace)
}

// An OrderLine is a line of an order with its units.
type OrderLine struct {
	ID          string      `json:"id"`
	Price       string      `json:"price"`
	Product     string      `json:"product,omitempty"`
	Description string      `json:"description"`
	Quantity    int64       `json:"quantity"`
	Amount      int64       `json:"amount"`
	SKU         string      `json:"sku,omitempty"`        // empty: not mapped, or no keys here
	Name        string      `json:"name,omitempty"`       // what a buyer reads
	ReleaseAt   *time.Time  `json:"release_at,omitempty"` // its keys are not announced before
	Units       []OrderUnit `json:"units,omitempty"`
}

// An OrderUnit is what one unit has.
type OrderUnit struct {
	Unit      int       `json:"unit"`
	State     UnitState `json:"state"`
	KeyID     int64     `json:"key_id,omitempty"`
	RevokedBy RevokedBy `json:"revoked_by,omitempty"`
	ChangedAt time.Time `json:"changed_at"`

	RevealedAt *time.Time `json:"revealed_at,omitempty"` // when the buyer first saw the key on their page
}

// Units counts the order's units by state.
func (o Order) Units() map[UnitState]int {
	counts := make(map[UnitState]int)
	for _, l := range o.Lines {
		for _, u := range l.Units {
			counts[u.State]++
		}
	}
	return counts
}

// KeyIDs are the keys of the order's units in the given states, in the order of its lines and units.
func (o Order) KeyIDs(states ...UnitState) []int64 {
	var keys []int64
	for _, l := range o.Lines {
		for _, u := range l.Units {
			for _, state := range states {
				if u.State == state && u.KeyID != 0 {
					keys = append(keys, u.KeyID)
				}
			}
		}
	}
	return keys
}

// arrange brings keys into the order of the order's lines and units.
func (o Order) arrange(keys []inventory.Owned) {
	place := make(map[string]int, len(o.Lines))
	for i, l := range o.Lines {
		place[l.ID] = i
	}
	slices.SortFunc(keys, func(a, b inventory.Owned) int {
		return cmp.Or(cmp.Compare(place[a.Line], place[b.Line]), cmp.Compare(a.Unit, b.Unit))
	})
}

// One order has statements of its own, though an array of one would do: what a plan costs depends on the array's length, so
// that PostgreSQL would make one anew each time, and takes longer for that than for the reading.
const (
	oneOrder   = `= $2`
	manyOrders = `= ANY ($2)`

	readOrder, readOrders           = selectOrders + oneOrder, selectOrders + manyOrders
	readOrderLines, readOrdersLines = selectLines + oneOrder + byOrdinal, selectLines + manyOrders + byOrdinal
	readOrderUnits, readOrdersUnits = selectUnits + oneOrder + byUnit, selectUnits + manyOrders + byUnit
)

const (
	// Index: orders_pkey.
	selectOrders = `
SELECT order_id, coalesce(payment_intent, ''), coalesce(charge, ''), coalesce(client_reference_id, ''), payment, currency,
       amount_total, amount_captured, amount_refunded, email, locale, placed_at, paid_at, settled_at, link_serial
  FROM keytill.orders WHERE merchant_id = $1 AND order_id `

	// Index: lines_pkey, pools_pkey.
	selectLines = `
SELECT l.order_id, l.line_id, l.price, l.product, l.description, l.quantity, l.amount, coalesce(p.sku, ''), coalesce(p.name, ''), p.release_at
  FROM keytill.lines l
  LEFT JOIN keytill.pools p ON p.merchant_id = l.merchant_id AND p.pool_id = l.pool_id
 WHERE l.merchant_id = $1 AND l.order_id `
	byOrdinal = `
 ORDER BY l.order_id, l.ordinal`

	// Index: fulfilments_pkey.
	selectUnits = `
SELECT order_id, line_id, unit, state, coalesce(key_id, 0), coalesce(revoked_by, ''), changed_at, revealed_at
  FROM keytill.fulfilments
 WHERE merchant_id = $1 AND order_id `
	byUnit = `
 ORDER BY order_id, line_id, unit`

	// Index: orders_pkey, orders_payment_intent, orders_charge, refunds_pkey, disputes_pkey, orders_email.
	findOrders = `
SELECT order_id FROM (
    SELECT order_id, placed_at FROM keytill.orders WHERE merchant_id = $1 AND order_id = $2
    UNION SELECT order_id, placed_at FROM keytill.orders WHERE merchant_id = $1 AND payment_intent = $2
    UNION SELECT order_id, placed_at FROM keytill.orders WHERE merchant_id = $1 AND charge = $2
    UNION SELECT o.order_id, o.placed_at FROM keytill.refunds r JOIN keytill.orders o USING (merchant_id, order_id)
           WHERE r.merchant_id = $1 AND r.refund_id = $2
    UNION SELECT o.order_id, o.placed_at FROM keytill.disputes d JOIN keytill.orders o USING (merchant_id, order_id)
           WHERE d.merchant_id = $1 AND d.dispute_id = $2
    UNION SELECT order_id, placed_at FROM keytill.orders
           WHERE merchant_id = $1 AND email <> '' AND lower(email) = lower($2)
) AS found
 ORDER BY placed_at DESC, order_id
 LIMIT $3`

	// In each pool by itself: asked for all of them at once, the planner reads every key there is. Index: pools_pkey,
	// keys_fingerprint.
	findByKey = `
SELECT DISTINCT found.order_id
  FROM keytill.pools p
 CROSS JOIN LATERAL (
       SELECT k.order_id FROM keytill.keys k
        WHERE k.merchant_id = $1 AND k.pool_id = p.pool_id AND k.fingerprint = ANY ($2)
        ORDER BY k.fingerprint OFFSET 0) AS found
 WHERE p.merchant_id = $1 AND found.order_id IS NOT NULL`
)

// orderName is a merchant's order, or a payment that may be one.
type orderName struct{ merchant, id string }

// LoadOrder reads an order, or ErrNoOrder.
func LoadOrder(ctx context.Context, db pg.Querier, merchant, id string) (Order, error) {
	orders, err := loadOrders(ctx, db, merchant, []string{id})
	if err != nil {
		return Order{}, fmt.Errorf("read order %s: %w", id, err)
	}
	if orders[0].ID == "" {
		return Order{}, fmt.Errorf("%s: %w", id, ErrNoOrder)
	}
	return orders[0], nil
}

// loadOrders reads orders in the order of their ids. One that there is not has no id.
func loadOrders(ctx context.Context, db pg.Querier, merchant string, ids []string) ([]Order, error) {
	read := newOrderReader(ids)
	for _, part := range read.parts() {
		rows, err := db.Query(ctx, part.query, merchant, read.which())
		if err != nil {
			return nil, err
		}
		if err := part.scan(rows); err != nil {
			return nil, err
		}
	}
	return read.orders, nil
}

func ofOneMerchant(round []orderName, next orderName) bool {
	return round[0].merchant == next.merchant && !slices.Contains(round, next)
}

// loadTogether reads orders of one merchant in one round trip.
func (s *Service) loadTogether(ctx context.Context, names []orderName) ([]Order, error) {
	ids := make([]string, len(names))
	for i, n := range names {
		ids[i] = n.id
	}
	batch := &pgx.Batch{}
	read := queueOrders(batch, names[0].merchant, ids...)
	if err := s.db.SendBatch(ctx, batch).Close(); err != nil {
		return nil, fmt.Errorf("read %d orders: %w", len(ids), err)
	}
	return read.orders, nil
}

// queueOrders reads orders as part of a batch.
func queueOrders(batch *pgx.Batch, merchant string, ids ...string) *orderReader {
	read := newOrderReader(ids)
	for _, part := range read.parts() {
		batch.Queue(part.query, merchant, read.which()).Query(part.scan)
	}
	return read
}

// An orderReader puts together orders, each once, that are read in parts. One that there is not stays without an id.
type orderReader struct {
	ids    []string
	orders []Order
}

func newOrderReader(ids []string) *orderReader {
	return &orderReader{ids: ids, orders: make([]Order, len(ids))}
}

func (r *orderReader) order(id string) *Order { return &r.orders[slices.Index(r.ids, id)] }

type orderPart struct {
	query string
	scan  func(pgx.Rows) error
}

// parts are to be read one after the other.
func (r *orderReader) parts() []orderPart {
	if len(r.ids) == 1 {
		return []orderPart{{readOrder, r.scanOrders}, {readOrderLines, r.scanLines}, {readOrderUnits, r.scanUnits}}
	}
	return []orderPart{{readOrders, r.scanOrders}, {readOrdersLines, r.scanLines}, {readOrdersUnits, r.scanUnits}}
}

// which is the parts' argument: the id, or all of them.
func (r *orderReader) which() any {
	if len(r.ids) == 1 {
		return r.ids[0]
	}
	return r.ids
}

func (r *orderReader) scanOrders(rows pgx.Rows) error {
	orders, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (o Order, err error) { return o, o.scan(row) })
	for _, o := range orders {
		*r.order(o.ID) = o
	}
	return err
}

func (o *Order) scan(row pgx.Row) error {
	return row.Scan(&o.ID, &o.PaymentIntent, &o.Charge, &o.ClientReferenceID, &o.Payment, &o.Currency, &o.Total, &o.Captured,
		&o.Refunded, &o.Email, &o.Locale, &o.PlacedAt, &o.PaidAt, &o.SettledAt, &o.LinkSerial)
}

func (r *orderReader) scanLines(rows pgx.Rows) error {
	lines, err := pgx.CollectRows(rows, scanOrderLine)
	for _, l := range lines {
		o := r.order(l.order)
		o.Lines = append(o.Lines, l.OrderLine)
	}
	return err
}

type lineOfOrder struct {
	order string
	OrderLine
}

func scanOrderLine(row pgx.CollectableRow) (l lineOfOrder, err error) {
	err = row.Scan(&l.order, &l.ID, &l.Price, &l.Product, &l.Description, &l.Quantity, &l.Amount, &l.SKU, &l.Name, &l.ReleaseAt)
	return l, err
}

// scanUnits puts the units to the lines, which are read before them.
func (r *orderReader) scanUnits(rows pgx.Rows) error {
	var (
		order string
		u     lineUnit
		of    *OrderLine // the line of the unit before, which most have in common
		ofIts string     // … and its order
	)
	_, err := pgx.ForEachRow(rows, []any{&order, &u.line, &u.Unit, &u.State, &u.KeyID, &u.RevokedBy, &u.ChangedAt, &u.RevealedAt}, func() error {
		if of == nil || of.ID != u.line || ofIts != order {
			lines := r.order(order).Lines
			i := slices.IndexFunc(lines, func(l OrderLine) bool { return l.ID == u.line })
			if i < 0 {
				return nil // a line that came since the lines were read
			}
			of, ofIts = &lines[i], order
		}
		of.Units = append(of.Units, u.OrderUnit)
		return nil
	})
	return err
}

type lineUnit struct {
	line string
	OrderUnit
}

// maxFound bounds how many orders a search returns: an address may have bought for years.
const maxFound = 100

// FindOrders finds orders by anything a buyer may hold: the order's id, its PaymentIntent, charge, refund or dispute, or
// the e-mail address; newest first. It returns ErrNoOrder where there is none.
func FindOrders(ctx context.Context, db pg.Querier, merchant, query string) ([]Order, error) {
	rows, err := db.Query(ctx, findOrders, merchant, strings.TrimSpace(query), maxFound)
	if err != nil {
		return nil, fmt.Errorf("look for orders: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("look for orders: %w", err)
	}
	return loadFound(ctx, db, merchant, ids)
}

// FindOrdersByKey finds the orders that have or had a key, by its text.
func (s *Service) FindOrdersByKey(ctx context.Context, merchant, text string) ([]Order, error) {
	ids, err := s.OrderIDsByKey(ctx, merchant, text)
	if err != nil {
		return nil, err
	}
	return loadFound(ctx, s.db, merchant, ids)
}

// OrderIDsByKey is FindOrdersByKey without what the orders hold; nothing found is no error.
func (s *Service) OrderIDsByKey(ctx context.Context, merchant, text string) ([]string, error) {
	fingerprints, err := s.keyset.Fingerprints([]byte(strings.Trim(text, " ")))
	if err != nil {
		return nil, err
	}
	rows, err := s.db.Query(ctx, findByKey, merchant, fingerprints)
	if err != nil {
		return nil, fmt.Errorf("look for orders by key: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("look for orders by key: %w", err)
	}
	return found, nil
}

func loadFound(ctx context.Context, db pg.Querier, merchant string, ids []string) ([]Order, error) {
	if len(ids) == 0 {
		return nil, ErrNoOrder
	}
	orders, err := loadOrders(ctx, db, merchant, ids)
	if err != nil {
		return nil, fmt.Errorf("read %d orders: %w", len(ids), err)
	}
	return orders, nil
}

// Keys decrypts the keys of an order's units in the given states, in unit order. Its result is for the buyer, or for a
// person who said why.
func (s *Service) Keys(ctx context.Context, merchant string, o Order, states ...UnitState) ([]string, error) {
	ids := o.KeyIDs(states...)
	byID, err := s.keyset.Texts(ctx, s.db, merchant, ids)
	if err != nil {
		return nil, fmt.Errorf("order %s: %w", o.ID, err)
	}
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = byID[id]
	}
	return texts, nil
}
