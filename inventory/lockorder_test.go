package inventory

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Who waits for a pool holds none with a larger id, whatever order the caller names them in: so no two wait for each other.
func TestPoolsAreLockedFromTheSmallestId(t *testing.T) {
	t.Parallel()
	db, first := stocked(t, 0)
	second := makePool(t, db, "second")
	holder, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Rollback(context.Background()) }()
	if err := LockPools(t.Context(), holder, DefaultMerchant, []int64{first.ID}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
			return LockPools(t.Context(), tx, DefaultMerchant, []int64{second.ID, first.ID})
		})
	}()
	for waits := 0; waits == 0; {
		time.Sleep(10 * time.Millisecond)
		waits = one[int](t, db, `SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0`)
	}
	err = pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `SELECT FROM keytill.pools WHERE pool_id = $1 FOR NO KEY UPDATE NOWAIT`, second.ID)
		return err
	})
	if err != nil {
		t.Errorf("while it waits for the first, it holds the second: %v", err)
	}
	if err := holder.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Behind a hint that led to nothing there is nothing for the next claim either.
func TestAHintThatLedToNothingIsDropped(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 3)
	c, ref := NewClaimer(), poolRef{DefaultMerchant, pool.ID}
	last := one[int64](t, db, `SELECT max(position) FROM keytill.keys`)
	c.hints.put(ref, last+1)
	if got := claim(t, db, c, pool, units("cs_1", 3)); len(got) != 3 {
		t.Fatalf("%d keys", len(got))
	}
	if at := c.hints.from(ref).position; at > last {
		t.Errorf("the hint is still at %d, behind the last key at %d", at, last)
	}
	if got := claim(t, db, c, pool, units("cs_2", 1)); len(got) != 0 {
		t.Fatalf("%d keys of none", len(got))
	}
	if at := c.hints.from(ref).position; at != 0 {
		t.Errorf("the hint is still at %d in an empty pool", at)
	}
}
