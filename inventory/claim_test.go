package inventory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/keytill/keytill/internal/pg"
	"github.com/keytill/keytill/internal/pgtest"
)

func asPgError(err error) *pgconn.PgError {
	var pgErr *pgconn.PgError
	errors.As(err, &pgErr)
	return pgErr
}

func TestClaimTakesExactlyWhatWasAskedOldestFirst(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 10)
	c := NewClaimer()
	first := claim(t, db, c, pool, units("cs_1", 3))
	second := claim(t, db, c, pool, units("cs_2", 2))
	got := texts(t, db, append(first, second...))
	if diff := cmp.Diff([]string{"KEY-1", "KEY-2", "KEY-3", "KEY-4", "KEY-5"}, got); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
	var asked []Unit
	for _, c := range append(first, second...) {
		asked = append(asked, c.Unit)
	}
	if diff := cmp.Diff(append(units("cs_1", 3), units("cs_2", 2)...), asked); diff != "" {
		t.Errorf("units in their order (-want +got):\n%s", diff)
	}
	rows := all[string](t, db, `
SELECT concat_ws(' ', m.pool_id = k.pool_id, from_state, to_state, m.order_id, m.line_id, m.unit, keys, reason, actor, event_id, m.at = $1)
  FROM keytill.movements m JOIN keytill.keys k USING (merchant_id, key_id) ORDER BY k.position`, noon)
	var want []string
	for _, u := range asked {
		want = append(want, fmt.Sprintf("t available allocated %s %s %d 1 paid settle evt_1 t", u.Order, u.Line, u.Unit))
	}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("movements, one a key (-want +got):\n%s", diff)
	}
	if n := one[int64](t, db, `SELECT count(*) FROM keytill.keys WHERE state = 'allocated'`); n != 5 {
		t.Errorf("%d keys are allocated", n)
	}
	whole(t, db)
}

func TestClaimFromAPoolThatIsNearlyEmptyGetsFewer(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 3)
	c := NewClaimer()
	if got := claim(t, db, c, pool, units("cs_1", 5)); len(got) != 3 || got[2].Unit.Unit != 3 {
		t.Errorf("claimed %v, want the first three units", got)
	}
	if got := claim(t, db, c, pool, units("cs_2", 1)); len(got) != 0 {
		t.Errorf("claimed %v of nothing", got)
	}
	if got := claim(t, db, c, pool, nil); len(got) != 0 {
		t.Errorf("claimed %v for nobody", got)
	}
	whole(t, db)
}

func TestClaimTakesOnlyOfItsPoolAndOnlyWhatIsAvailable(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 6)
	other := makePool(t, db, "other")
	restock(t, db, other, 1, 2)
	ids := all[int64](t, db, `SELECT key_id FROM keytill.keys WHERE pool_id = $1 ORDER BY position`, pool.ID)
	for i, change := range []string{`state = 'quarantined'`, `state = 'expired'`, `state = 'revoked'`,
		`state = 'reserved', reserved_for = 'cs_9', reserved_until = now()`,
		`state = 'allocated', order_id = 'cs_9', line_id = 'li_1', unit = 1`} {
		exec(t, db, `UPDATE keytill.keys SET `+change+` WHERE key_id = $1`, ids[i])
	}
	got := claim(t, db, NewClaimer(), pool, units("cs_1", 3))
	if diff := cmp.Diff([]string{"KEY-6"}, texts(t, db, got)); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
}

func TestAUnitCannotHaveASecondLiveKey(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 5)
	claim(t, db, NewClaimer(), pool, units("cs_1", 1))
	for name, again := range map[string][]Unit{"claimed again": units("cs_1", 1), "among others": units("cs_1", 3), "twice in one claim": append(units("cs_2", 1), units("cs_2", 1)...)} {
		err := pg.InTx(t.Context(), db, func(tx pgx.Tx) error {
			_, err := NewClaimer().Claim(t.Context(), tx, request(pool, again))
			return err
		})
		if !pg.Violates(err, "keys_live_unit") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := one[int64](t, db, `SELECT count(*) FROM keytill.keys WHERE state = 'allocated'`); n != 1 {
		t.Errorf("%d keys are allocated, want 1", n)
	}
	whole(t, db)
}

