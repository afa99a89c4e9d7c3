package inventory

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/internal/pg"
)

// A Hold asks for keys of one pool to be held for a reference until a time.
type Hold struct {
	Merchant string
	Pool     int64
	Ref      string
	Keys     int
	Until    time.Time
	Change   Change
}

const (
	// The claim's twin: the same shelf, the same order, held for a reference in place of a unit.
	// Lock: the picked rows, FOR UPDATE. Index: keys_available, then keys_pkey.
	holdKeys = `
WITH picked AS MATERIALIZED (
    SELECT key_id, state
      FROM keytill.keys
     WHERE merchant_id = $1 AND pool_id = $2 AND state = 'available' AND (use_by IS NULL OR use_by >= ($7::timestamptz AT TIME ZONE 'UTC')::date)
     ORDER BY position
     LIMIT %d
       FOR UPDATE %s
), held AS (
    UPDATE keytill.keys k
       SET state = 'reserved', reserved_for = $3, reserved_until = $4
     WHERE k.merchant_id = $1 AND k.key_id = ANY ((SELECT array_agg(key_id) FROM picked)::bigint[])
       AND k.state = (SELECT min(state) FROM picked)
    RETURNING k.key_id
), moved AS (
    INSERT INTO keytill.movements (merchant_id, pool_id, key_id, from_state, to_state, reason, actor, at)
    SELECT $1, $2, key_id, 'available', 'reserved', $5, $6, $7 FROM held
)
SELECT count(*) FROM held`

	// Keys held for a reference, by pool. Index: keys_reserved_for.
	readHeld = `
SELECT pool_id, count(*)::int FROM keytill.keys
 WHERE merchant_id = $1 AND reserved_for = ANY ($2) AND state = 'reserved'
 GROUP BY pool_id`

	extendHeld = `
UPDATE keytill.keys SET reserved_until = $3 WHERE merchant_id = $1 AND reserved_for = $2 AND state = 'reserved'`

	// Held keys go to the units of the payment they were held for, whether their time is up or not.
	// Lock: the picked rows. Index: keys_reserved_for, then keys_pkey.
	claimHeld = `
WITH picked AS MATERIALIZED (
    SELECT key_id, position
      FROM keytill.keys
     WHERE merchant_id = $1 AND reserved_for = ANY ($3) AND state = 'reserved' AND pool_id = $2
     ORDER BY position
     LIMIT $4
       FOR UPDATE
), ordered AS (
    SELECT array_agg(key_id ORDER BY position) AS ids FROM picked
), taken AS (
    UPDATE keytill.keys k
       SET state = 'allocated', order_id = u.order_id, line_id = u.line_id, unit = u.unit, reserved_for = NULL, reserved_until = NULL
      FROM ordered, unnest($5::text[], $6::text[], $7::int[]) WITH ORDINALITY AS u (order_id, line_id, unit, n)
     WHERE k.merchant_id = $1 AND k.key_id = ordered.ids[u.n] AND k.state = 'reserved'
    RETURNING k.key_id, k.position, k.order_id, k.line_id, k.unit
), moved AS (
    INSERT INTO keytill.movements
           (merchant_id, pool_id, key_id, from_state, to_state, order_id, line_id, unit, reason, actor, event_id, at)
    SELECT $1, $2, key_id, 'reserved', 'allocated', order_id, line_id, unit, $8, $9, nullif($10, ''), $11 FROM taken
)
SELECT key_id, position, order_id, line_id, unit FROM taken`

	// Lock: the picked rows. Index: keys_reserved_for.
	releaseHeld = `
WITH picked AS MATERIALIZED (
    SELECT key_id FROM keytill.keys
     WHERE merchant_id = $1 AND reserved_for = ANY ($2) AND state = 'reserved' AND ($3::bigint IS NULL OR pool_id = $3)
     ORDER BY position DESC
     LIMIT $4
       FOR UPDATE
)` + freePicked

	// Lock: the picked rows, skipping those that somebody is at unless the caller is patient. Index: keys_reserved.
	releaseExpired = `
WITH picked AS MATERIALIZED (
    SELECT key_id FROM keytill.keys
     WHERE merchant_id = $1 AND pool_id = $2 AND state = 'reserved' AND reserved_until <= $3
     ORDER BY reserved_until
     LIMIT $4
       FOR UPDATE %s
)` + freePicked

	freePicked = `, freed AS (
    UPDATE keytill.keys k SET state = 'available', reserved_for = NULL, reserved_until = NULL
      FROM picked
     WHERE k.merchant_id = $1 AND k.key_id = picked.key_id AND k.state = 'reserved'
    RETURNING k.key_id, k.pool_id
), moved AS (
    INSERT INTO keytill.movements (merchant_id, pool_id, key_id, from_state, to_state, reason, actor, at)
    SELECT $1, pool_id, key_id, 'reserved', 'available', $5, $6, $7 FROM freed
)
SELECT pool_id, count(*)::int FROM freed GROUP BY pool_id`
)

