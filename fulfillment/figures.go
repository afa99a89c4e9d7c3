package fulfillment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/internal/pg"
	"github.com/keytill/keytill/inventory"
)

// Figures are sums that pages show and could not count while somebody waits. What the ledger tells (keys sold, a batch's
// keys by state) and the reservations that were tried is folded up to a horizon, as inventory.Fold does with stock: a page
// adds what has come since, and is exact. What waits and what carts hold has no ledger: it is counted every minute, and
// pages count for themselves as far as countedAtOnce.

const (
	// Pools of which something is not folded yet, or whose sliding sums have moved on, or whose horizon is another
	// cluster's. Index: pools_pkey, pool_figures_pkey, movements_pkey, reservation_attempts_tail.
	listUnfolded = `
SELECT p.pool_id
  FROM keytill.pools p
  LEFT JOIN keytill.pool_figures f ON f.merchant_id = p.merchant_id AND f.pool_id = p.pool_id
 WHERE p.merchant_id = $1
   AND (f.folded_at IS NULL
        OR f.horizon > pg_snapshot_xmin(pg_current_snapshot())
        OR (f.sold > 0 OR f.tried > 0) AND f.folded_at < $2
        OR EXISTS (SELECT 1 FROM keytill.movements m
                    WHERE m.merchant_id = p.merchant_id AND m.pool_id = p.pool_id AND m.xid >= f.horizon)
        OR EXISTS (SELECT 1 FROM keytill.reservation_attempts a
                    WHERE a.merchant_id = p.merchant_id AND a.pool_id = p.pool_id AND a.xid >= f.horizon))
 ORDER BY p.pool_id`

	insertFigures = `INSERT INTO keytill.pool_figures (merchant_id, pool_id) VALUES ($1, $2) ON CONFLICT (merchant_id, pool_id) DO NOTHING`

	// Lock: the pool's figures, which only folds lock.
	lockFigures = `
SELECT horizon::text, horizon > pg_snapshot_xmin(pg_current_snapshot())
  FROM keytill.pool_figures WHERE merchant_id = $1 AND pool_id = $2 FOR UPDATE`

	// How far one step goes: to the oldest transaction that still runs (see inventory.Fold), and no further than some
	// movements, so that a ledger of years is folded in steps. A transaction is folded whole, however large. It is read in a
	// SELECT over the table, so that it is that of the server which holds the pool. Index: movements_pkey.
	readFiguresHorizon = `
SELECT least(xmin, stop)::text, stop < xmin
  FROM (SELECT pg_snapshot_xmin(pg_current_snapshot()) AS xmin,
               coalesce((SELECT m.xid FROM keytill.movements m
                          WHERE m.merchant_id = f.merchant_id AND m.pool_id = f.pool_id AND m.xid > $3::xid8
                          ORDER BY m.xid, m.movement_id OFFSET $4 LIMIT 1), pg_snapshot_xmin(pg_current_snapshot())) AS stop
          FROM keytill.pool_figures f WHERE f.merchant_id = $1 AND f.pool_id = $2) AS step`

	// All that this sees have ended, and begin to count anew. Index: reservation_attempts_tail.
	rebaseAttempts = `
UPDATE keytill.reservation_attempts SET xid = '1'
 WHERE merchant_id = $1 AND pool_id = $2 AND xid >= pg_snapshot_xmin(pg_current_snapshot())`

	forgetHours = `DELETE FROM keytill.pool_hours WHERE merchant_id = $1 AND pool_id = $2 AND hour < $3`

	forgetBatchCounts = `
DELETE FROM keytill.batch_counts
 WHERE merchant_id = $1 AND batch_id IN (SELECT batch_id FROM keytill.batches WHERE merchant_id = $1 AND pool_id = $2)`

	// Index: movements_pkey.
	foldSold = `
INSERT INTO keytill.pool_hours AS h (merchant_id, pool_id, hour, sold)
SELECT merchant_id, pool_id, date_trunc('hour', at, 'UTC'), count(*)
  FROM keytill.movements
 WHERE merchant_id = $1 AND pool_id = $2 AND xid >= $3::xid8 AND xid < $4::xid8 AND at >= $5
   AND to_state = 'allocated' AND from_state IN ('available', 'reserved')
 GROUP BY 1, 2, 3
    ON CONFLICT (merchant_id, pool_id, hour) DO UPDATE SET sold = h.sold + excluded.sold`

	// Index: reservation_attempts_tail.
	foldTried = `
INSERT INTO keytill.pool_hours AS h (merchant_id, pool_id, hour, tried, sold_out)
SELECT merchant_id, pool_id, date_trunc('hour', at, 'UTC'), count(*), count(*) FILTER (WHERE result = 'sold_out')
  FROM keytill.reservation_attempts
 WHERE merchant_id = $1 AND pool_id = $2 AND xid >= $3::xid8 AND xid < $4::xid8 AND at >= $5
 GROUP BY 1, 2, 3
    ON CONFLICT (merchant_id, pool_id, hour) DO UPDATE SET tried = h.tried + excluded.tried, sold_out = h.sold_out + excluded.sold_out`

	// A key's batch never changes. Index: movements_pkey, keys_pkey.
	foldBatches = `
INSERT INTO keytill.batch_counts AS b (merchant_id, batch_id, state, keys)
SELECT merchant_id, batch_id, state, sum(keys)
  FROM (SELECT m.merchant_id, coalesce(m.batch_id, k.batch_id) AS batch_id, ends.state, ends.keys
          FROM keytill.movements m
          LEFT JOIN keytill.keys k ON k.merchant_id = m.merchant_id AND k.key_id = m.key_id
         CROSS JOIN LATERAL (VALUES (m.to_state, m.keys), (m.from_state, -m.keys)) AS ends (state, keys)
         WHERE m.merchant_id = $1 AND m.pool_id = $2 AND m.xid >= $3::xid8 AND m.xid < $4::xid8 AND ends.state IS NOT NULL) AS parts
 WHERE batch_id IS NOT NULL
 GROUP BY 1, 2, 3
HAVING sum(keys) <> 0
    ON CONFLICT (merchant_id, batch_id, state) DO UPDATE SET keys = b.keys + excluded.keys`

	// Index: pool_hours_pkey.
	writeFigures = `
UPDATE keytill.pool_figures f
   SET horizon = $3::xid8, folded_at = $4,
       sold = (SELECT coalesce(sum(h.sold), 0) FROM keytill.pool_hours h
                WHERE h.merchant_id = $1 AND h.pool_id = $2 AND h.hour > $5),
       tried = (SELECT coalesce(sum(h.tried), 0) FROM keytill.pool_hours h
                 WHERE h.merchant_id = $1 AND h.pool_id = $2 AND h.hour > $6),
       sold_out = (SELECT coalesce(sum(h.sold_out), 0) FROM keytill.pool_hours h
                    WHERE h.merchant_id = $1 AND h.pool_id = $2 AND h.hour > $6)
 WHERE f.merchant_id = $1 AND f.pool_id = $2`

	// Only what has changed is written.
	writeCounted = `
UPDATE keytill.pool_figures f
   SET counted_at = $2, waiting = n.waiting, waiting_since = n.since, held = ARRAY[n.u5, n.u15, n.u60, n.older], need = n.need
  FROM unnest($3::bigint[], $4::bigint[], $5::timestamptz[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[])
       AS n (pool_id, waiting, since, u5, u15, u60, older, need)
 WHERE f.merchant_id = $1 AND f.pool_id = n.pool_id
   AND (f.waiting, f.waiting_since, f.held, f.need) IS DISTINCT FROM (n.waiting, n.since, ARRAY[n.u5, n.u15, n.u60, n.older], n.need)`

	writeShop = `
INSERT INTO keytill.shop_figures (merchant_id, figures, counted_at) VALUES ($1, $2, $3)
ON CONFLICT (merchant_id) DO UPDATE SET figures = excluded.figures, counted_at = excluded.counted_at`

	listMerchants = `SELECT merchant_id FROM keytill.merchants ORDER BY merchant_id`
)