// settleClaim claims as a settle does: at first without waiting, then below the pool's lock.
func settleClaim(ctx context.Context, db *pgxpool.Pool, c *Claimer, req Request) (got []Claimed, err error) {
	for {
		err = pg.InTx(ctx, db, func(tx pgx.Tx) (err error) {
			if req.Patient {
				if err := LockPools(ctx, tx, req.Merchant, []int64{req.Pool}); err != nil {
					return err
				}
			}
			got, err = c.Claim(ctx, tx, req)
			return err
		})
		if !errors.Is(err, ErrContended) {
			return got, err
		}
		if req.Patient {
			return nil, fmt.Errorf("a patient claim was contended: %w", err)
		}
		req.Patient = true
	}
}

// race runs n claims of one unit at once, on several claimers, as several processes would.
func race(t *testing.T, db *pgxpool.Pool, pool Pool, n int) (served []Claimed, short int) {
	t.Helper()
	claimers := []*Claimer{NewClaimer(), NewClaimer(), NewClaimer()}
	type result struct {
		got []Claimed
		err error
	}
	results := make(chan result, n)
	start := make(chan struct{})
	for i := range n {
		go func() {
			<-start
			got, err := settleClaim(t.Context(), db, claimers[i%len(claimers)], request(pool, units(fmt.Sprintf("cs_%d", i), 1)))
			results <- result{got, err}
		}()
	}
	close(start)
	for range n {
		r := <-results
		if r.err != nil {
			t.Error(r.err)
		} else if len(r.got) == 0 {
			short++
		}
		served = append(served, r.got...)
	}
	return served, short
}

func distinct(claimed []Claimed) int {
	seen := make(map[int64]bool)
	for _, c := range claimed {
		seen[c.KeyID] = true
	}
	return len(seen)
}

func TestSixtyFourClaimersShareFiveKeys(t *testing.T) {
	t.Parallel()
	db, pool := manyConns(t, 32)
	restock(t, db, pool, 1, 5)
	served, short := race(t, db, pool, 64)
	if len(served) != 5 || distinct(served) != 5 || short != 59 {
		t.Errorf("%d served with %d keys, %d short; want 5, 5, 59", len(served), distinct(served), short)
	}
	if n := one[int64](t, db, countMovements); n != 5 {
		t.Errorf("%d movements", n)
	}
	whole(t, db)
}

func TestFiftyClaimersEmptyAPoolOfFifty(t *testing.T) {
	t.Parallel()
	db, pool := manyConns(t, 32)
	restock(t, db, pool, 1, 50)
	served, short := race(t, db, pool, 50)
	if len(served) != 50 || distinct(served) != 50 || short != 0 {
		t.Errorf("%d served with %d keys, %d short; want 50, 50, 0", len(served), distinct(served), short)
	}
	whole(t, db)
}

func manyConns(t *testing.T, n int) (*pgxpool.Pool, Pool) {
	t.Helper()
	db := pgtest.Pool(t, fmt.Sprintf("%s&pool_max_conns=%d", pgtest.NewURL(t), n))
	return db, makePool(t, db, "game")
}

// lockRest has another transaction claim all keys that are left, and leaves it open.
func lockRest(t *testing.T, db *pgxpool.Pool, pool Pool, n int) pgx.Tx {
	t.Helper()
	holder := begin(t, db, pgx.TxOptions{})
	got, err := NewClaimer().Claim(t.Context(), holder, request(pool, units("cs_holder", n)))
	if err != nil || len(got) != n {
		t.Fatalf("the holder got %d of %d keys, error %v", len(got), n, err)
	}
	return holder
}

