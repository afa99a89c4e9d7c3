package integration_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keytill/keytill/internal/pg"
	"github.com/keytill/keytill/inventory"
)

// BenchmarkHeldSnapshot claims 200,000 keys of one pool, each in a transaction of its own, while another transaction holds a
// snapshot from before, as a backup or a report does for hours: no row that was updated since can be cleared away. Beside it,
// turn by turn for as long, the usual way takes its keys under the same snapshot. It reports what came of each one's rate:
// the median of the last fifth of its turns against that of the first.
func BenchmarkHeldSnapshot(b *testing.B) {
	const turns = 20
	ctx := b.Context()
	db := benchDatabase(b)
	service := benchService(b, db)
	claims := quick(40_000, 200_000)
	pool := fillShelf(b, db, service, "hot", claims+claims/4, 0)
	makeTextbook(b, db, 400_000)
	claimer := inventory.NewClaimer()
	contenders := []struct {
		name string
		one  func(n int64) error
	}{
		{"claims", func(n int64) error { return claimOne(ctx, db, claimer, pool, n) }},
		{"textbook", func(n int64) error { return textbookOne(ctx, db, n) }},
	}
	var next atomic.Int64
	for _, c := range contenders {
		runFor(b, benchWorkers, time.Second, &next, c.one) // connections, plans, caches
	}
	release := holdSnapshot(b, db)
	defer release()
	rates := make(map[string][]float64)
	for range turns {
		begin := time.Now()
		rates["claims"] = append(rates["claims"], runCount(b, claims/turns, &next, contenders[0].one))
		rates["textbook"] = append(rates["textbook"], runFor(b, benchWorkers, time.Since(begin), &next, contenders[1].one))
	}
	for _, c := range contenders {
		r := rates[c.name]
		first, last := median(r[:turns/5]), median(r[turns-turns/5:])
		b.Logf("%-10s %8.0f a second at first, %.0f at last; by turn: %.0f", c.name, first, last, r)
		b.ReportMetric(last/first, map[string]string{"claims": "x/start", "textbook": "textbook-x/start"}[c.name])
		b.ReportMetric(last, c.name+"/s")
	}
	b.ReportMetric(0, "ns/op")
}

func claimOne(ctx context.Context, db *pgxpool.Pool, claimer *inventory.Claimer, pool inventory.Pool, n int64) error {
	return pg.InTx(ctx, db, func(tx pgx.Tx) error {
		got, err := claimer.Claim(ctx, tx, inventory.Request{Merchant: pool.Merchant, Pool: pool.ID,
			Units:  []inventory.Unit{{Order: fmt.Sprintf("cs_%s_%d", pool.SKU, n), Line: "li_1", Unit: 1}},
			Change: inventory.Change{Reason: "paid", Actor: "bench", At: time.Now()}})
		if err == nil && len(got) != 1 {
			err = fmt.Errorf("claim %d got %d keys", n, len(got))
		}
		return err
	})
}

// holdSnapshot holds one until the returned function is called.
func holdSnapshot(b *testing.B, db *pgxpool.Pool) func() {
	b.Helper()
	tx, err := db.BeginTx(b.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := tx.Exec(b.Context(), `SELECT count(*) FROM keytill.pools`); err != nil {
		b.Fatal(err)
	}
	return func() { _ = tx.Rollback(context.WithoutCancel(b.Context())) }
}

// runCount runs so many, and returns how many it ran a second.
func runCount(b *testing.B, count int, next *atomic.Int64, one func(n int64) error) float64 {
	b.Helper()
	var (
		started atomic.Int64
		group   sync.WaitGroup
	)
	begin := time.Now()
	for range benchWorkers {
		group.Go(func() {
			for started.Add(1) <= int64(count) {
				if err := one(next.Add(1)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	return float64(count) / time.Since(begin).Seconds()
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
