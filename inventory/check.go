package inventory

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/internal/pg"
)

// Check holds the inventory's promises against the database and returns a line for each breach it finds, at most
// a few of each kind:
//
//  1. no unit has two live keys (that no key is live for two units is the shape of the row);
//  2. counts by state equal the rows;
//  3. replaying a key's movements gives its state.
//
// It reads every key. Each question is one statement, so one snapshot.
func Check(ctx context.Context, db pg.Querier) ([]string, error) {
	var breaches []string
	for _, query := range []string{twoLiveKeys, lostHorizons, countsDiffer, replayDiffers} {
		rows, err := db.Query(ctx, query)
		if err != nil {
			return nil, fmt.Errorf("check the inventory: %w", err)
		}
		found, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return nil, fmt.Errorf("check the inventory: %w", err)
		}
		breaches = append(breaches, found...)
	}
	return breaches, nil
}

const (
	twoLiveKeys = `
SELECT format('unit %s/%s/%s of merchant %s has %s live keys', order_id, line_id, unit, merchant_id, count(*))
  FROM keytill.keys
 WHERE state IN ('allocated', 'suspended')
 GROUP BY merchant_id, order_id, line_id, unit
HAVING count(*) > 1
 LIMIT 10`

	lostHorizons = `
SELECT format('pool %s of merchant %s: the database was restored into a cluster whose transaction ids began anew; ''keytill stock rebuild'' counts anew, as the daemon does within a minute',
              pool_id, merchant_id)
  FROM keytill.stock
 WHERE horizon > pg_snapshot_xmin(pg_current_snapshot())
 LIMIT 10`

	countsDiffer = `
WITH by_ledger AS (
    SELECT merchant_id, pool_id, state, sum(keys)::bigint AS keys
      FROM (SELECT s.merchant_id, s.pool_id, c.key AS state, c.value::bigint AS keys
              FROM keytill.stock s, jsonb_each_text(s.counts) c
            UNION ALL
            SELECT merchant_id, pool_id, to_state, m.keys
              FROM keytill.stock s JOIN keytill.movements m USING (merchant_id, pool_id) WHERE m.xid >= s.horizon
            UNION ALL
            SELECT merchant_id, pool_id, from_state, -m.keys
              FROM keytill.stock s JOIN keytill.movements m USING (merchant_id, pool_id)
             WHERE m.xid >= s.horizon AND m.from_state IS NOT NULL) AS parts
     GROUP BY merchant_id, pool_id, state
), by_rows AS (
    SELECT merchant_id, pool_id, state, count(*) AS keys FROM keytill.keys GROUP BY merchant_id, pool_id, state
)
SELECT format('pool %s of merchant %s has %s keys %s by its counts and %s by its rows',
              pool_id, merchant_id, coalesce(l.keys, 0), state, coalesce(r.keys, 0))
  FROM by_ledger l FULL JOIN by_rows r USING (merchant_id, pool_id, state)
 WHERE coalesce(l.keys, 0) <> coalesce(r.keys, 0)
   AND NOT EXISTS (SELECT 1 FROM keytill.stock s
                    WHERE s.merchant_id = coalesce(l.merchant_id, r.merchant_id) AND s.pool_id = coalesce(l.pool_id, r.pool_id)
                      AND s.horizon > pg_snapshot_xmin(pg_current_snapshot()))
 LIMIT 10`

	// A key begins as available, by its batch's row; then each movement must begin where the one before it ended.
	replayDiffers = `
WITH steps AS (
    SELECT merchant_id, key_id, movement_id, from_state, to_state,
           lag(to_state, 1, 'available') OVER moves AS before,
           lead(movement_id) OVER moves IS NULL AS last
      FROM keytill.movements
     WHERE key_id IS NOT NULL
    WINDOW moves AS (PARTITION BY merchant_id, key_id ORDER BY movement_id)
)
SELECT format('key %s of merchant %s is %s, its movements say %s', k.key_id, k.merchant_id, k.state,
              coalesce(s.to_state, 'available'))
  FROM keytill.keys k
  LEFT JOIN steps s ON s.merchant_id = k.merchant_id AND s.key_id = k.key_id AND s.last
 WHERE k.state <> coalesce(s.to_state, 'available')
UNION ALL
SELECT format('key %s of merchant %s moved from %s while it was %s', key_id, merchant_id, from_state, before)
  FROM steps WHERE from_state <> before
 LIMIT 10`
)