func TestLockedKeysAreContendedNotSoldOut(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 3)
	for _, lock := range []func() pgx.Tx{
		func() pgx.Tx { return lockRest(t, db, pool, 3) },
		func() pgx.Tx { // locked only
			tx := begin(t, db, pgx.TxOptions{})
			exec(t, tx, `SELECT FROM keytill.keys FOR NO KEY UPDATE`)
			return tx
		},
	} {
		holder := lock()
		for _, n := range []int{1, 5} {
			tx := begin(t, db, pgx.TxOptions{})
			got, err := NewClaimer().Claim(t.Context(), tx, request(pool, units("cs_1", n)))
			if !errors.Is(err, ErrContended) || got != nil {
				t.Errorf("%d units: claimed %v, error %v", n, got, err)
			}
			_ = tx.Rollback(t.Context())
		}
		if err := holder.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := claim(t, db, NewClaimer(), pool, units("cs_2", 3)); len(got) != 3 {
		t.Errorf("after the holders went, %d keys", len(got))
	}
}

// waiting returns once a backend waits for a lock of another one.
func waiting(t *testing.T, db pg.Querier) {
	t.Helper()
	for range 1000 {
		if one[bool](t, db, `SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`) {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("nobody waits for a lock")
}

func TestPatientClaimWaitsForTheHolder(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name              string
		end               func(pgx.Tx, context.Context) error
		locked, free, ask int
		want              int
	}{
		{"who rolls back", pgx.Tx.Rollback, 2, 0, 1, 1},
		{"who rolls back, several units", pgx.Tx.Rollback, 3, 0, 5, 3},
		{"who commits", pgx.Tx.Commit, 2, 0, 1, 0},
		{"who commits, with free keys beside", pgx.Tx.Commit, 2, 1, 3, 1},
		{"who rolls back, with free keys beside", pgx.Tx.Rollback, 2, 1, 3, 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			db, pool := stocked(t, tc.locked+tc.free)
			holder := lockRest(t, db, pool, tc.locked)
			done := make(chan []Claimed, 1)
			failed := make(chan error, 1)
			go func() {
				got, err := settleClaim(t.Context(), db, NewClaimer(), request(pool, units("cs_1", tc.ask)))
				failed <- err
				done <- got
			}()
			waiting(t, db)
			if err := tc.end(holder, t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-failed; err != nil {
				t.Fatal(err)
			}
			got := <-done
			if len(got) != tc.want || distinct(got) != tc.want {
				t.Errorf("claimed %v, want %d keys", got, tc.want)
			}
			for i, c := range got {
				if c.Unit.Unit != i+1 {
					t.Errorf("key %d went to unit %d", i+1, c.Unit.Unit)
				}
			}
			whole(t, db)
		})
	}
}

func TestPatientClaimEndsWithItsContext(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 1)
	lockRest(t, db, pool, 1)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := settleClaim(ctx, db, NewClaimer(), request(pool, units("cs_1", 1)))
		failed <- err
	}()
	waiting(t, db)
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// statements counts what a connection sends.
type statements struct{ n atomic.Int64 }

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	s.n.Add(1)
	return ctx
}

