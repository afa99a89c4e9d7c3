package inventory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/internal/pg"
)

// Counts are numbers of keys by state. A state without keys may be missing.
type Counts map[State]int64

// PoolCounts are the counts of one pool.
type PoolCounts struct {
	PoolID int64
	SKU    string
	Counts Counts
}

// Stock counts by the ledger: what is folded up to the horizon and the movements from it on, in one statement, so that
// it is exact in its snapshot whatever runs beside it. A pool with a row of no state has a horizon of another cluster's
// (see Rebuild), and its counts mean nothing.
//
// The ledger's tail is read in a subquery of its own, by its index: joined plainly, a planner that cannot know how short
// the tail is reads the whole ledger. Index: stock_pkey, movements_pkey.
const countStock = `
WITH s AS MATERIALIZED (
    SELECT merchant_id, pool_id, horizon, counts FROM keytill.stock WHERE merchant_id = $1 AND ($2::bigint IS NULL OR pool_id = $2)
)` + sumStock

// The same of some pools, and of no others is anything read.
const countStockOf = `
WITH s AS MATERIALIZED (
    SELECT merchant_id, pool_id, horizon, counts FROM keytill.stock WHERE merchant_id = $1 AND pool_id = ANY ($2::bigint[])
)` + sumStock

const sumStock = `
SELECT pool_id, state, sum(keys)::bigint
  FROM (SELECT s.pool_id, c.key AS state, c.value::bigint AS keys
          FROM s, jsonb_each_text(s.counts) c
        UNION ALL
        SELECT s.pool_id, ends.state, ends.keys
          FROM s
         CROSS JOIN LATERAL (SELECT m.from_state, m.to_state, m.keys FROM keytill.movements m
                              WHERE m.merchant_id = s.merchant_id AND m.pool_id = s.pool_id AND m.xid >= s.horizon
                              ORDER BY m.xid, m.movement_id OFFSET 0) AS tail
         CROSS JOIN LATERAL (VALUES (tail.to_state, tail.keys), (tail.from_state, -tail.keys)) AS ends (state, keys)
         WHERE ends.state IS NOT NULL
        UNION ALL
        SELECT s.pool_id, '', 1
          FROM s
         WHERE s.horizon > pg_snapshot_xmin(pg_current_snapshot())
       ) AS parts
 GROUP BY pool_id, state`

// Index: all rows of the pool.
const countRows = `
SELECT pool_id, state, count(*)
  FROM keytill.keys
 WHERE merchant_id = $1 AND ($2::bigint IS NULL OR pool_id = $2)
 GROUP BY pool_id, state`

// Stock counts a merchant's keys by pool and state, or one pool's (pool 0: all), from the ledger.
func Stock(ctx context.Context, db pg.Querier, merchant string, pool int64) (map[int64]Counts, error) {
	byPool, err := counts(ctx, db, countStock, merchant, onePool(pool))
	if err != nil {
		return nil, err
	}
	return byPool, recountLost(ctx, db, merchant, byPool)
}

// StockOf counts the keys of some pools like Stock, and reads nothing of the others.
func StockOf(ctx context.Context, db pg.Querier, merchant string, pools []int64) (map[int64]Counts, error) {
	byPool, err := counts(ctx, db, countStockOf, merchant, pools)
	if err != nil {
		return nil, err
	}
	return byPool, recountLost(ctx, db, merchant, byPool)
}

// recountLost counts the rows of pools whose ledger cannot be counted now.
func recountLost(ctx context.Context, db pg.Querier, merchant string, byPool map[int64]Counts) error {
	for id, c := range byPool {
		if c[lostHorizon] == 0 {
			continue
		}
		rows, err := StockByRows(ctx, db, merchant, id)
		if err != nil {
			return err
		}
		byPool[id] = rows[id]
	}
	return nil
}

// onePool is null for pool 0: all of them.
func onePool(pool int64) *int64 {
	if pool == 0 {
		return nil
	}
	return &pool
}

// lostHorizon stands in place of a state where the ledger's horizon is another cluster's.
const lostHorizon = ""

// StockByRows counts the same by looking at every key. It is what the ledger is checked against.
func StockByRows(ctx context.Context, db pg.Querier, merchant string, pool int64) (map[int64]Counts, error) {
	return counts(ctx, db, countRows, merchant, onePool(pool))
}

