package inventory

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/keytill/keytill/internal/pg"
)

func rebuildPool(t *testing.T, db pg.Beginner, pool Pool) Rebuilt {
	t.Helper()
	rebuilt, err := Rebuild(t.Context(), db, pool.Merchant, pool.ID)
	if err != nil {
		t.Fatal(err)
	}
	return rebuilt
}

func TestRebuildSaysWhatDifferedAndMakesItRight(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 5)
	claim(t, db, NewClaimer(), pool, units("cs_1", 2))
	if got := rebuildPool(t, db, pool); len(got.Differences) > 0 || got.Restored {
		t.Errorf("nothing was wrong: %+v", got)
	}
	exec(t, db, `UPDATE keytill.stock SET counts = '{"available": 7, "bogus": 1}'`)
	// Folded are 5 available and 0 more, and the tail of the claim may or may not be folded: what matters is the sum.
	before := stock(t, db, pool.ID)[pool.ID]
	got := rebuildPool(t, db, pool)
	want := Rebuilt{Counts: Counts{Available: 3, Allocated: 2}, Differences: differences(before, Counts{Available: 3, Allocated: 2})}
	if diff := cmp.Diff(want, got); diff != "" || len(got.Differences) < 2 {
		t.Errorf("(-want +got):\n%s", diff)
	}
	whole(t, db)
	if got := rebuildPool(t, db, pool); len(got.Differences) > 0 {
		t.Errorf("a second time: %+v", got)
	}
}

// What is committed above the horizon when a rebuild counts the rows must not be counted twice afterwards.
func TestRebuildBesideAnOpenTransactionIsExact(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 5)
	open := begin(t, db, pgx.TxOptions{})
	if _, err := NewClaimer().Claim(t.Context(), open, request(pool, units("cs_open", 1))); err != nil {
		t.Fatal(err)
	}
	claim(t, db, NewClaimer(), pool, units("cs_1", 2)) // committed, and above the horizon
	rebuildPool(t, db, pool)
	for _, step := range []func(){func() {}, func() { _ = open.Commit(t.Context()) }, func() { fold(t, db, pool) }} {
		step()
		if diff := cmp.Diff(stockByRows(t, db, pool.ID), stock(t, db, pool.ID)); diff != "" {
			t.Errorf("(-rows +counts):\n%s", diff)
		}
	}
}

func TestRebuildsFoldsClaimsAndImportsAtOnceStayExact(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 300)
	var (
		group errgroup.Group
		done  atomic.Bool
	)
	for n := range 3 {
		group.Go(func() error {
			claimer := NewClaimer()
			for i := range 40 {
				if err := sellAndReturn(t.Context(), db, claimer, pool, fmt.Sprintf("cs_%d_%d", n, i)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	group.Go(func() error {
		for i := range 5 {
			restock(t, db, pool, 1000+10*i, 1009+10*i)
		}
		return nil
	})
	var counting errgroup.Group
	counting.Go(func() error {
		for !done.Load() {
			if _, err := Rebuild(t.Context(), db, pool.Merchant, pool.ID); err != nil {
				return err
			}
			if err := Fold(t.Context(), db, pool.Merchant, pool.ID); err != nil {
				return err
			}
		}
		return nil
	})
	counting.Go(func() error {
		for !done.Load() {
			tx := begin(t, db, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
			if diff := cmp.Diff(stockByRows(t, tx, pool.ID), stock(t, tx, pool.ID)); diff != "" {
				return fmt.Errorf("(-rows +counts):\n%s", diff)
			}
			if err := tx.Rollback(t.Context()); err != nil {
				return err
			}
		}
		return nil
	})
	err := group.Wait()
	done.Store(true)
	if counted := counting.Wait(); err != nil || counted != nil {
		t.Fatal(err, counted)
	}
	whole(t, db)
}

// restored makes the database look as if its ledger came from a cluster whose transaction ids were far ahead.
func restored(t *testing.T, db pg.Querier) {
	t.Helper()
	exec(t, db, `UPDATE keytill.movements SET xid = (xid::text::bigint + 50000000)::text::xid8`)
	exec(t, db, `UPDATE keytill.stock SET horizon = (horizon::text::bigint + 50000000)::text::xid8`)
}

func TestCountsOfARestoredDatabaseAreRightAndRebuilt(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 5)
	fold(t, db, pool)
	claim(t, db, NewClaimer(), pool, units("cs_1", 1))
	restored(t, db)
	// Below a horizon of the other cluster, this claim would not be counted.
	claim(t, db, NewClaimer(), pool, units("cs_2", 1))
	want := Counts{Available: 3, Allocated: 2}
	if diff := cmp.Diff(want, stock(t, db, pool.ID)[pool.ID]); diff != "" {
		t.Errorf("before the rebuild (-want +got):\n%s", diff)
	}
	if breaches := check(t, db); len(breaches) == 0 {
		t.Error("the check finds nothing")
	}
	fold(t, db, pool)
	if diff := cmp.Diff(want, stock(t, db, pool.ID)[pool.ID]); diff != "" {
		t.Errorf("after a fold (-want +got):\n%s", diff)
	}
	if n := one[int64](t, db, `SELECT count(*) FROM keytill.movements m JOIN keytill.stock s USING (merchant_id, pool_id) WHERE m.xid >= s.horizon`); n != 0 {
		t.Errorf("%d movements are above the horizon", n)
	}
	claim(t, db, NewClaimer(), pool, units("cs_3", 1))
	fold(t, db, pool)
	whole(t, db)
}
