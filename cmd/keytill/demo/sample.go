package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/inventory"
)

// A Sample is one order with its history, as the database has it.
type Sample struct {
	Order   fulfillment.Order `json:"order"`
	Key     string            `json:"key"` // masked
	History []Moment          `json:"history"`
}

// A Moment is something that happened to an order, so long after the first.
type Moment struct {
	MS   int64  `json:"ms"`
	What string `json:"what"`
	Name string `json:"name"` // the event's type, the key's move, the notice's type
}

// Everything that is recorded of an order with a time: webhooks, moves of its key, what was sent.
const readHistory = `
SELECT at, what, name FROM (
    SELECT e.received_at AS at, 1 AS place, 'webhook' AS what, e.type AS name
      FROM keytill.orders o
      JOIN keytill.events e ON e.merchant_id = o.merchant_id AND e.payment IN (o.order_id, o.payment_intent, o.charge)
     WHERE o.merchant_id = $1 AND o.order_id = $2
    UNION ALL
    SELECT m.at, 2, 'key', m.to_state || ' (' || m.reason || ')'
      FROM keytill.movements m WHERE m.merchant_id = $1 AND m.order_id = $2
    UNION ALL
    SELECT d.done_at, 3, CASE d.channel WHEN 'email' THEN 'mail' ELSE d.channel END, d.type
      FROM keytill.deliveries d WHERE d.merchant_id = $1 AND d.order_id = $2 AND d.state = 'sent') AS moments
 ORDER BY at, place, name`

// readSample takes the order that was refunded: most has happened to it.
func (s *story) readSample(ctx context.Context, r *Report) (err error) {
	o, err := fulfillment.LoadOrder(ctx, s.db, inventory.DefaultMerchant, s.refunded.session)
	if err != nil {
		return err
	}
	texts, err := s.shop.Service().Keys(ctx, inventory.DefaultMerchant, o, fulfillment.UnitFulfilled, fulfillment.UnitRevoked)
	if err != nil {
		return err
	}
	r.Sample.Order = o
	if len(texts) > 0 {
		r.Sample.Key = mask(texts[0])
	}
	rows, err := s.db.Query(ctx, readHistory, inventory.DefaultMerchant, o.ID)
	if err != nil {
		return fmt.Errorf("read the history of %s: %w", o.ID, err)
	}
	var (
		first, at  time.Time
		what, name string
	)
	_, err = pgx.ForEachRow(rows, []any{&at, &what, &name}, func() error {
		if first.IsZero() {
			first = at
		}
		r.Sample.History = append(r.Sample.History, Moment{MS: at.Sub(first).Milliseconds(), What: what, Name: name})
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the history of %s: %w", o.ID, err)
	}
	return nil
}