func counts(ctx context.Context, db pg.Querier, query, merchant string, pools any) (map[int64]Counts, error) {
	rows, err := db.Query(ctx, query, merchant, pools)
	if err != nil {
		return nil, fmt.Errorf("count the keys: %w", err)
	}
	defer rows.Close()
	byPool := make(map[int64]Counts)
	for rows.Next() {
		var (
			poolID int64
			state  State
			keys   int64
		)
		if err := rows.Scan(&poolID, &state, &keys); err != nil {
			return nil, fmt.Errorf("count the keys: %w", err)
		}
		if keys == 0 {
			continue
		}
		if byPool[poolID] == nil {
			byPool[poolID] = make(Counts)
		}
		byPool[poolID][state] = keys
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("count the keys: %w", err)
	}
	return byPool, nil
}

const (
	// Lock: the pool's stock row, which only folds and rebuilds lock.
	lockStock = `
SELECT horizon, horizon > pg_snapshot_xmin(pg_current_snapshot())
  FROM keytill.stock WHERE merchant_id = $1 AND pool_id = $2 FOR UPDATE`

	// The horizon is the oldest transaction that still runs: all before it have ended, so nothing can appear below it.
	// It is read in a SELECT over the ledger, so that it is that of the server which holds the ledger.
	readTail = `
SELECT pg_snapshot_xmin(pg_current_snapshot())::text,
       coalesce((SELECT jsonb_object_agg(state, keys)
                   FROM (SELECT state, sum(keys) AS keys
                           FROM (SELECT to_state AS state, keys FROM tail
                                 UNION ALL
                                 SELECT from_state, -keys FROM tail WHERE from_state IS NOT NULL) AS ends
                          GROUP BY state) AS sums), '{}')
  FROM (SELECT 1) AS one`

	foldTail = `
WITH tail AS MATERIALIZED (
    SELECT from_state, to_state, keys
      FROM keytill.movements
     WHERE merchant_id = $1 AND pool_id = $2 AND xid >= $3::xid8 AND xid < pg_snapshot_xmin(pg_current_snapshot())
)` + readTail

	writeStock = `UPDATE keytill.stock SET horizon = $3::xid8, counts = $4 WHERE merchant_id = $1 AND pool_id = $2`
)

// Fold moves the pool's counts up to the oldest running transaction, so that Stock has a short tail to read. Counts whose
// horizon is another cluster's are rebuilt.
func Fold(ctx context.Context, db pg.Beginner, merchant string, pool int64) error {
	err := foldOnce(ctx, db, merchant, pool)
	if errors.Is(err, errLostHorizon) {
		_, err = Rebuild(ctx, db, merchant, pool)
	}
	return err
}

var errLostHorizon = errors.New("the counts' horizon is another cluster's")

func foldOnce(ctx context.Context, db pg.Beginner, merchant string, pool int64) error {
	return pg.InTx(ctx, db, func(tx pgx.Tx) error {
		var from, to string
		var lost bool
		if err := tx.QueryRow(ctx, lockStock, merchant, pool).Scan(&from, &lost); err != nil {
			return fmt.Errorf("lock the counts of pool %d: %w", pool, err)
		}
		if lost {
			return errLostHorizon
		}
		var folded, tail Counts
		if err := tx.QueryRow(ctx, readCounts, merchant, pool).Scan(&folded); err != nil {
			return fmt.Errorf("read the counts of pool %d: %w", pool, err)
		}
		if err := tx.QueryRow(ctx, foldTail, merchant, pool, from).Scan(&to, &tail); err != nil {
			return fmt.Errorf("read the movements of pool %d: %w", pool, err)
		}
		for state, keys := range tail {
			folded[state] += keys
		}
		if _, err := tx.Exec(ctx, writeStock, merchant, pool, to, folded); err != nil {
			return fmt.Errorf("write the counts of pool %d: %w", pool, err)
		}
		return nil
	})
}

const readCounts = `SELECT counts FROM keytill.stock WHERE merchant_id = $1 AND pool_id = $2`

// FoldAll folds every pool of every merchant.
func FoldAll(ctx context.Context, db interface {
	pg.Beginner
	pg.Querier
}) error {
	rows, err := db.Query(ctx, `SELECT merchant_id, pool_id FROM keytill.stock ORDER BY merchant_id, pool_id`)
	if err != nil {
		return fmt.Errorf("list the pools: %w", err)
	}
	refs, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (ref poolRef, err error) {
		err = row.Scan(&ref.merchant, &ref.pool)
		return ref, err
	})
	if err != nil {
		return fmt.Errorf("list the pools: %w", err)
	}
	for _, ref := range refs {
		if err := Fold(ctx, db, ref.merchant, ref.pool); err != nil {
			return err
		}
	}
	return nil
}

// FoldEvery is how often a daemon folds.
const FoldEvery = time.Minute
