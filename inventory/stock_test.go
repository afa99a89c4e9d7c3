package inventory

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keytill/keytill/internal/pg"
	"github.com/keytill/keytill/internal/pgtest"
)

func stock(t testing.TB, db pg.Querier, pool int64) map[int64]Counts {
	t.Helper()
	counts, err := Stock(t.Context(), db, DefaultMerchant, pool)
	if err != nil {
		t.Fatal(err)
	}
	return counts
}

func stockByRows(t testing.TB, db pg.Querier, pool int64) map[int64]Counts {
	t.Helper()
	counts, err := StockByRows(t.Context(), db, DefaultMerchant, pool)
	if err != nil {
		t.Fatal(err)
	}
	return counts
}

func fold(t testing.TB, db *pgxpool.Pool, pool Pool) {
	t.Helper()
	if err := Fold(t.Context(), db, pool.Merchant, pool.ID); err != nil {
		t.Fatal(err)
	}
}

// horizon is up to where the pool is folded.
func horizon(t testing.TB, db pg.Querier, pool Pool) int64 {
	t.Helper()
	return one[int64](t, db, `SELECT horizon::text::bigint FROM keytill.stock WHERE pool_id = $1`, pool.ID)
}

func TestStockCountsEveryStateOfEachPool(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 5)
	other, empty := makePool(t, db, "other"), makePool(t, db, "empty")
	restock(t, db, other, 1, 2)
	got := claim(t, db, NewClaimer(), pool, units("cs_1", 3))
	if err := move(t, db, []int64{got[0].KeyID}, Allocated, Suspended); err != nil {
		t.Fatal(err)
	}
	want := map[int64]Counts{pool.ID: {Available: 2, Allocated: 2, Suspended: 1}, other.ID: {Available: 2}}
	for _, folded := range []bool{false, true} {
		for name, got := range map[string]map[int64]Counts{"by the ledger": stock(t, db, 0), "by rows": stockByRows(t, db, 0)} {
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s, folded %v (-want +got):\n%s", name, folded, diff)
			}
		}
		if diff := cmp.Diff(map[int64]Counts{other.ID: want[other.ID]}, stock(t, db, other.ID)); diff != "" {
			t.Errorf("one pool (-want +got):\n%s", diff)
		}
		if got := stock(t, db, empty.ID); len(got) != 0 {
			t.Errorf("an empty pool: %v", got)
		}
		if err := FoldAll(t.Context(), db); err != nil {
			t.Fatal(err)
		}
	}
	if counts, err := Stock(t.Context(), db, "other", 0); err != nil || len(counts) != 0 {
		t.Errorf("another merchant's: %v, %v", counts, err)
	}
	whole(t, db)
}

func TestFoldStopsBelowTheOldestTransactionAndGoesOnWhenItEnds(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 10)
	long := begin(t, db, pgx.TxOptions{})
	if _, err := NewClaimer().Claim(t.Context(), long, request(pool, units("cs_long", 2))); err != nil {
		t.Fatal(err)
	}
	xid := one[int64](t, long, `SELECT pg_current_xact_id()::text::bigint`)
	claim(t, db, NewClaimer(), pool, units("cs_later", 3)) // has a later id and commits first
	fold(t, db, pool)
	if got := horizon(t, db, pool); got > xid {
		t.Errorf("folded up to %d, and %d still runs", got, xid)
	}
	if diff := cmp.Diff(Counts{Available: 7, Allocated: 3}, stock(t, db, 0)[pool.ID]); diff != "" {
		t.Errorf("while it runs (-want +got):\n%s", diff)
	}
	if err := long.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := Counts{Available: 5, Allocated: 5}
	if diff := cmp.Diff(want, stock(t, db, 0)[pool.ID]); diff != "" {
		t.Errorf("once it committed (-want +got):\n%s", diff)
	}
	for range 3 { // a fold does not count its tail twice
		fold(t, db, pool)
		if diff := cmp.Diff(want, stock(t, db, 0)[pool.ID]); diff != "" {
			t.Errorf("folded again (-want +got):\n%s", diff)
		}
	}
	// Transaction ids are the server's: tests of other databases may hold the horizon back for a while.
	for deadline := time.Now().Add(30 * time.Second); horizon(t, db, pool) <= xid; fold(t, db, pool) {
		if time.Now().After(deadline) {
			t.Fatalf("folded up to %d, and %d has ended", horizon(t, db, pool), xid)
		}
		time.Sleep(20 * time.Millisecond)
	}
	whole(t, db)
}

func TestASnapshotFromBeforeAFoldCountsAsItWas(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 10)
	old := begin(t, db, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	want := stock(t, old, 0)
	claim(t, db, NewClaimer(), pool, units("cs_1", 4))
	fold(t, db, pool)
	if diff := cmp.Diff(want, stock(t, old, 0)); diff != "" {
		t.Errorf("(-before +after the fold):\n%s", diff)
	}
	if diff := cmp.Diff(stockByRows(t, old, 0), stock(t, old, 0)); diff != "" {
		t.Errorf("(-rows +ledger):\n%s", diff)
	}
}

