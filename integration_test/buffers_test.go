package integration_test

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/internal/jobs"
	"github.com/keytill/keytill/internal/pg"
	"github.com/keytill/keytill/internal/pgtest"
	"github.com/keytill/keytill/inventory"
)

// A claim touches as many pages in a large pool, of which as much was sold as is left, as in a small one: only the indexes
// are a level deeper.
func TestClaimTouchesNoMorePagesInALargePool(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	service := shelfService(t, db)
	small := fillShelf(t, db, service, "small", 1000, 0)
	before := pagesPerClaim(t, db, inventory.NewClaimer(), small, 200)
	large := fillShelf(t, db, service, "large", 10_000, 10_000)
	after := pagesPerClaim(t, db, inventory.NewClaimer(), large, 200)
	t.Logf("%.1f pages a claim of 1,000 keys, %.1f of 10,000 beside 10,000 sold", before, after)
	if before < 4 {
		t.Fatal("the pages of a claim are not counted")
	}
	if levels := 7.0; after > before+levels { // a page for each index of keys and movements that it goes down in or adds to
		t.Errorf("a claim touches %.1f pages in the large pool, %.1f in the small one", after, before)
	}
}

// Where a snapshot is held, what was claimed since it was taken cannot be cleared from the index, and a claim does not walk
// over it.
func TestClaimDoesNotWalkOverWhatAHeldSnapshotKeeps(t *testing.T) {
	t.Parallel()
	const claims = 6000
	db := pgtest.New(t)
	pool := fillShelf(t, db, shelfService(t, db), "game", claims+2000, 0)
	claimer := inventory.NewClaimer()
	before := pagesPerClaim(t, db, claimer, pool, 200)

	snapshot, err := db.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = snapshot.Rollback(context.Background()) }()
	if _, err := snapshot.Exec(t.Context(), `SELECT count(*) FROM keytill.pools`); err != nil {
		t.Fatal(err)
	}
	err = pg.InTx(t.Context(), db, func(tx pgx.Tx) error {
		units := make([]inventory.Unit, claims)
		for i := range units {
			units[i] = inventory.Unit{Order: "cs_many", Line: "li_1", Unit: i + 1}
		}
		got, err := claimer.Claim(t.Context(), tx, inventory.Request{Merchant: pool.Merchant, Pool: pool.ID, Units: units,
			Change: inventory.Change{Reason: "paid", Actor: "test", At: time.Now()}})
		if err == nil && len(got) != claims {
			err = fmt.Errorf("%d keys", len(got))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	// The first claim after the large one remembers that one's first key, and finds the end of what it took.
	claimOnce(t, db, claimer, pool, 1)
	// Every few seconds a claim begins at the shelf's head all the same, lest it miss what came back: that is one of many.
	after := math.Inf(1)
	for range 4 {
		after = min(after, pagesPerClaim(t, db, claimer, pool, 50))
	}
	t.Logf("%.1f pages a claim before, %.1f with %d claimed under a held snapshot", before, after, claims)
	if after > 1.5*before {
		t.Errorf("a claim touches %.1f pages under the held snapshot, %.1f before", after, before)
	}
}

func shelfService(t *testing.T, db *pgxpool.Pool) *fulfillment.Service {
	t.Helper()
	keyset, err := inventory.NewKeyset()
	if err != nil {
		t.Fatal(err)
	}
	inserter, err := jobs.NewInserter(db, time.Now, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	service, err := fulfillment.New(fulfillment.Config{DB: db, Stripe: readyMade{}, Jobs: inserter, Keyset: keyset, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return service
}

func claimOnce(t testing.TB, db *pgxpool.Pool, claimer *inventory.Claimer, pool inventory.Pool, n int64) {
	t.Helper()
	if err := claimOne(context.Background(), db, claimer, pool, n); err != nil {
		t.Fatal(err)
	}
}

// pagesPerClaim claims keys one at a time over one connection, each in a transaction of its own, and returns how many pages
// of the tables and their indexes a claim touched, by the database's own count.
func pagesPerClaim(t testing.TB, db *pgxpool.Pool, claimer *inventory.Claimer, pool inventory.Pool, claims int) float64 {
	t.Helper()
	ctx := context.Background()
	config := db.Config()
	config.MaxConns = 1
	one, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	touched := func() (pages int64) {
		t.Helper()
		const flush, count = `SELECT pg_stat_force_next_flush()`, `
SELECT sum(heap_blks_hit + heap_blks_read + coalesce(idx_blks_hit + idx_blks_read, 0))::bigint FROM pg_statio_user_tables
 WHERE schemaname = 'keytill' AND relname IN ('keys', 'movements')`
		if _, err := one.Exec(ctx, flush); err != nil { // what this connection did is counted when the statement has ended
			t.Fatal(err)
		}
		if err := one.QueryRow(ctx, count).Scan(&pages); err != nil {
			t.Fatal(err)
		}
		return pages
	}
	first := time.Now().UnixNano()
	for n := range int64(20) { // catalogs, plans, and where the pool's keys begin
		claimOnce(t, one, claimer, pool, first+n)
	}
	before := touched()
	for n := range int64(claims) {
		claimOnce(t, one, claimer, pool, first+100+n)
	}
	return float64(touched()-before) / float64(claims)
}