// Hold holds keys and says how many it got. Fewer than asked means that the shelf is empty.
func (c *Claimer) Hold(ctx context.Context, tx pgx.Tx, h Hold, patient bool) (held int, err error) {
	for held < h.Keys {
		locked := skipLocked
		if patient {
			locked = waitForLocked
		}
		var got int
		err := tx.QueryRow(ctx, fmt.Sprintf(holdKeys, h.Keys-held, locked), h.Merchant, h.Pool, h.Ref, h.Until, h.Change.Reason,
			h.Change.Actor, h.Change.At).Scan(&got)
		if err != nil {
			return held, fmt.Errorf("hold %d keys of pool %d: %w", h.Keys-held, h.Pool, err)
		}
		if held += got; got > 0 {
			continue
		}
		if freed, err := freeExpired(ctx, tx, h.Merchant, h.Pool, h.Keys-held, h.Change.At, locked); err != nil {
			return held, err
		} else if freed > 0 {
			continue
		}
		left, err := Any(ctx, tx, h.Merchant, h.Pool, h.Change.At)
		if err != nil || !left {
			return held, err
		}
		if !patient {
			return held, fmt.Errorf("pool %d: %w", h.Pool, ErrContended)
		}
	}
	return held, nil
}

// QueueHeld asks how many keys are held for any of the references, by pool.
func QueueHeld(batch *pgx.Batch, merchant string, refs []string) *pgx.QueuedQuery {
	return batch.Queue(readHeld, merchant, refs)
}

// CollectHeld reads the answer to QueueHeld's question.
func CollectHeld(rows pgx.Rows) (map[int64]int, error) {
	held := make(map[int64]int)
	var (
		pool int64
		keys int
	)
	_, err := pgx.ForEachRow(rows, []any{&pool, &keys}, func() error {
		held[pool] = keys
		return nil
	})
	return held, err
}

// Held says how many keys are held for a reference, by pool.
func Held(ctx context.Context, db pg.Querier, merchant, ref string) (map[int64]int, error) {
	rows, err := db.Query(ctx, readHeld, merchant, []string{ref})
	if err != nil {
		return nil, fmt.Errorf("read what is held for %s: %w", ref, err)
	}
	return CollectHeld(rows)
}

// ExtendHeld moves the end of a reference's holds.
func ExtendHeld(ctx context.Context, tx pgx.Tx, merchant, ref string, until time.Time) error {
	if _, err := tx.Exec(ctx, extendHeld, merchant, ref, until); err != nil {
		return fmt.Errorf("extend what is held for %s: %w", ref, err)
	}
	return nil
}

// ClaimHeld allocates the keys that are held for any of the references, the first to the first units.
func ClaimHeld(ctx context.Context, tx pgx.Tx, req Request, refs []string) ([]Claimed, error) {
	orders, lines, numbers := unitColumns(req.Units)
	rows, err := tx.Query(ctx, claimHeld, req.Merchant, req.Pool, refs, len(req.Units), orders, lines, numbers,
		req.Change.Reason, req.Change.Actor, req.Change.Event, req.Change.At)
	if err != nil {
		return nil, fmt.Errorf("claim what is held of pool %d: %w", req.Pool, err)
	}
	got, err := collectClaimed(rows)
	if err != nil {
		return nil, fmt.Errorf("claim what is held of pool %d: %w", req.Pool, err)
	}
	claimed := make([]Claimed, len(got))
	for i, g := range got {
		claimed[i] = g.Claimed
	}
	return claimed, nil
}

// ReleaseHeld puts keys that are held for any of the references back on the shelf, those of one pool or of all (pool 0),
// and says how many of which pool.
func ReleaseHeld(ctx context.Context, tx pgx.Tx, merchant string, refs []string, pool int64, most int, change Change) (map[int64]int, error) {
	var only *int64
	if pool != 0 {
		only = &pool
	}
	rows, err := tx.Query(ctx, releaseHeld, merchant, refs, only, most, change.Reason, change.Actor, change.At)
	if err != nil {
		return nil, fmt.Errorf("release what is held for %v: %w", refs, err)
	}
	freed, err := CollectHeld(rows)
	if err != nil {
		return nil, fmt.Errorf("release what is held for %v: %w", refs, err)
	}
	return freed, nil
}

// ReleaseExpired puts keys whose hold has run out back on the shelf. A claim calls it itself when the shelf is empty, so
// that nobody waits for the sweeper.
func ReleaseExpired(ctx context.Context, tx pgx.Tx, merchant string, pool int64, most int, now time.Time) (int, error) {
	return freeExpired(ctx, tx, merchant, pool, most, now, skipLocked)
}

func freeExpired(ctx context.Context, tx pgx.Tx, merchant string, pool int64, most int, now time.Time, locked string) (int, error) {
	rows, err := tx.Query(ctx, fmt.Sprintf(releaseExpired, locked), merchant, pool, now, most, "hold ran out", "expiry", now)
	if err != nil {
		return 0, fmt.Errorf("release the expired holds of pool %d: %w", pool, err)
	}
	freed, err := CollectHeld(rows)
	if err != nil {
		return 0, fmt.Errorf("release the expired holds of pool %d: %w", pool, err)
	}
	return freed[pool], nil
}
