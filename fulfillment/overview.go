package fulfillment

import (
	"context"
	"time"

	"github.com/keytill/keytill/internal/pg"
	"github.com/keytill/keytill/inventory"
)

// A PoolOverview is how a pool stands, for who must restock it.
type PoolOverview struct {
	SKU    string           `json:"sku"`
	Name   string           `json:"name"`
	Counts inventory.Counts `json:"counts"` // its keys by state

	Waiting      int64      `json:"waiting"` // paid units without a key
	WaitingSince *time.Time `json:"waiting_since,omitempty"`

	// CountedAt is set where more waits, or is held, than is counted at once: those numbers are of this time.
	CountedAt *time.Time `json:"counted_at,omitempty"`

	SoldPerDay  float64  `json:"sold_per_day"`            // keys, over the last seven days
	DaysOfCover *float64 `json:"days_of_cover,omitempty"` // how long what is available lasts at that; none where nothing is sold

	Held HeldByAge `json:"held"` // keys that carts hold

	Reservations int64   `json:"reservations"`  // tried in the last 24 hours
	SoldOutRate  float64 `json:"sold_out_rate"` // the part of them that found nothing, from 0 to 1
}

// HeldByAge are numbers of keys that carts hold, by how long. Old ones mean that something upstream leaks reservations.
type HeldByAge struct {
	Under5m  int64 `json:"under_5m"`
	Under15m int64 `json:"under_15m"`
	Under1h  int64 `json:"under_1h"`
	Over1h   int64 `json:"over_1h"`
}

const (
	soldOver     = 7 * 24 * time.Hour
	attemptsOver = 24 * time.Hour
)

// countedAtOnce is how many waiting units, and how many reservations, of a pool are counted while somebody waits.
const countedAtOnce = 100

const (
	// Index: pool_figures_pkey, movements_pkey, reservation_attempts_tail.
	readFigures = `
SELECT p.pool_id, coalesce(f.sold, 0) + s.sold, coalesce(f.tried, 0) + t.tried, coalesce(f.sold_out, 0) + t.sold_out,
       f.counted_at, coalesce(f.waiting, 0), f.waiting_since, coalesce(f.held, '{0,0,0,0}')
  FROM unnest($2::bigint[]) AS p (pool_id)
  LEFT JOIN keytill.pool_figures f ON f.merchant_id = $1 AND f.pool_id = p.pool_id
 CROSS JOIN LATERAL (
       SELECT count(*) AS sold
         FROM (SELECT m.to_state, m.from_state, m.at FROM keytill.movements m
                WHERE m.merchant_id = $1 AND m.pool_id = p.pool_id AND m.xid >= coalesce(f.horizon, '0')
                ORDER BY m.xid, m.movement_id OFFSET 0) AS tail
        WHERE tail.to_state = 'allocated' AND tail.from_state IN ('available', 'reserved') AND tail.at > $3) AS s
 CROSS JOIN LATERAL (
       SELECT count(*) AS tried, count(*) FILTER (WHERE result = 'sold_out') AS sold_out
         FROM (SELECT a.result, a.at FROM keytill.reservation_attempts a
                WHERE a.merchant_id = $1 AND a.pool_id = p.pool_id AND a.xid >= coalesce(f.horizon, '0')
                ORDER BY a.xid, a.attempt_id OFFSET 0) AS tail
        WHERE tail.at > $4) AS t`

	// Index: fulfilments_waiting.
	readWaitingOf = `
SELECT p.pool_id, w.units, w.since
  FROM unnest($2::bigint[]) AS p (pool_id)
 CROSS JOIN LATERAL (
       SELECT count(*) AS units, coalesce(min(paid_at), 'epoch') AS since
         FROM (SELECT paid_at FROM keytill.fulfilments
                WHERE merchant_id = $1 AND pool_id = p.pool_id AND state = 'waiting'
                ORDER BY paid_at LIMIT $3) AS part) AS w
 WHERE w.units > 0`

	// Index: reservations_pool.
	readHeldOf = `
SELECT p.pool_id, h.reservations, h.under_5m, h.under_15m, h.under_1h, h.older
  FROM unnest($2::bigint[]) AS p (pool_id)
 CROSS JOIN LATERAL (
       SELECT count(*) AS reservations,
              coalesce(sum(keys) FILTER (WHERE created_at > $3::timestamptz - interval '5 minutes'), 0)::bigint AS under_5m,
              coalesce(sum(keys) FILTER (WHERE created_at <= $3::timestamptz - interval '5 minutes' AND created_at > $3::timestamptz - interval '15 minutes'), 0)::bigint AS under_15m,
              coalesce(sum(keys) FILTER (WHERE created_at <= $3::timestamptz - interval '15 minutes' AND created_at > $3::timestamptz - interval '1 hour'), 0)::bigint AS under_1h,
              coalesce(sum(keys) FILTER (WHERE created_at <= $3::timestamptz - interval '1 hour'), 0)::bigint AS older
         FROM (SELECT keys, created_at FROM keytill.reservations
                WHERE merchant_id = $1 AND pool_id = p.pool_id AND expires_at > $3::timestamptz
                ORDER BY expires_at LIMIT $4) AS part) AS h
 WHERE h.reservations > 0`
)

