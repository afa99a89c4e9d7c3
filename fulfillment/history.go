package fulfillment

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/inventory"
)

// A History is what happened to an order. Each list is oldest first, and none of them holds a key. Of a list with more than
// maxHistory entries it has the newest ones.
type History struct {
	Events     []PastEvent    `json:"events"`
	Movements  []PastMovement `json:"movements"`
	Deliveries []PastDelivery `json:"deliveries"`
	Refunds    []PastRefund   `json:"refunds"`
	Disputes   []PastDispute  `json:"disputes"`
	Acts       []Recorded     `json:"acts"`
	Findings   []PastFinding  `json:"findings"`
}

// A PastEvent is an event of the order's payment.
type PastEvent struct {
	ID         string     `json:"id"`
	Type       string     `json:"type"`
	State      string     `json:"state"` // pending, done, ignored
	ReceivedAt time.Time  `json:"received_at"`
	DoneAt     *time.Time `json:"done_at,omitempty"`
	Note       string     `json:"note,omitempty"`
	Swept      bool       `json:"swept"` // found by a sweep, not sent
}

// A PastMovement is a change of a key's state.
type PastMovement struct {
	KeyID  int64           `json:"key_id"`
	From   inventory.State `json:"from"`
	To     inventory.State `json:"to"`
	Line   string          `json:"line,omitempty"`
	Unit   int             `json:"unit,omitempty"`
	Reason string          `json:"reason"`
	Actor  string          `json:"actor"`
	Event  string          `json:"event,omitempty"`
	At     time.Time       `json:"at"`
}

// A PastDelivery is a notice and how it went.
type PastDelivery struct {
	ID        int64         `json:"id"`
	Channel   Channel       `json:"channel"`
	Type      NoticeType    `json:"type"`
	Recipient string        `json:"recipient,omitempty"`
	State     DeliveryState `json:"state"`
	Attempts  int           `json:"attempts"`
	Answer    string        `json:"answer,omitempty"`
	LastError string        `json:"last_error,omitempty"`
	SendAfter time.Time     `json:"send_after"`
	CreatedAt time.Time     `json:"created_at"`
	DoneAt    *time.Time    `json:"done_at,omitempty"`
}

// A PastRefund is a refund as the last settle saw it.
type PastRefund struct {
	ID          string    `json:"id"`
	Amount      int64     `json:"amount"`
	Status      string    `json:"status"`
	Attribution string    `json:"attribution,omitempty"` // what a person said it is for
	CreatedAt   time.Time `json:"created_at"`
}

// A PastDispute is a dispute as the last settle saw it.
type PastDispute struct {
	ID        string    `json:"id"`
	Amount    int64     `json:"amount"`
	Status    string    `json:"status"`
	CreatedAt time.Time `json:"created_at"`
}

// A PastFinding is a finding, open or closed.
type PastFinding struct {
	Finding
	ClosedAt *time.Time `json:"closed_at,omitempty"`
}

// maxHistory bounds each list of a history: an order of hundreds of units is read by nobody to its end.
const maxHistory = 500

const (
	// Events name the order's payment by any of its ids. Index: orders_pkey, refunds_order, disputes_order, events_of_payment.
	readOrderEvents = `
SELECT e.event_id, e.type, e.state, e.received_at, e.done_at, e.note, e.swept
  FROM keytill.events e
 WHERE e.merchant_id = $1
   AND e.payment IN (SELECT unnest(ARRAY[o.order_id, o.payment_intent, o.charge]) FROM keytill.orders o
                      WHERE o.merchant_id = $1 AND o.order_id = $2
                     UNION ALL SELECT refund_id FROM keytill.refunds WHERE merchant_id = $1 AND order_id = $2
                     UNION ALL SELECT dispute_id FROM keytill.disputes WHERE merchant_id = $1 AND order_id = $2)
 ORDER BY e.ticket DESC LIMIT $3`

	// Keys that the order has or had: a key's row keeps the unit that it was sold for. Index: keys_live_unit,
	// keys_revoked_unit, movements_key.
	readOrderMovements = `
SELECT m.key_id, m.from_state, m.to_state, coalesce(m.line_id, ''), coalesce(m.unit, 0), m.reason, m.actor, coalesce(m.event_id, ''), m.at
  FROM (SELECT key_id FROM keytill.keys WHERE merchant_id = $1 AND order_id = $2 AND state IN ('allocated', 'suspended')
        UNION ALL
        SELECT key_id FROM keytill.keys WHERE merchant_id = $1 AND order_id = $2 AND state = 'revoked') AS k
  JOIN keytill.movements m ON m.merchant_id = $1 AND m.key_id = k.key_id
 WHERE m.order_id = $2
 ORDER BY m.movement_id DESC LIMIT $3`

	// The same of some units. Index: keys_live_unit, keys_revoked_unit, movements_key.
	readPartMovements = `
SELECT m.key_id, m.from_state, m.to_state, coalesce(m.line_id, ''), coalesce(m.unit, 0), m.reason, m.actor, coalesce(m.event_id, ''), m.at
  FROM (SELECT k.key_id
          FROM unnest($3::text[], $4::int[], $5::int[]) AS part (line_id, first, last)
         CROSS JOIN LATERAL (
               (SELECT key_id FROM keytill.keys
                 WHERE merchant_id = $1 AND order_id = $2 AND line_id = part.line_id AND unit BETWEEN part.first AND part.last
                   AND state IN ('allocated', 'suspended'))
               UNION ALL
               (SELECT key_id FROM keytill.keys
                 WHERE merchant_id = $1 AND order_id = $2 AND line_id = part.line_id AND unit BETWEEN part.first AND part.last
                   AND state = 'revoked')) AS k) AS k
 CROSS JOIN LATERAL (
       SELECT key_id, from_state, to_state, line_id, unit, reason, actor, event_id, at, movement_id, order_id
         FROM keytill.movements
        WHERE merchant_id = $1 AND key_id = k.key_id AND order_id = $2
        ORDER BY movement_id DESC LIMIT $6) AS m
 ORDER BY m.movement_id DESC
 LIMIT $6`

	// Index: deliveries_order.
	readOrderDeliveries = `
SELECT delivery_id, channel, type, recipient, state, attempts, answer, last_error, send_after, created_at, done_at
  FROM keytill.deliveries WHERE merchant_id = $1 AND order_id = $2 ORDER BY delivery_id DESC LIMIT $3`

	// Index: refunds_order.
	readOrderRefunds = `
SELECT refund_id, amount, status, coalesce(attribution, ''), created_at
  FROM keytill.refunds WHERE merchant_id = $1 AND order_id = $2 ORDER BY created_at DESC, refund_id DESC LIMIT $3`

	// Index: disputes_order.
	readOrderDisputes = `
SELECT dispute_id, amount, status, created_at
  FROM keytill.disputes WHERE merchant_id = $1 AND order_id = $2 ORDER BY created_at DESC, dispute_id DESC LIMIT $3`

	// Index: audit_order.
	readOrderActs = `
SELECT audit_id, at, actor, action, coalesce(order_id, ''), subject, reason
  FROM keytill.audit WHERE merchant_id = $1 AND order_id = $2 ORDER BY audit_id DESC LIMIT $3`

	// Index: findings_of_order.
	readOrderFindings = `
SELECT finding_id, kind, subject, coalesce(order_id, ''), detail, opened_at, closed_at
  FROM keytill.findings WHERE merchant_id = $1 AND order_id = $2 ORDER BY finding_id DESC LIMIT $3`
)