// FoldFigures brings the figures of every merchant up to now. It comes after inventory.FoldAll, which puts a restored
// ledger in order.
func (s *Service) FoldFigures(ctx context.Context) error {
	rows, err := s.db.Query(ctx, listMerchants)
	if err != nil {
		return fmt.Errorf("list the merchants: %w", err)
	}
	merchants, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("list the merchants: %w", err)
	}
	for _, merchant := range merchants {
		if err := s.foldMerchant(ctx, merchant); err != nil {
			return fmt.Errorf("fold the figures of %s: %w", merchant, err)
		}
	}
	return nil
}

func (s *Service) foldMerchant(ctx context.Context, merchant string) error {
	now := s.now()
	rows, err := s.db.Query(ctx, listUnfolded, merchant, now.UTC().Truncate(time.Hour))
	if err != nil {
		return err
	}
	pools, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return err
	}
	for _, pool := range pools {
		for more := true; more; {
			if more, err = foldPool(ctx, s.db, merchant, pool, now); err != nil {
				return fmt.Errorf("pool %d: %w", pool, err)
			}
		}
	}
	return countMinute(ctx, s.db, merchant, now)
}

// foldAtOnce is how many movements are folded in a transaction.
const foldAtOnce = 200_000

// foldPool moves a pool's figures a step towards the oldest running transaction, and says whether there are more. Where the
// horizon is another cluster's, they begin anew.
func foldPool(ctx context.Context, db pg.Beginner, merchant string, pool int64, now time.Time) (more bool, err error) {
	err = pg.InTx(ctx, db, func(tx pgx.Tx) error {
		var (
			from, to string
			lost     bool
		)
		if _, err := tx.Exec(ctx, insertFigures, merchant, pool); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, lockFigures, merchant, pool).Scan(&from, &lost); err != nil {
			return err
		}
		batch := &pgx.Batch{}
		keepFrom := now.Add(-soldOver - time.Hour)
		if lost {
			from, keepFrom = "0", now.Add(time.Hour)
			batch.Queue(rebaseAttempts, merchant, pool)
			batch.Queue(forgetBatchCounts, merchant, pool)
		}
		if err := tx.QueryRow(ctx, readFiguresHorizon, merchant, pool, from, foldAtOnce).Scan(&to, &more); err != nil {
			return err
		}
		batch.Queue(forgetHours, merchant, pool, keepFrom)
		batch.Queue(foldSold, merchant, pool, from, to, now.Add(-soldOver-time.Hour))
		batch.Queue(foldTried, merchant, pool, from, to, now.Add(-attemptsOver-time.Hour))
		batch.Queue(foldBatches, merchant, pool, from, to)
		batch.Queue(writeFigures, merchant, pool, to, now, now.Add(-soldOver), now.Add(-attemptsOver))
		return tx.SendBatch(ctx, batch).Close()
	})
	return more, err
}

