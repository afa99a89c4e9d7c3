package reconcile

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// What keytill has about the objects of one page, in one statement. An order is found by its own id, its PaymentIntent or
// its charge, whatever the object says of itself. Index: orders_pkey, orders_payment_intent, orders_charge,
// fulfilments_pkey, refunds_pkey, disputes_pkey, findings_open, events_pkey, sweep_looked_pkey.
const readStored = `
SELECT coalesce(o.order_id, ''), coalesce(o.payment, ''), coalesce(o.amount_captured, 0),
       o.order_id IS NOT NULL AND EXISTS (
           SELECT 1 FROM keytill.fulfilments u
            WHERE u.merchant_id = $1 AND u.order_id = o.order_id AND u.state = 'fulfilled'),
       coalesce(r.status, d.status, ''), coalesce(r.amount, d.amount, 0), f.finding_id IS NOT NULL, coalesce(e.state, ''),
       l.digest
  FROM unnest($2::text[], $3::text[], $4::text[], $5::text[]) WITH ORDINALITY AS n (id, name, intent, charge, place)
  LEFT JOIN LATERAL (
      SELECT found.* FROM (
          SELECT order_id, payment, amount_captured FROM keytill.orders WHERE merchant_id = $1 AND order_id = n.name
          UNION ALL
          SELECT order_id, payment, amount_captured FROM keytill.orders WHERE merchant_id = $1 AND payment_intent = n.intent
          UNION ALL
          SELECT order_id, payment, amount_captured FROM keytill.orders WHERE merchant_id = $1 AND charge = n.charge
      ) AS found LIMIT 1
  ) AS o ON true
  LEFT JOIN keytill.refunds r ON r.merchant_id = $1 AND r.refund_id = n.id
  LEFT JOIN keytill.disputes d ON d.merchant_id = $1 AND d.dispute_id = n.id
  LEFT JOIN keytill.findings f ON f.merchant_id = $1 AND f.kind = 'fraud_warning' AND f.subject = n.id AND f.closed_at IS NULL
  LEFT JOIN keytill.events e ON e.merchant_id = $1 AND e.event_id = n.id
  LEFT JOIN keytill.sweep_looked l ON l.merchant_id = $1 AND l.object_id = n.id
 ORDER BY n.place`

// readStored reads what keytill has about the objects, in their order.
func (s *Sweeper) readStored(ctx context.Context, merchant string, objects []Object) ([]stored, error) {
	var ids, names, intents, charges []string
	for _, o := range objects {
		ids, names = append(ids, o.ID), append(names, o.session())
		intents, charges = append(intents, o.Intent), append(charges, o.Charge)
	}
	rows, err := s.db.Query(ctx, readStored, merchant, ids, names, intents, charges)
	if err != nil {
		return nil, fmt.Errorf("read what is known of %d objects: %w", len(objects), err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[stored])
	if err != nil {
		return nil, fmt.Errorf("read what is known of %d objects: %w", len(objects), err)
	}
	if len(found) != len(objects) {
		return nil, fmt.Errorf("%d rows for %d objects", len(found), len(objects))
	}
	return found, nil
}

// session is the Checkout Session that the object is, or is about; else its PaymentIntent, for which an order can be named
// as well.
func (o Object) session() string {
	switch {
	case strings.HasPrefix(o.ID, "cs_"):
		return o.ID
	case o.Event != nil && strings.HasPrefix(o.Event.Object, "cs_"):
		return o.Event.Object
	}
	return o.Intent
}
