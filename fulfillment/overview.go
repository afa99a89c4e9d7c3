package fulfillment

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/inventory"
)

// A PoolOverview is how a pool stands, for who must restock it.
type PoolOverview struct {
	SKU    string           `json:"sku"`
	Name   string           `json:"name"`
	Counts inventory.Counts `json:"counts"` // its keys by state

	Waiting       int64      `json:"waiting"` // paid units without a key
	OldestWaiting *time.Time `json:"oldest_waiting,omitempty"`

	SoldPerDay  float64  `json:"sold_per_day"`            // keys, over the last seven days
	DaysOfCover *float64 `json:"days_of_cover,omitempty"` // how long what is available lasts at that; none where nothing is sold

	Held     HeldByAge `json:"held"`     // what carts hold, by how long
	Attempts Attempts  `json:"attempts"` // reservations of the last 24 hours
}

// HeldByAge are numbers of keys that carts hold. Old ones mean that something upstream leaks reservations.
type HeldByAge struct {
	Under5m  int64 `json:"under_5m"`
	Under15m int64 `json:"under_15m"`
	Under1h  int64 `json:"under_1h"`
	Over1h   int64 `json:"over_1h"`
}

// Attempts say how reservations ended.
type Attempts struct {
	All         int64   `json:"all"`
	SoldOut     int64   `json:"sold_out"`
	SoldOutRate float64 `json:"sold_out_rate"` // from 0 to 1
}

const (
	soldOver     = 7 * 24 * time.Hour
	attemptsOver = 24 * time.Hour
)

const (
	// Index: fulfilments_waiting.
	overviewWaiting = `
SELECT pool_id, count(*), min(coalesce(paid_at, changed_at))
  FROM keytill.fulfilments WHERE merchant_id = $1 AND state = 'waiting' GROUP BY pool_id`

	// Index: movements_at, which bounds what is read to the days that are asked for.
	overviewSold = `
SELECT pool_id, count(*)
  FROM keytill.movements
 WHERE merchant_id = $1 AND at > $2 AND to_state = 'allocated' AND from_state IN ('available', 'reserved')
 GROUP BY pool_id`

	// Index: reservations_pool.
	overviewHeld = `
SELECT pool_id,
       coalesce(sum(keys) FILTER (WHERE created_at > $2::timestamptz - interval '5 minutes'), 0),
       coalesce(sum(keys) FILTER (WHERE created_at <= $2::timestamptz - interval '5 minutes'
                                    AND created_at > $2::timestamptz - interval '15 minutes'), 0),
       coalesce(sum(keys) FILTER (WHERE created_at <= $2::timestamptz - interval '15 minutes'
                                    AND created_at > $2::timestamptz - interval '1 hour'), 0),
       coalesce(sum(keys) FILTER (WHERE created_at <= $2::timestamptz - interval '1 hour'), 0)
  FROM keytill.reservations WHERE merchant_id = $1 AND expires_at > $2 GROUP BY pool_id`

	// Index: reservation_attempts_at.
	overviewAttempts = `
SELECT pool_id, count(*), count(*) FILTER (WHERE result = 'sold_out')
  FROM keytill.reservation_attempts WHERE merchant_id = $1 AND at > $2 GROUP BY pool_id`
)

// Overview tells how each pool of a merchant stands, by SKU. Counts come from the ledger, not from the keys' rows.
func Overview(ctx context.Context, db Reader, merchant string, now time.Time) ([]PoolOverview, error) {
	pools, err := inventory.Pools(ctx, db, merchant)
	if err != nil {
		return nil, err
	}
	counts, err := inventory.Stock(ctx, db, merchant, 0)
	if err != nil {
		return nil, err
	}
	views := make([]PoolOverview, len(pools))
	byID := make(map[int64]*PoolOverview, len(pools))
	for i, p := range pools {
		views[i] = PoolOverview{SKU: p.SKU, Name: p.Name, Counts: counts[p.ID]}
		if views[i].Counts == nil {
			views[i].Counts = inventory.Counts{}
		}
		byID[p.ID] = &views[i]
	}
	sold := make(map[int64]int64)
	batch := &pgx.Batch{}
	perPool(batch, byID, func(p *PoolOverview) []any { return []any{&p.Waiting, &p.OldestWaiting} }, overviewWaiting, merchant)
	perPool(batch, byID, func(p *PoolOverview) []any {
		return []any{&p.Held.Under5m, &p.Held.Under15m, &p.Held.Under1h, &p.Held.Over1h}
	}, overviewHeld, merchant, now)
	perPool(batch, byID, func(p *PoolOverview) []any { return []any{&p.Attempts.All, &p.Attempts.SoldOut} }, overviewAttempts,
		merchant, now.Add(-attemptsOver))
	batch.Queue(overviewSold, merchant, now.Add(-soldOver)).Query(func(rows pgx.Rows) error {
		var pool, n int64
		_, err := pgx.ForEachRow(rows, []any{&pool, &n}, func() error {
			sold[pool] = n
			return nil
		})
		return err
	})
	if err := db.SendBatch(ctx, batch).Close(); err != nil {
		return nil, fmt.Errorf("read how the pools stand: %w", err)
	}
	for _, p := range pools {
		byID[p.ID].rate(sold[p.ID], now.Sub(p.CreatedAt))
	}
	return views, nil
}

// perPool queues a query whose rows begin with a pool's id.
func perPool(batch *pgx.Batch, byID map[int64]*PoolOverview, into func(*PoolOverview) []any, query string, args ...any) {
	batch.Queue(query, args...).Query(func(rows pgx.Rows) error {
		defer rows.Close()
		for rows.Next() {
			var (
				pool    int64
				scratch PoolOverview
			)
			if err := rows.Scan(append([]any{&pool}, into(&scratch)...)...); err != nil {
				return err
			}
			if p := byID[pool]; p != nil {
				if err := rows.Scan(append([]any{&pool}, into(p)...)...); err != nil {
					return err
				}
			}
		}
		return rows.Err()
	})
}

// rate works out what a number of sales means for a pool of an age.
func (p *PoolOverview) rate(sold int64, age time.Duration) {
	days := min(max(age, 24*time.Hour), soldOver).Hours() / 24
	p.SoldPerDay = float64(sold) / days
	if sold > 0 {
		cover := float64(p.Counts[inventory.Available]) / p.SoldPerDay
		p.DaysOfCover = &cover
	}
	if p.Attempts.All > 0 {
		p.Attempts.SoldOutRate = float64(p.Attempts.SoldOut) / float64(p.Attempts.All)
	}
}
