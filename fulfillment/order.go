package fulfillment

import (
	"context"
	"errors"
	"fmt"
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
	PlacedAt          time.Time    `json:"placed_at"`
	PaidAt            *time.Time   `json:"paid_at,omitempty"`
	SettledAt         time.Time    `json:"settled_at"`
	Lines             []OrderLine  `json:"lines"`
}

// An OrderLine is a line of an order with its units.
type OrderLine struct {
	ID          string      `json:"id"`
	Price       string      `json:"price"`
	Product     string      `json:"product,omitempty"`
	Description string      `json:"description"`
	Quantity    int64       `json:"quantity"`
	Amount      int64       `json:"amount"`
	SKU         string      `json:"sku,omitempty"` // empty: not mapped, or no keys here
	Units       []OrderUnit `json:"units,omitempty"`
}

// An OrderUnit is what one unit has.
type OrderUnit struct {
	Unit      int       `json:"unit"`
	State     UnitState `json:"state"`
	KeyID     int64     `json:"key_id,omitempty"`
	RevokedBy RevokedBy `json:"revoked_by,omitempty"`
	ChangedAt time.Time `json:"changed_at"`
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

const (
	// Index: orders_pkey.
	readOrder = `
SELECT order_id, coalesce(payment_intent, ''), coalesce(charge, ''), coalesce(client_reference_id, ''), payment, currency,
       amount_total, amount_captured, amount_refunded, email, placed_at, paid_at, settled_at
  FROM keytill.orders WHERE merchant_id = $1 AND order_id = $2`

	// Index: lines_pkey, pools_pkey.
	readOrderLines = `
SELECT l.line_id, l.price, l.product, l.description, l.quantity, l.amount, coalesce(p.sku, '')
  FROM keytill.lines l
  LEFT JOIN keytill.pools p ON p.merchant_id = l.merchant_id AND p.pool_id = l.pool_id
 WHERE l.merchant_id = $1 AND l.order_id = $2
 ORDER BY l.ordinal`

	// Index: fulfilments_pkey.
	readOrderUnits = `
SELECT line_id, unit, state, coalesce(key_id, 0), coalesce(revoked_by, ''), changed_at
  FROM keytill.fulfilments
 WHERE merchant_id = $1 AND order_id = $2
 ORDER BY line_id, unit`

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

	// Index: keys_fingerprint.
	findByKey = `
SELECT DISTINCT order_id FROM keytill.keys
 WHERE merchant_id = $1 AND pool_id = ANY ($2) AND fingerprint = ANY ($3) AND order_id IS NOT NULL`
)

// LoadOrder reads an order, or ErrNoOrder.
func LoadOrder(ctx context.Context, db pg.Querier, merchant, id string) (Order, error) {
	var o Order
	err := db.QueryRow(ctx, readOrder, merchant, id).Scan(&o.ID, &o.PaymentIntent, &o.Charge, &o.ClientReferenceID, &o.Payment,
		&o.Currency, &o.Total, &o.Captured, &o.Refunded, &o.Email, &o.PlacedAt, &o.PaidAt, &o.SettledAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return Order{}, fmt.Errorf("%s: %w", id, ErrNoOrder)
	}
	if err != nil {
		return Order{}, fmt.Errorf("read order %s: %w", id, err)
	}
	rows, err := db.Query(ctx, readOrderLines, merchant, id)
	if err != nil {
		return Order{}, fmt.Errorf("read the lines of order %s: %w", id, err)
	}
	o.Lines, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (l OrderLine, err error) {
		err = row.Scan(&l.ID, &l.Price, &l.Product, &l.Description, &l.Quantity, &l.Amount, &l.SKU)
		return l, err
	})
	if err != nil {
		return Order{}, fmt.Errorf("read the lines of order %s: %w", id, err)
	}
	if err := o.loadUnits(ctx, db, merchant); err != nil {
		return Order{}, fmt.Errorf("read the units of order %s: %w", id, err)
	}
	return o, nil
}

func (o *Order) loadUnits(ctx context.Context, db pg.Querier, merchant string) error {
	lines := make(map[string]*OrderLine, len(o.Lines))
	for i := range o.Lines {
		lines[o.Lines[i].ID] = &o.Lines[i]
	}
	rows, err := db.Query(ctx, readOrderUnits, merchant, o.ID)
	if err != nil {
		return err
	}
	var (
		line string
		u    OrderUnit
	)
	_, err = pgx.ForEachRow(rows, []any{&line, &u.Unit, &u.State, &u.KeyID, &u.RevokedBy, &u.ChangedAt}, func() error {
		if l := lines[line]; l != nil {
			l.Units = append(l.Units, u)
		}
		return nil
	})
	return err
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
	return loadFound(ctx, db, merchant, rows)
}

// FindOrdersByKey finds the orders that have or had a key, by its text.
func (s *Service) FindOrdersByKey(ctx context.Context, merchant, text string) ([]Order, error) {
	fingerprints, err := s.keyset.Fingerprints([]byte(strings.Trim(text, " ")))
	if err != nil {
		return nil, err
	}
	pools, err := inventory.Pools(ctx, s.db, merchant)
	if err != nil {
		return nil, err
	}
	ids := make([]int64, len(pools))
	for i, p := range pools {
		ids[i] = p.ID
	}
	rows, err := s.db.Query(ctx, findByKey, merchant, ids, fingerprints)
	if err != nil {
		return nil, fmt.Errorf("look for orders by key: %w", err)
	}
	return loadFound(ctx, s.db, merchant, rows)
}

func loadFound(ctx context.Context, db pg.Querier, merchant string, rows pgx.Rows) ([]Order, error) {
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("look for orders: %w", err)
	}
	if len(ids) == 0 {
		return nil, ErrNoOrder
	}
	orders := make([]Order, len(ids))
	for i, id := range ids {
		if orders[i], err = LoadOrder(ctx, db, merchant, id); err != nil {
			return nil, err
		}
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
