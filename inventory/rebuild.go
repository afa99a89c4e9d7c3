package inventory

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/internal/pg"
)

// A Difference is a count that was not that of the rows.
type Difference struct {
	State   State `json:"state"`
	Counted int64 `json:"counted"` // by the ledger, before
	Rows    int64 `json:"rows"`
}

// A Rebuilt pool has the counts of its rows.
type Rebuilt struct {
	Counts      Counts       `json:"counts"`
	Differences []Difference `json:"differences"`
	// Restored says that the horizon was another cluster's: a database that was restored where transaction ids are lower.
	Restored bool `json:"restored"`
}

const (
	// Movements of a cluster with higher transaction ids would stay above the horizon until this one's ids have come as
	// far: read by every count, and in the way of a fold. They lose their place among transactions, which is for folds
	// alone; movement_id still says what came after what. All that this snapshot sees have ended.
	// Lock: the pool's movements above the horizon. Index: movements_pkey.
	rebaseMovements = `
UPDATE keytill.movements SET xid = '1'
 WHERE merchant_id = $1 AND pool_id = $2 AND xid >= $3::xid8`

	// Index: movements_pkey.
	sumTail = `
WITH tail AS MATERIALIZED (
    SELECT from_state, to_state, keys FROM keytill.movements WHERE merchant_id = $1 AND pool_id = $2 AND xid >= $3::xid8
), ends AS (
    SELECT to_state AS state, keys FROM tail
    UNION ALL
    SELECT from_state, -keys FROM tail WHERE from_state IS NOT NULL
)
SELECT coalesce(jsonb_object_agg(state, keys), '{}') FROM (SELECT state, sum(keys) AS keys FROM ends GROUP BY state) AS sums`

	readHorizon = `
SELECT pg_snapshot_xmin(pg_current_snapshot())::text FROM keytill.stock WHERE merchant_id = $1 AND pool_id = $2`
)

// Rebuild counts a pool's rows and makes that the counts, and says what differed. Claims and imports may go on: one
// snapshot gives the rows, the oldest transaction that it saw running, and the movements from that one on that it has
// seen already. Those are taken off again, since every later count adds them.
func Rebuild(ctx context.Context, db pg.Beginner, merchant string, pool int64) (rebuilt Rebuilt, err error) {
	err = pg.InSnapshot(ctx, db, func(tx pgx.Tx) error {
		rebuilt, err = rebuild(ctx, tx, merchant, pool)
		return err
	})
	if err != nil {
		return Rebuilt{}, fmt.Errorf("rebuild the counts of pool %d: %w", pool, err)
	}
	return rebuilt, nil
}

func rebuild(ctx context.Context, tx pgx.Tx, merchant string, pool int64) (Rebuilt, error) {
	var (
		r       Rebuilt
		horizon string
		counted map[int64]Counts
	)
	// A fold that ran since the snapshot was taken makes this a serialization failure, and so a new try.
	if err := tx.QueryRow(ctx, lockStock, merchant, pool).Scan(&horizon, &r.Restored); err != nil {
		return r, fmt.Errorf("lock the counts: %w", err)
	}
	counted, err := counts(ctx, tx, countStock, merchant, onePool(pool))
	if err != nil {
		return r, err
	}
	byRows, err := StockByRows(ctx, tx, merchant, pool)
	if err != nil {
		return r, err
	}
	if err := tx.QueryRow(ctx, readHorizon, merchant, pool).Scan(&horizon); err != nil {
		return r, fmt.Errorf("read the horizon: %w", err)
	}
	if r.Restored {
		if _, err := tx.Exec(ctx, rebaseMovements, merchant, pool, horizon); err != nil {
			return r, fmt.Errorf("move the movements below the horizon: %w", err)
		}
	}
	var tail Counts
	if err := tx.QueryRow(ctx, sumTail, merchant, pool, horizon).Scan(&tail); err != nil {
		return r, fmt.Errorf("read the movements: %w", err)
	}
	r.Counts = byRows[pool]
	if r.Counts == nil {
		r.Counts = Counts{}
	}
	r.Differences = differences(counted[pool], r.Counts)
	folded := Counts{}
	for _, state := range States {
		if n := r.Counts[state] - tail[state]; n != 0 {
			folded[state] = n
		}
	}
	if _, err := tx.Exec(ctx, writeStock, merchant, pool, horizon, folded); err != nil {
		return r, fmt.Errorf("write the counts: %w", err)
	}
	return r, nil
}

func differences(counted, rows Counts) []Difference {
	found := []Difference{}
	states := slices.Clone(States)
	for state := range counted {
		if state != lostHorizon && !slices.Contains(states, state) {
			states = append(states, state)
		}
	}
	for _, state := range states {
		if counted[state] != rows[state] {
			found = append(found, Difference{State: state, Counted: counted[state], Rows: rows[state]})
		}
	}
	return found
}