// LoadHistory reads what happened to an order, in one round trip.
func LoadHistory(ctx context.Context, db Reader, merchant, order string) (History, error) {
	return loadHistory(ctx, db, merchant, order, func(batch *pgx.Batch, h *History) {
		queueRows(batch, &h.Movements, pgx.RowToStructByPos[PastMovement], readOrderMovements, merchant, order)
	})
}

// LoadHistoryOf reads what happened to an order, and to the keys of the units of a part of it.
func LoadHistoryOf(ctx context.Context, db Reader, merchant string, p OrderPart) (History, error) {
	lines, first, last := make([]string, len(p.ranges)), make([]int32, len(p.ranges)), make([]int32, len(p.ranges))
	for i, r := range p.ranges {
		lines[i], first[i], last[i] = r.line, int32(r.from), int32(r.to)
	}
	return loadHistory(ctx, db, merchant, p.ID, func(batch *pgx.Batch, h *History) {
		batch.Queue(readPartMovements, merchant, p.ID, lines, first, last, maxHistory).Query(func(rows pgx.Rows) (err error) {
			h.Movements, err = pgx.AppendRows(h.Movements, rows, pgx.RowToStructByPos[PastMovement])
			return err
		})
	})
}

func loadHistory(ctx context.Context, db Reader, merchant, order string, queueMovements func(*pgx.Batch, *History)) (History, error) {
	h := History{Events: []PastEvent{}, Movements: []PastMovement{}, Deliveries: []PastDelivery{}, Refunds: []PastRefund{},
		Disputes: []PastDispute{}, Acts: []Recorded{}, Findings: []PastFinding{}}
	batch := &pgx.Batch{}
	queueMovements(batch, &h)
	queueRows(batch, &h.Events, pgx.RowToStructByPos[PastEvent], readOrderEvents, merchant, order)
	queueRows(batch, &h.Deliveries, pgx.RowToStructByPos[PastDelivery], readOrderDeliveries, merchant, order)
	queueRows(batch, &h.Refunds, pgx.RowToStructByPos[PastRefund], readOrderRefunds, merchant, order)
	queueRows(batch, &h.Disputes, pgx.RowToStructByPos[PastDispute], readOrderDisputes, merchant, order)
	queueRows(batch, &h.Acts, scanRecorded, readOrderActs, merchant, order)
	queueRows(batch, &h.Findings, func(row pgx.CollectableRow) (f PastFinding, err error) {
		err = row.Scan(&f.ID, &f.Kind, &f.Subject, &f.Order, &f.Detail, &f.OpenedAt, &f.ClosedAt)
		return f, err
	}, readOrderFindings, merchant, order)
	if err := db.SendBatch(ctx, batch).Close(); err != nil {
		return History{}, fmt.Errorf("read the history of order %s: %w", order, err)
	}
	// They are read newest first, so that it is the oldest which a bound leaves out.
	slices.Reverse(h.Movements)
	slices.Reverse(h.Events)
	slices.Reverse(h.Deliveries)
	slices.Reverse(h.Refunds)
	slices.Reverse(h.Disputes)
	slices.Reverse(h.Acts)
	slices.Reverse(h.Findings)
	return h, nil
}

func queueRows[T any](batch *pgx.Batch, into *[]T, scan pgx.RowToFunc[T], query, merchant, order string) {
	batch.Queue(query, merchant, order, maxHistory).Query(func(rows pgx.Rows) (err error) {
		*into, err = pgx.AppendRows(*into, rows, scan)
		return err
	})
}