func (s *statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func TestAClaimOfManyUnitsIsOneStatement(t *testing.T) {
	t.Parallel()
	url := pgtest.NewURL(t)
	plain := pgtest.Pool(t, url)
	pool := makePool(t, plain, "game")
	restock(t, plain, pool, 1, 1100)
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	sent := new(statements)
	config.ConnConfig.Tracer = sent
	db, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	c := NewClaimer()
	for i, n := range []int{1, 500, 1, 500} {
		tx := begin(t, db, pgx.TxOptions{})
		before := sent.n.Load()
		got, err := c.Claim(t.Context(), tx, request(pool, units(fmt.Sprint("cs_", i), n)))
		if err != nil || len(got) != n {
			t.Fatalf("claimed %d of %d, error %v", len(got), n, err)
		}
		if count := sent.n.Load() - before; count != 1 {
			t.Errorf("%d units took %d statements", n, count)
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	whole(t, plain)
}

func TestHintSkipsWhatWasSoldAndIsDroppedWhenNothingIsBehindIt(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 6)
	c, ref := NewClaimer(), poolRef{DefaultMerchant, 0}
	ref.pool = pool.ID
	claim(t, db, c, pool, units("cs_1", 4))
	h := c.hints.from(ref)
	if h.position == 0 {
		t.Fatal("no hint after a claim")
	}
	// Keys below the hint are back: while there are others, those go first, and nothing is sold out before these went.
	exec(t, db, `UPDATE keytill.keys SET state = 'available', order_id = NULL, line_id = NULL, unit = NULL WHERE unit <= 2`)
	c.hints.remember(ref, h, one[int64](t, db, `SELECT max(position) FROM keytill.keys`), 0)
	got := claim(t, db, c, pool, units("cs_2", 2))
	if diff := cmp.Diff([]string{"KEY-6", "KEY-1"}, texts(t, db, got)); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
	if got := claim(t, db, c, pool, units("cs_3", 5)); len(got) != 2 {
		t.Errorf("%d keys, want the two that were left", len(got))
	}
}

func TestHintAgesSoThatReturnedKeysAreFound(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 6)
	c, ref := NewClaimer(), poolRef{DefaultMerchant, pool.ID}
	claim(t, db, c, pool, units("cs_1", 2))
	claim(t, db, c, pool, units("cs_2", 1)) // does not renew the hint's age
	exec(t, db, `UPDATE keytill.keys SET state = 'available', order_id = NULL, line_id = NULL, unit = NULL WHERE order_id = 'cs_1' AND unit = 1`)
	c.hints.age(ref, pauseAtLeast)
	if got := texts(t, db, claim(t, db, c, pool, units("cs_3", 1))); got[0] != "KEY-1" {
		t.Errorf("claimed %s, want the oldest, which is back", got[0])
	}
}

func TestHintsOfRolledBackClaimsLoseNoKey(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 6)
	c := NewClaimer()
	tx := begin(t, db, pgx.TxOptions{})
	if got, err := c.Claim(t.Context(), tx, request(pool, units("cs_1", 3))); err != nil || len(got) != 3 {
		t.Fatal(got, err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := texts(t, db, claim(t, db, c, pool, units("cs_2", 1))); got[0] != "KEY-1" {
		t.Errorf("claimed %s, want the oldest", got[0])
	}
	if got := claim(t, db, c, pool, units("cs_3", 6)); len(got) != 5 {
		t.Errorf("%d keys, want 5", len(got))
	}
}

// Whatever the hint is, even one beyond all keys, a claim gets all that is available and no more.
func TestHintsNeverSellOutAPool(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 12)
	ids := all[int64](t, db, `SELECT key_id FROM keytill.keys ORDER BY position`)
	tx := begin(t, db, pgx.TxOptions{})
	rapid.Check(t, func(rt *rapid.T) {
		exec(t, tx, `SAVEPOINT before`)
		defer exec(t, tx, `ROLLBACK TO before`)
		gone := rapid.SliceOfNDistinct(rapid.SampledFrom(ids), 0, len(ids), rapid.ID[int64]).Draw(rt, "gone")
		exec(t, tx, `UPDATE keytill.keys SET state = 'quarantined' WHERE key_id = ANY ($1)`, gone)
		c := NewClaimer()
		left := len(ids) - len(gone)
		for i := 0; i < 4; i++ {
			c.hints.put(poolRef{DefaultMerchant, pool.ID}, ids[0]+rapid.Int64Range(-5, 20).Draw(rt, "hint"))
			ask := rapid.IntRange(0, 6).Draw(rt, "ask")
			got, err := c.Claim(t.Context(), tx, request(pool, units(fmt.Sprint("cs_", i), ask)))
			if err != nil {
				rt.Fatal(err)
			}
			if want := min(ask, left); len(got) != want || distinct(got) != want {
				rt.Fatalf("asked for %d of %d, got %v", ask, left, got)
			}
			for n, g := range got {
				if g.Unit.Unit != n+1 || slices.Contains(gone, g.KeyID) {
					rt.Fatalf("claimed %v", got)
				}
			}
			left -= len(got)
		}
	})
}

func TestErrorsOfAClaimNameItsPool(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	tx := begin(t, db, pgx.TxOptions{})
	cancel()
	_, err := NewClaimer().Claim(ctx, tx, request(pool, units("cs_1", 1)))
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), fmt.Sprintf("claim 1 keys of pool %d", pool.ID)) {
		t.Error(err)
	}
}
