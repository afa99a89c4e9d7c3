package fulfillment

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/keytill/keytill/internal/pg"
)

// A Reader reads, one query at a time or several in one round trip: a pool, a connection or a transaction.
type Reader interface {
	pg.Querier
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// An OrderPlace is where a page of orders ended: the order's id, and when it was placed or, in a list of those that wait,
// paid.
type OrderPlace struct {
	At time.Time
	ID string
}

// An OrderFilter says which orders to list. What is empty does not matter.
type OrderFilter struct {
	Payment PaymentState
	Waiting bool   // with units that wait for stock, whoever has waited longest first, whatever their payment
	Query   string // anything a buyer may hold: an id of the payment, or the e-mail address
}

const (
	// Newest first, from a place on, which is infinity for the first page: with "or there is none" a generic plan would read
	// everything before the place. Index: orders_placed.
	listOrders = `
SELECT placed_at, order_id FROM keytill.orders
 WHERE merchant_id = $1 AND $2 = '' AND (placed_at, order_id) < ($3::timestamptz, $4)
 ORDER BY placed_at DESC, order_id DESC
 LIMIT $5`

	// Index: orders_payment_placed.
	listOrdersOf = `
SELECT placed_at, order_id FROM keytill.orders
 WHERE merchant_id = $1 AND payment = $2 AND (placed_at, order_id) < ($3::timestamptz, $4)
 ORDER BY placed_at DESC, order_id DESC
 LIMIT $5`

	// Each step goes to the next order, over all of the one before: an order of a thousand waiting units is one step.
	// Index: fulfilments_waiting_orders.
	listWaitingOrders = `
WITH RECURSIVE waiting (at, order_id, n) AS (
    (SELECT coalesce(paid_at, 'epoch'), order_id, 1 FROM keytill.fulfilments
      WHERE merchant_id = $1 AND state = 'waiting' AND (coalesce(paid_at, 'epoch'), order_id) > ($2::timestamptz, $3)
      ORDER BY coalesce(paid_at, 'epoch'), order_id
      LIMIT 1)
    UNION ALL
    SELECT f.at, f.order_id, w.n + 1
      FROM waiting w
     CROSS JOIN LATERAL (
           SELECT coalesce(paid_at, 'epoch') AS at, order_id FROM keytill.fulfilments
            WHERE merchant_id = $1 AND state = 'waiting' AND (coalesce(paid_at, 'epoch'), order_id) > (w.at, w.order_id)
            ORDER BY coalesce(paid_at, 'epoch'), order_id
            LIMIT 1) AS f
     WHERE w.n < $4
)
SELECT at, order_id FROM waiting ORDER BY at, order_id LIMIT $4`

	// An address may have bought for years; an id means few. Index: as findOrders.
	searchOrders = `
SELECT placed_at, order_id FROM (
    SELECT order_id, placed_at, payment FROM keytill.orders WHERE merchant_id = $1 AND order_id = $6
    UNION SELECT order_id, placed_at, payment FROM keytill.orders WHERE merchant_id = $1 AND payment_intent = $6
    UNION SELECT order_id, placed_at, payment FROM keytill.orders WHERE merchant_id = $1 AND charge = $6
    UNION SELECT o.order_id, o.placed_at, o.payment FROM keytill.refunds r JOIN keytill.orders o USING (merchant_id, order_id)
           WHERE r.merchant_id = $1 AND r.refund_id = $6
    UNION SELECT o.order_id, o.placed_at, o.payment FROM keytill.disputes d JOIN keytill.orders o USING (merchant_id, order_id)
           WHERE d.merchant_id = $1 AND d.dispute_id = $6
    UNION (SELECT order_id, placed_at, payment FROM keytill.orders
            WHERE merchant_id = $1 AND email <> '' AND lower(email) = lower($6)
              AND ($2 = '' OR payment = $2) AND (placed_at, order_id) < ($3::timestamptz, $4)
            ORDER BY placed_at DESC, order_id DESC LIMIT $5)
) AS found
 WHERE ($2 = '' OR payment = $2) AND (placed_at, order_id) < ($3::timestamptz, $4)
 ORDER BY placed_at DESC, order_id DESC
 LIMIT $5`
)

// ListOrders lists a page of orders, newest first, from where the last page ended (nil: the beginning). Those that wait are
// listed the longest waiting first.
func ListOrders(ctx context.Context, db Reader, merchant string, f OrderFilter, after *OrderPlace, most int) ([]Order, error) {
	places, err := listPlaces(ctx, db, merchant, f, after, most)
	if err != nil {
		return nil, err
	}
	ids, at := make([]string, len(places)), make(map[string]time.Time, len(places))
	for i, p := range places {
		ids[i], at[p.ID] = p.ID, p.At
	}
	orders, err := LoadOrders(ctx, db, merchant, ids)
	for i := range orders {
		orders[i].ListedAt = at[orders[i].ID]
	}
	return orders, err
}

// listPlaces lists which orders a page has.
func listPlaces(ctx context.Context, db Reader, merchant string, f OrderFilter, after *OrderPlace, most int) ([]OrderPlace, error) {
	at := pgtype.Timestamptz{InfinityModifier: pgtype.Infinity, Valid: true}
	if f.Waiting {
		at.InfinityModifier = pgtype.NegativeInfinity
	}
	order := ""
	if after != nil {
		at, order = pgtype.Timestamptz{Time: after.At, Valid: true}, after.ID
	}
	query, args := listOrders, []any{merchant, f.Payment, at, order, most}
	switch {
	case f.Query != "":
		query, args = searchOrders, append(args, strings.TrimSpace(f.Query))
	case f.Waiting:
		query, args = listWaitingOrders, []any{merchant, at, order, most}
	case f.Payment != "":
		query = listOrdersOf
	}
	rows, err := db.Query(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("list orders: %w", err)
	}
	places, err := pgx.CollectRows(rows, pgx.RowToStructByPos[OrderPlace])
	if err != nil {
		return nil, fmt.Errorf("list orders: %w", err)
	}
	return places, nil
}

// LoadOrders reads orders in one round trip. Those that there are not are left out.
func LoadOrders(ctx context.Context, db Reader, merchant string, ids []string) ([]Order, error) {
	batch := &pgx.Batch{}
	read := queueOrders(batch, merchant, ids...)
	if err := db.SendBatch(ctx, batch).Close(); err != nil {
		return nil, fmt.Errorf("read %d orders: %w", len(ids), err)
	}
	found := read.orders[:0]
	for _, o := range read.orders {
		if o.ID != "" {
			found = append(found, o)
		}
	}
	return found, nil
}

const (
	// Index: findings_listed.
	listFindings = `
SELECT finding_id, kind, subject, coalesce(order_id, ''), detail, opened_at
  FROM keytill.findings
 WHERE merchant_id = $1 AND closed_at IS NULL AND finding_id > $2
 ORDER BY finding_id
 LIMIT $3`

	// Index: audit_pkey, backwards.
	listActs = `
SELECT audit_id, at, actor, action, coalesce(order_id, ''), subject, reason FROM keytill.audit
 WHERE merchant_id = $1 AND audit_id < $2
 ORDER BY audit_id DESC
 LIMIT $3`
)

// ListFindings lists a page of open findings, oldest first, after the one with an id (0: from the beginning).
func ListFindings(ctx context.Context, db pg.Querier, merchant string, after int64, most int) ([]Finding, error) {
	rows, err := db.Query(ctx, listFindings, merchant, after, most)
	if err != nil {
		return nil, fmt.Errorf("list findings: %w", err)
	}
	findings, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Finding])
	if err != nil {
		return nil, fmt.Errorf("list findings: %w", err)
	}
	return findings, nil
}

// A Recorded act is one as the audit has it.
type Recorded struct {
	ID int64 `json:"id"`
	Act
}

// ListActs lists a page of what people did, newest first, before the act with an id (0: from the newest).
func ListActs(ctx context.Context, db pg.Querier, merchant string, before int64, most int) ([]Recorded, error) {
	if before == 0 {
		before = math.MaxInt64
	}
	rows, err := db.Query(ctx, listActs, merchant, before, most)
	if err != nil {
		return nil, fmt.Errorf("list the audit: %w", err)
	}
	acts, err := pgx.CollectRows(rows, scanRecorded)
	if err != nil {
		return nil, fmt.Errorf("list the audit: %w", err)
	}
	return acts, nil
}

func scanRecorded(row pgx.CollectableRow) (r Recorded, err error) {
	err = row.Scan(&r.ID, &r.At, &r.Actor, &r.Action, &r.Order, &r.Subject, &r.Reason)
	return r, err
}
