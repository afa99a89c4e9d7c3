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

// Index: movements_at, which bounds what is read to the days that are asked for.
const readSold = `
SELECT pool_id, count(*)
  FROM keytill.movements
 WHERE merchant_id = $1 AND at > $2 AND to_state = 'allocated' AND from_state IN ('available', 'reserved')
 GROUP BY pool_id`

// SoldByPool counts the keys that were sold since a time, from the ledger.
func SoldByPool(ctx context.Context, db pg.Querier, merchant string, since time.Time) (map[int64]int64, error) {
	return byPool(ctx, db, "count what was sold", func(n *int64) []any { return []any{n} }, readSold, merchant, since)
}

// Overview tells how each pool of a merchant stands, by SKU. Counts come from the ledger, not from the keys' rows.
func Overview(ctx context.Context, db pg.Querier, merchant string, now time.Time) ([]PoolOverview, error) {
	pools, err := inventory.Pools(ctx, db, merchant)
	if err != nil {
		return nil, err
	}
	counts, err := inventory.Stock(ctx, db, merchant, 0)
	if err != nil {
		return nil, err
	}
	waiting, err := WaitingByPool(ctx, db, merchant)
	if err != nil {
		return nil, err
	}
	held, err := HeldByPool(ctx, db, merchant, now)
	if err != nil {
		return nil, err
	}
	attempts, err := SoldOutByPool(ctx, db, merchant, now.Add(-attemptsOver))
	if err != nil {
		return nil, err
	}
	sold, err := SoldByPool(ctx, db, merchant, now.Add(-soldOver))
	if err != nil {
		return nil, err
	}
	views := make([]PoolOverview, len(pools))
	for i, p := range pools {
		h, a := held[p.ID], attempts[p.ID]
		views[i] = PoolOverview{SKU: p.SKU, Name: p.Name, Counts: counts[p.ID],
			Held:         HeldByAge{Under5m: h.Under5m, Under15m: h.Under15m, Under1h: h.Under1h, Over1h: h.Older},
			Reservations: a.Attempts, SoldOutRate: a.Rate()}
		if w := waiting[p.ID]; w.Units > 0 {
			views[i].Waiting, views[i].WaitingSince = w.Units, &w.Since
		}
		views[i].rate(sold[p.ID], now.Sub(p.CreatedAt))
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