// countMinute counts what has no ledger, and sums up the shop.
func countMinute(ctx context.Context, db Reader, merchant string, now time.Time) error {
	pools, err := inventory.Pools(ctx, db, merchant)
	if err != nil {
		return err
	}
	views, err := overviewOf(ctx, db, merchant, pools, now, exactly)
	if err != nil {
		return err
	}
	ids, waiting, since, need := make([]int64, len(views)), make([]int64, len(views)), make([]*time.Time, len(views)), make([]int64, len(views))
	var held [4][]int64
	for i, v := range views {
		ids[i], waiting[i], since[i], need[i] = pools[i].ID, v.Waiting, v.WaitingSince, v.need()
		for age, keys := range []int64{v.Held.Under5m, v.Held.Under15m, v.Held.Under1h, v.Held.Over1h} {
			held[age] = append(held[age], keys)
		}
	}
	batch := &pgx.Batch{}
	batch.Queue(writeCounted, merchant, now, ids, waiting, since, held[0], held[1], held[2], held[3], need)
	batch.Queue(writeShop, merchant, totals(views), now)
	return db.SendBatch(ctx, batch).Close()
}

// A ShopOverview is how all pools of a merchant stand together.
type ShopOverview struct {
	Pools int `json:"pools"`

	Available    int64      `json:"available"`
	Waiting      int64      `json:"waiting"`
	WaitingSince *time.Time `json:"waiting_since,omitempty"`
	SoldPerDay   float64    `json:"sold_per_day"`
	Held         HeldByAge  `json:"held"`
	Reservations int64      `json:"reservations"`
	SoldOut      float64    `json:"sold_out"` // of the reservations

	// CountedAt is set where there are too many pools to sum up at once: the sums are of this time.
	CountedAt *time.Time `json:"counted_at,omitempty"`

	// Neediest are the pools that need somebody most: where buyers wait, then where stock ends soonest.
	Neediest []PoolOverview `json:"-"`
}

