package fulfillment

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/internal/pg"
)

// The numbers of a shelf, by pool. Keys by state are inventory.Stock.

// Waiting are a pool's units that are paid and have no key.
type Waiting struct {
	Units int64     `json:"units"`
	Since time.Time `json:"since"` // the oldest payment among them
}

// HeldAge is what carts hold of a pool, by how long ago each began to.
type HeldAge struct {
	Keys        int64     `json:"keys"`
	Ahead       int64     `json:"ahead"` // sold ahead of stock
	Under5m     int64     `json:"under_5m"`
	Under15m    int64     `json:"under_15m"`
	Under1h     int64     `json:"under_1h"`
	Older       int64     `json:"older"`
	OldestSince time.Time `json:"oldest_since"`
}

// SoldOut is how many reservations of a pool found nothing.
type SoldOut struct {
	Attempts int64 `json:"attempts"`
	SoldOut  int64 `json:"sold_out"`
}

// Rate is the part of the attempts that found nothing, from 0 to 1.
func (s SoldOut) Rate() float64 {
	if s.Attempts == 0 {
		return 0
	}
	return float64(s.SoldOut) / float64(s.Attempts)
}

const (
	// Index: fulfilments_waiting.
	readWaiting = `
SELECT pool_id, count(*), coalesce(min(paid_at), 'epoch')
  FROM keytill.fulfilments
 WHERE merchant_id = $1 AND state = 'waiting'
 GROUP BY pool_id`

	// Keys and what is sold ahead, of holds that have not run out. Index: reservations_pkey.
	readHeldAges = `
SELECT pool_id, sum(keys)::bigint, sum(ahead)::bigint,
       coalesce(sum(keys) FILTER (WHERE created_at > $2::timestamptz - interval '5 minutes'), 0)::bigint,
       coalesce(sum(keys) FILTER (WHERE created_at > $2::timestamptz - interval '15 minutes' AND created_at <= $2::timestamptz - interval '5 minutes'), 0)::bigint,
       coalesce(sum(keys) FILTER (WHERE created_at > $2::timestamptz - interval '1 hour' AND created_at <= $2::timestamptz - interval '15 minutes'), 0)::bigint,
       coalesce(sum(keys) FILTER (WHERE created_at <= $2::timestamptz - interval '1 hour'), 0)::bigint,
       min(created_at)
  FROM keytill.reservations
 WHERE merchant_id = $1 AND expires_at > $2::timestamptz
 GROUP BY pool_id`

	// Index: reservation_attempts_at.
	readSoldOut = `
SELECT pool_id, count(*), count(*) FILTER (WHERE result = 'sold_out')
  FROM keytill.reservation_attempts
 WHERE merchant_id = $1 AND at >= $2
 GROUP BY pool_id`
)

// WaitingByPool says what waits for stock in a merchant's pools.
func WaitingByPool(ctx context.Context, db pg.Querier, merchant string) (map[int64]Waiting, error) {
	return byPool(ctx, db, "count what waits", func(w *Waiting) []any { return []any{&w.Units, &w.Since} }, readWaiting, merchant)
}

// HeldByPool says what carts hold of a merchant's pools at a time.
func HeldByPool(ctx context.Context, db pg.Querier, merchant string, now time.Time) (map[int64]HeldAge, error) {
	return byPool(ctx, db, "count what is held", func(h *HeldAge) []any {
		return []any{&h.Keys, &h.Ahead, &h.Under5m, &h.Under15m, &h.Under1h, &h.Older, &h.OldestSince}
	}, readHeldAges, merchant, now)
}

// SoldOutByPool says how many reservations since a time found nothing. Results are kept for a month.
func SoldOutByPool(ctx context.Context, db pg.Querier, merchant string, since time.Time) (map[int64]SoldOut, error) {
	return byPool(ctx, db, "count the reservations", func(s *SoldOut) []any { return []any{&s.Attempts, &s.SoldOut} }, readSoldOut, merchant, since)
}

func byPool[T any](ctx context.Context, db pg.Querier, what string, columns func(*T) []any, query string, args ...any) (map[int64]T, error) {
	rows, err := db.Query(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	found := make(map[int64]T)
	var (
		pool  int64
		value T
	)
	_, err = pgx.ForEachRow(rows, append([]any{&pool}, columns(&value)...), func() error {
		found[pool] = value
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return found, nil
}
