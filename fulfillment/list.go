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

// An OrderPlace is where a page of orders ended.
type OrderPlace struct {
	PlacedAt time.Time
	ID       string
}

// An OrderFilter says which orders to list. What is empty does not matter.
type OrderFilter struct {
	Payment PaymentState
	Waiting bool   // with units that wait for stock
	Query   string // anything a buyer may hold: an id of the payment, or the e-mail address
}

const (
	// Newest first, from a place on, which is infinity for the first page: with "or there is none" a generic plan would read
	// everything before the place. Index: orders_placed.
	listOrders = `
SELECT order_id FROM keytill.orders
 WHERE merchant_id = $1 AND $2 = '' AND (placed_at, order_id) < ($3::timestamptz, $4)
 ORDER BY placed_at DESC, order_id DESC
 LIMIT $5`

	// Index: orders_payment_placed.
	listOrdersOf = `
SELECT order_id FROM keytill.orders
 WHERE merchant_id = $1 AND payment = $2 AND (placed_at, order_id) < ($3::timestamptz, $4)
 ORDER BY placed_at DESC, order_id DESC
 LIMIT $5`

	// What waits comes first and then each order of it, however the planner counts: else it goes through all that there are.
	// Index: fulfilments_waiting, orders_pkey.
	listWaitingOrders = `
WITH waiting AS MATERIALIZED (
    SELECT DISTINCT order_id FROM keytill.fulfilments WHERE merchant_id = $1 AND state = 'waiting'
)
SELECT w.order_id
  FROM waiting w
 CROSS JOIN LATERAL (SELECT placed_at, payment FROM keytill.orders WHERE merchant_id = $1 AND order_id = w.order_id LIMIT 1) AS o
 WHERE ($2 = '' OR o.payment = $2) AND (o.placed_at, w.order_id) < ($3::timestamptz, $4)
 ORDER BY o.placed_at DESC, w.order_id DESC
 LIMIT $5`

	// Index: as findOrders.
	searchOrders = `
SELECT order_id FROM (
    SELECT order_id, placed_at, payment FROM keytill.orders WHERE merchant_id = $1 AND order_id = $6
    UNION SELECT order_id, placed_at, payment FROM keytill.orders WHERE merchant_id = $1 AND payment_intent = $6
    UNION SELECT order_id, placed_at, payment FROM keytill.orders WHERE merchant_id = $1 AND charge = $6
    UNION SELECT o.order_id, o.placed_at, o.payment FROM keytill.refunds r JOIN keytill.orders o USING (merchant_id, order_id)
           WHERE r.merchant_id = $1 AND r.refund_id = $6
    UNION SELECT o.order_id, o.placed_at, o.payment FROM keytill.disputes d JOIN keytill.orders o USING (merchant_id, order_id)
           WHERE d.merchant_id = $1 AND d.dispute_id = $6
    UNION SELECT order_id, placed_at, payment FROM keytill.orders
           WHERE merchant_id = $1 AND email <> '' AND lower(email) = lower($6)
) AS found
 WHERE ($2 = '' OR payment = $2) AND (placed_at, order_id) < ($3::timestamptz, $4)
 ORDER BY placed_at DESC, order_id DESC
 LIMIT $5`
)

// ListOrders lists a page of orders, newest first, from where the last page ended (nil: the beginning).
func ListOrders(ctx context.Context, db Reader, merchant string, f OrderFilter, after *OrderPlace, most int) ([]Order, error) {
	at := pgtype.Timestamptz{InfinityModifier: pgtype.Infinity, Valid: true}
	order := ""
	if after != nil {
		at, order = pgtype.Timestamptz{Time: after.PlacedAt, Valid: true}, after.ID
	}
	query, args := listOrders, []any{merchant, f.Payment, at, order, most}
	switch {
	case f.Query != "":
		query, args = searchOrders, append(args, strings.TrimSpace(f.Query))
	case f.Waiting:
		query = listWaitingOrders
	case f.Payment != "":
		query = listOrdersOf
	}
	rows, err := db.Query(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("list orders: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("list orders: %w", err)
	}
	return LoadOrders(ctx, db, merchant, ids)
}

// LoadOrders reads orders in one round trip. Those that there are not are left out.
func LoadOrders(ctx context.Context, db Reader, merchant string, ids []string) ([]Order, error) {
	orders := make([]Order, len(ids))
	batch := &pgx.Batch{}
	for i, id := range ids {
		queueOrder(batch, merchant, id, &orders[i])
	}
	if err := db.SendBatch(ctx, batch).Close(); err != nil {
		return nil, fmt.Errorf("read %d orders: %w", len(ids), err)
	}
	found := orders[:0]
	for _, o := range orders {
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
