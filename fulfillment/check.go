package fulfillment

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/internal/pg"
	"github.com/keytill/keytill/inventory"
)

// Check holds keytill's promises against the database and returns a line for each breach: those of the inventory, that
// units and keys agree, and that no unit waits in a pool that has stock. A unit may wait beside new stock for the
// moment until its pool is served; grace is how old such a wait must be to count.
func Check(ctx context.Context, db pg.Querier, now time.Time, grace time.Duration) ([]string, error) {
	breaches, err := inventory.Check(ctx, db)
	if err != nil {
		return nil, err
	}
	for _, q := range []struct {
		query string
		args  []any
	}{
		{unitsAndKeysDiffer, nil},
		{waitsBesideStock, []any{now.Add(-grace)}},
		{liveKeyWithoutUnit, nil},
		{twoOrdersOnePayment, nil},
	} {
		rows, err := db.Query(ctx, q.query, q.args...)
		if err != nil {
			return nil, fmt.Errorf("check the orders: %w", err)
		}
		found, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return nil, fmt.Errorf("check the orders: %w", err)
		}
		breaches = append(breaches, found...)
	}
	return breaches, nil
}

const (
	unitsAndKeysDiffer = `
SELECT format('unit %s/%s/%s of merchant %s is %s and its key %s is %s', f.order_id, f.line_id, f.unit, f.merchant_id, f.state,
              f.key_id, coalesce(k.state, 'missing'))
  FROM keytill.fulfilments f
  LEFT JOIN keytill.keys k ON k.merchant_id = f.merchant_id AND k.key_id = f.key_id
 WHERE f.key_id IS NOT NULL
   AND (f.state, k.state) IS DISTINCT FROM ('fulfilled', 'allocated')
   AND (f.state, k.state) IS DISTINCT FROM ('suspended', 'suspended')
   AND (f.state, k.state) IS DISTINCT FROM ('revoked', 'revoked')
 LIMIT 10`

	waitsBesideStock = `
SELECT format('unit %s/%s/%s of merchant %s waits in pool %s, which has keys', f.order_id, f.line_id, f.unit, f.merchant_id,
              f.pool_id)
  FROM keytill.fulfilments f
 WHERE f.state = 'waiting' AND f.changed_at <= $1
   AND EXISTS (SELECT 1 FROM keytill.keys k
                WHERE k.merchant_id = f.merchant_id AND k.pool_id = f.pool_id AND k.state = 'available'
                  AND (k.use_by IS NULL OR k.use_by >= ($1::timestamptz AT TIME ZONE 'UTC')::date))
 LIMIT 10`

	liveKeyWithoutUnit = `
SELECT format('key %s of merchant %s is %s for %s/%s/%s, which does not have it', k.key_id, k.merchant_id, k.state, k.order_id,
              k.line_id, k.unit)
  FROM keytill.keys k
 WHERE k.state IN ('allocated', 'suspended')
   AND NOT EXISTS (SELECT 1 FROM keytill.fulfilments f
                    WHERE f.merchant_id = k.merchant_id AND f.order_id = k.order_id AND f.line_id = k.line_id
                      AND f.unit = k.unit AND f.key_id = k.key_id)
 LIMIT 10`

	twoOrdersOnePayment = `
SELECT format('orders %s and %s of merchant %s are one payment', a.order_id, b.order_id, a.merchant_id)
  FROM keytill.orders a
  JOIN keytill.orders b ON b.merchant_id = a.merchant_id AND b.order_id = a.payment_intent AND b.order_id <> a.order_id
 LIMIT 10`
)