func TestRolledBackWorkIsNotCounted(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 3)
	tx := begin(t, db, pgx.TxOptions{})
	if _, err := NewClaimer().Claim(t.Context(), tx, request(pool, units("cs_1", 2))); err != nil {
		t.Fatal(err)
	}
	exec(t, tx, `SAVEPOINT a`)
	if _, err := NewClaimer().Claim(t.Context(), tx, request(pool, units("cs_2", 1))); err != nil {
		t.Fatal(err)
	}
	exec(t, tx, `ROLLBACK TO a`)
	if diff := cmp.Diff(Counts{Available: 1, Allocated: 2}, stock(t, tx, 0)[pool.ID]); diff != "" {
		t.Errorf("within the transaction (-want +got):\n%s", diff)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	fold(t, db, pool)
	if diff := cmp.Diff(Counts{Available: 3}, stock(t, db, 0)[pool.ID]); diff != "" {
		t.Errorf("after it (-want +got):\n%s", diff)
	}
}

// Claims, moves and imports commit in any order beside transactions that stay open and folds of the same pools; in every
// snapshot, the ledger and the rows say the same.
func TestCountsAreExactInEverySnapshotWhileFoldsRun(t *testing.T) {
	t.Parallel()
	db := pgtest.Pool(t, pgtest.NewURL(t)+"&pool_max_conns=16")
	pools := []Pool{makePool(t, db, "a"), makePool(t, db, "b")}
	for _, pool := range pools {
		restock(t, db, pool, 1, 400)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var workers sync.WaitGroup
	work := func(f func(i int) error) {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for i := 0; ctx.Err() == nil; i++ {
				if err := f(i); err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return
				}
			}
		}()
	}
	for w := range 3 {
		claimer := NewClaimer()
		work(func(i int) error {
			return sellAndReturn(t.Context(), db, claimer, pools[i%2], fmt.Sprintf("cs_%d_%d", w, i))
		})
	}
	for range 2 {
		work(func(i int) error { return Fold(t.Context(), db, DefaultMerchant, pools[i%2].ID) })
	}
	work(func(i int) error { // an early transaction id that commits late, or never
		tx, err := db.Begin(t.Context())
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(context.Background()) }()
		if _, err := NewClaimer().Claim(t.Context(), tx, request(pools[i%2], units(fmt.Sprint("cs_slow_", i), 2))); errors.Is(err, ErrContended) {
			return nil
		} else if err != nil {
			return err
		}
		if _, err := tx.Exec(t.Context(), `SELECT pg_sleep(0.03)`); err != nil {
			return err
		}
		if i%3 == 0 {
			return nil
		}
		return tx.Commit(t.Context())
	})
	work(func(i int) error {
		_, err := load(t.Context(), db, Import{Pool: pools[i%2], File: strings.NewReader(keyFile(1000+100*i, 1010+100*i)), FileName: "f"})
		return err
	})
	before := horizon(t, db, pools[0])
	for round := range 60 {
		tx, err := db.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
		if err != nil {
			t.Fatal(err)
		}
		byLedger, byRows := stock(t, tx, 0), stockByRows(t, tx, 0)
		breaches, err := Check(t.Context(), tx)
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(byRows, byLedger); diff != "" || err != nil || len(breaches) > 0 {
			t.Fatalf("round %d: error %v, breaches %v, counts (-rows +ledger):\n%s", round, err, breaches, diff)
		}
	}
	stop()
	workers.Wait()
	if after := horizon(t, db, pools[0]); after <= before {
		t.Errorf("nothing was folded: the horizon is %d", after)
	}
	if err := FoldAll(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	whole(t, db)
}

func sellAndReturn(ctx context.Context, db *pgxpool.Pool, claimer *Claimer, pool Pool, order string) error {
	got, err := settleClaim(ctx, db, claimer, request(pool, units(order, 3)))
	if err != nil || len(got) == 0 {
		return err
	}
	return pg.InTx(ctx, db, func(tx pgx.Tx) error {
		return Move(ctx, tx, DefaultMerchant, []int64{got[0].KeyID}, Allocated, Revoked, paid)
	})
}

func TestFoldOfAPoolThatIsNoneSaysSo(t *testing.T) {
	t.Parallel()
	db, _ := stocked(t, 0)
	if err := Fold(t.Context(), db, DefaultMerchant, 99); err == nil || !strings.Contains(err.Error(), "pool 99") {
		t.Error(err)
	}
}

func TestFoldedLedgerIsNotReadAgain(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 300)
	claim(t, db, NewClaimer(), pool, units("cs_1", 200))
	fold(t, db, pool)
	tail := `SELECT count(*) FROM keytill.movements m JOIN keytill.stock s USING (merchant_id, pool_id) WHERE m.xid >= s.horizon`
	// Nothing else runs on this server's database, but its transaction ids are the whole server's.
	for range 200 {
		if one[int64](t, db, tail) == 0 {
			return
		}
		exec(t, db, `SELECT pg_sleep(0.01)`)
		fold(t, db, pool)
	}
	t.Errorf("%d movements are still in the tail", one[int64](t, db, tail))
}