// SoldOutRate is the part of the reservations that found nothing, from 0 to 1.
func (s ShopOverview) SoldOutRate() float64 {
	if s.Reservations == 0 {
		return 0
	}
	return s.SoldOut / float64(s.Reservations)
}

func totals(pools []PoolOverview) ShopOverview {
	t := ShopOverview{Pools: len(pools)}
	for _, p := range pools {
		t.Available += p.Counts[inventory.Available]
		t.Waiting += p.Waiting
		if p.WaitingSince != nil && (t.WaitingSince == nil || p.WaitingSince.Before(*t.WaitingSince)) {
			t.WaitingSince = p.WaitingSince
		}
		t.SoldPerDay += p.SoldPerDay
		t.Held.Under5m += p.Held.Under5m
		t.Held.Under15m += p.Held.Under15m
		t.Held.Under1h += p.Held.Under1h
		t.Held.Over1h += p.Held.Over1h
		t.Reservations += p.Reservations
		t.SoldOut += p.SoldOutRate * float64(p.Reservations)
	}
	return t
}

// need orders pools by who needs somebody most.
func (p PoolOverview) need() int64 {
	const empty, unsold = 1e6, 1e9 // days that a pool lasts which nobody asks for
	switch {
	case p.Waiting > 0:
		return 2e9 + p.Waiting
	case p.DaysOfCover != nil:
		return 1e9 - int64(min(*p.DaysOfCover*1000, 9e8))
	case p.Counts[inventory.Available] == 0:
		return empty
	}
	return -unsold
}

const (
	// summedAtOnce is how many pools are summed up while somebody waits.
	summedAtOnce = 200

	// Index: pools_pkey.
	countPools = `SELECT count(*) FROM (SELECT 1 FROM keytill.pools WHERE merchant_id = $1 LIMIT $2) AS part`

	readShop = `SELECT figures, counted_at FROM keytill.shop_figures WHERE merchant_id = $1`

	// Index: pool_figures_need.
	readNeediest = `
SELECT pool_id FROM keytill.pool_figures WHERE merchant_id = $1 ORDER BY need DESC, pool_id LIMIT $2`
)

// Shop sums up all pools of a merchant, and lists so many of those that need somebody most. A shop of up to summedAtOnce
// pools is summed up as it stands; of a larger one the sums are those of the last minute, and the pools listed as they stand.
func Shop(ctx context.Context, db Reader, merchant string, neediest int, now time.Time) (ShopOverview, error) {
	var pools int
	if err := db.QueryRow(ctx, countPools, merchant, summedAtOnce+1).Scan(&pools); err != nil {
		return ShopOverview{}, fmt.Errorf("count the pools: %w", err)
	}
	if pools > summedAtOnce {
		shop, err := largeShop(ctx, db, merchant, neediest, now)
		if err != nil || shop.CountedAt != nil {
			return shop, err
		}
	}
	views, err := Overview(ctx, db, merchant, "", 1<<30, now)
	if err != nil {
		return ShopOverview{}, err
	}
	shop := totals(views)
	slices.SortStableFunc(views, func(a, b PoolOverview) int { return -cmp.Compare(a.need(), b.need()) })
	shop.Neediest = views[:min(len(views), neediest)]
	return shop, nil
}

// largeShop has no CountedAt if nothing was counted yet.
func largeShop(ctx context.Context, db Reader, merchant string, neediest int, now time.Time) (shop ShopOverview, err error) {
	var at time.Time
	err = db.QueryRow(ctx, readShop, merchant).Scan(&shop, &at)
	if errors.Is(err, pgx.ErrNoRows) {
		return ShopOverview{}, nil
	}
	if err != nil {
		return shop, fmt.Errorf("read the sums of the shop: %w", err)
	}
	shop.CountedAt = &at
	rows, err := db.Query(ctx, readNeediest, merchant, neediest)
	if err != nil {
		return shop, fmt.Errorf("look for the neediest pools: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return shop, fmt.Errorf("look for the neediest pools: %w", err)
	}
	pools, err := inventory.PoolsOf(ctx, db, merchant, ids)
	if err != nil {
		return shop, err
	}
	slices.SortFunc(pools, func(a, b inventory.Pool) int { return cmp.Compare(slices.Index(ids, a.ID), slices.Index(ids, b.ID)) })
	shop.Neediest, err = overviewOf(ctx, db, merchant, pools, now, atOnce)
	return shop, err
}