// Overview tells how a page of a merchant's pools stand, by SKU, after one (empty: from the beginning). It reads what it
// returns and no more, however much the pools hold: counts come from the ledger and the figures.
func Overview(ctx context.Context, db pg.Querier, merchant, after string, most int, now time.Time) ([]PoolOverview, error) {
	pools, err := inventory.PoolsAfter(ctx, db, merchant, after, most)
	if err != nil {
		return nil, err
	}
	return overviewOf(ctx, db, merchant, pools, now, atOnce)
}

// OverviewOf tells how one pool stands.
func OverviewOf(ctx context.Context, db pg.Querier, pool inventory.Pool, now time.Time) (PoolOverview, error) {
	views, err := overviewOf(ctx, db, pool.Merchant, []inventory.Pool{pool}, now, atOnce)
	if err != nil {
		return PoolOverview{}, err
	}
	return views[0], nil
}

// How much of what waits and what carts hold is counted: as much as one can wait for, or all of it.
const (
	atOnce  = countedAtOnce + 1
	exactly = 1 << 40
)

// poolFigures are what is known of a pool beside its stock.
type poolFigures struct {
	sold, tried, soldOut int64
	countedAt            *time.Time
	waiting              int64
	waitingSince         *time.Time
	held                 []int64
}

// someHeld are a pool's reservations, as far as they were counted.
type someHeld struct {
	reservations int64
	HeldByAge
}

func overviewOf(ctx context.Context, db pg.Querier, merchant string, pools []inventory.Pool, now time.Time, most int64) ([]PoolOverview, error) {
	ids := make([]int64, len(pools))
	for i, p := range pools {
		ids[i] = p.ID
	}
	counts, err := inventory.StockOf(ctx, db, merchant, ids)
	if err != nil {
		return nil, err
	}
	figures, err := byPool(ctx, db, "read the figures", func(f *poolFigures) []any {
		return []any{&f.sold, &f.tried, &f.soldOut, &f.countedAt, &f.waiting, &f.waitingSince, &f.held}
	}, readFigures, merchant, ids, now.Add(-soldOver), now.Add(-attemptsOver))
	if err != nil {
		return nil, err
	}
	waiting, err := byPool(ctx, db, "count what waits", func(w *Waiting) []any { return []any{&w.Units, &w.Since} }, readWaitingOf, merchant, ids, most)
	if err != nil {
		return nil, err
	}
	held, err := byPool(ctx, db, "count what is held", func(h *someHeld) []any {
		return []any{&h.reservations, &h.Under5m, &h.Under15m, &h.Under1h, &h.Over1h}
	}, readHeldOf, merchant, ids, now, most)
	if err != nil {
		return nil, err
	}
	views := make([]PoolOverview, len(pools))
	for i, p := range pools {
		f, w, h := figures[p.ID], waiting[p.ID], held[p.ID]
		if (w.Units == most || h.reservations == most) && f.countedAt == nil {
			// A pool that no minute has passed over yet.
			exact, err := overviewOf(ctx, db, merchant, pools[i:i+1], now, exactly)
			if err != nil {
				return nil, err
			}
			views[i] = exact[0]
			continue
		}
		v := PoolOverview{SKU: p.SKU, Name: p.Name, Counts: counts[p.ID], Held: h.HeldByAge, Reservations: f.tried,
			SoldOutRate: SoldOut{Attempts: f.tried, SoldOut: f.soldOut}.Rate()}
		if w.Units > 0 {
			v.Waiting, v.WaitingSince = w.Units, &w.Since
		}
		if w.Units == most {
			v.Waiting, v.CountedAt = max(w.Units, f.waiting), f.countedAt
		}
		if h.reservations == most && len(f.held) == 4 {
			v.Held, v.CountedAt = HeldByAge{f.held[0], f.held[1], f.held[2], f.held[3]}, f.countedAt
		}
		v.rate(f.sold, now.Sub(p.CreatedAt))
		views[i] = v
	}
	return views, nil
}

// rate works out what a number of sales means for a pool of an age.
func (p *PoolOverview) rate(sold int64, age time.Duration) {
	if p.Counts == nil {
		p.Counts = inventory.Counts{}
	}
	days := min(max(age, 24*time.Hour), soldOver).Hours() / 24
	p.SoldPerDay = float64(sold) / days
	if sold > 0 {
		cover := float64(p.Counts[inventory.Available]) / p.SoldPerDay
		p.DaysOfCover = &cover
	}
}
