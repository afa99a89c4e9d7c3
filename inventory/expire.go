package inventory

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/internal/pg"
)

const (
	// Pools with a hold that has run out. Index: keys_reserved.
	readExpiredHolds = `
SELECT p.merchant_id, p.pool_id FROM keytill.pools p
 WHERE EXISTS (SELECT 1 FROM keytill.keys k
                WHERE k.merchant_id = p.merchant_id AND k.pool_id = p.pool_id AND k.state = 'reserved' AND k.reserved_until <= $1)
 ORDER BY p.merchant_id, p.pool_id`

	// Keys whose last day of use has passed leave the shelf. A key that a buyer holds stays until its hold runs out.
	// Lock: the picked rows, skipping those that somebody is at. Index: keys_use_by, keys_pkey.
	expireKeys = `
WITH picked AS MATERIALIZED (
    SELECT merchant_id, key_id FROM keytill.keys
     WHERE merchant_id = $1 AND use_by < $2 AND use_by IS NOT NULL AND state = 'available'
     LIMIT 10000
       FOR UPDATE SKIP LOCKED
), gone AS (
    UPDATE keytill.keys k SET state = 'expired'
      FROM picked
     WHERE k.merchant_id = picked.merchant_id AND k.key_id = picked.key_id AND k.state = 'available'
    RETURNING k.pool_id, k.key_id
), moved AS (
    INSERT INTO keytill.movements (merchant_id, pool_id, key_id, from_state, to_state, reason, actor, at)
    SELECT $1, pool_id, key_id, 'available', 'expired', 'past its last day of use', 'expiry', $3 FROM gone
)
SELECT count(*) FROM gone`
)

// A PoolRef names a pool.
type PoolRef struct {
	Merchant string
	Pool     int64
}

// PoolsWithExpiredHolds lists the pools of all merchants that have holds which have run out.
func PoolsWithExpiredHolds(ctx context.Context, db pg.Querier, now time.Time) ([]PoolRef, error) {
	rows, err := db.Query(ctx, readExpiredHolds, now)
	if err != nil {
		return nil, fmt.Errorf("look for expired holds: %w", err)
	}
	refs, err := pgx.CollectRows(rows, pgx.RowToStructByPos[PoolRef])
	if err != nil {
		return nil, fmt.Errorf("look for expired holds: %w", err)
	}
	return refs, nil
}

// ExpireKeys takes a merchant's available keys off the shelf whose last day of use has passed, in UTC, and says how many.
func ExpireKeys(ctx context.Context, db pg.Querier, merchant string, now time.Time) (expired int, err error) {
	today := now.UTC().Truncate(24 * time.Hour)
	if err := db.QueryRow(ctx, expireKeys, merchant, today, now).Scan(&expired); err != nil {
		return 0, fmt.Errorf("expire keys of %s: %w", merchant, err)
	}
	return expired, nil
}
