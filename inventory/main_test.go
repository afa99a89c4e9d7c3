package inventory

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/keytill/keytill/internal/pg"
	"github.com/keytill/keytill/internal/pgtest"
	"github.com/keytill/keytill/internal/sqltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Suite{M: m}) }

func TestEveryStatementPrepares(t *testing.T) {
	t.Parallel()
	limits := [][]any{{1, skipLocked}, {500, waitForLocked}}
	sqltest.Prepare(t, pgtest.New(t), ".", sqltest.Fill{"claimKeys": limits, "holdKeys": limits, "releaseExpired": {{skipLocked}, {waitForLocked}}})
}

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

var paid = Change{Reason: "paid", Actor: "settle", Event: "evt_1", At: noon}

// testKeyset is one for all tests that only need some keyset.
var testKeyset = sync.OnceValue(func() *Keyset {
	keyset, err := NewKeyset()
	if err != nil {
		panic(err)
	}
	return keyset
})

func makePool(t testing.TB, db *pgxpool.Pool, sku string) Pool {
	t.Helper()
	var pool Pool
	err := pg.InTx(t.Context(), db, func(tx pgx.Tx) (err error) {
		pool, err = CreatePool(t.Context(), tx, Pool{Merchant: DefaultMerchant, SKU: sku, CreatedAt: noon})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return pool
}

// stocked is a fresh database with a pool of n keys, KEY-1 … KEY-n, in that order.
func stocked(t testing.TB, n int) (*pgxpool.Pool, Pool) {
	t.Helper()
	db := pgtest.New(t)
	pool := makePool(t, db, "game")
	if n > 0 {
		restock(t, db, pool, 1, n)
	}
	return db, pool
}

func restock(t testing.TB, db *pgxpool.Pool, pool Pool, from, to int) Report {
	t.Helper()
	report, err := load(t.Context(), db, Import{Pool: pool, File: strings.NewReader(keyFile(from, to)), FileName: "keys.txt"})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func keyFile(from, to int) string {
	var text strings.Builder
	for i := from; i <= to; i++ {
		fmt.Fprintf(&text, "KEY-%d\n", i)
	}
	return text.String()
}

// load imports as fulfillment does: below the pool's lock, in a transaction of its own.
func load(ctx context.Context, db *pgxpool.Pool, imp Import) (report Report, err error) {
	if imp.Actor == "" {
		imp.Actor, imp.At = "ann", noon
	}
	err = pg.InTx(ctx, db, func(tx pgx.Tx) error {
		if err := LockPools(ctx, tx, imp.Pool.Merchant, []int64{imp.Pool.ID}); err != nil {
			return err
		}
		report, err = testKeyset().Load(ctx, tx, imp)
		return err
	})
	return report, err
}

// units are n of one line of an order.
func units(order string, n int) []Unit {
	units := make([]Unit, n)
	for i := range units {
		units[i] = Unit{Order: order, Line: "li_1", Unit: i + 1}
	}
	return units
}

func request(pool Pool, units []Unit) Request {
	return Request{Merchant: pool.Merchant, Pool: pool.ID, Units: units, Change: paid}
}

func claim(t testing.TB, db *pgxpool.Pool, c *Claimer, pool Pool, units []Unit) (got []Claimed) {
	t.Helper()
	err := pg.InTx(t.Context(), db, func(tx pgx.Tx) (err error) {
		got, err = c.Claim(t.Context(), tx, request(pool, units))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// begin opens a transaction that is rolled back at the end unless the test ended it.
func begin(t testing.TB, db *pgxpool.Pool, opts pgx.TxOptions) pgx.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func exec(t testing.TB, db pg.Querier, sql string, args ...any) int64 {
	t.Helper()
	tag, err := db.Exec(t.Context(), sql, args...)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return tag.RowsAffected()
}

func one[T any](t testing.TB, db pg.Querier, sql string, args ...any) (value T) {
	t.Helper()
	if err := db.QueryRow(t.Context(), sql, args...).Scan(&value); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}

func all[T any](t testing.TB, db pg.Querier, sql string, args ...any) []T {
	t.Helper()
	rows, err := db.Query(t.Context(), sql, args...)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	values, err := pgx.CollectRows(rows, pgx.RowTo[T])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return values
}

const countMovements = `SELECT count(*) FROM keytill.movements WHERE key_id IS NOT NULL`

// whole fails the test if the inventory's promises do not hold.
func whole(t testing.TB, db pg.Querier) {
	t.Helper()
	breaches, err := Check(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	for _, breach := range breaches {
		t.Errorf("breach: %s", breach)
	}
}

// texts are the plaintexts of the claimed keys, in their order.
func texts(t testing.TB, db pg.Querier, claimed []Claimed) []string {
	t.Helper()
	ids := make([]int64, len(claimed))
	for i, c := range claimed {
		ids[i] = c.KeyID
	}
	byID, err := testKeyset().Texts(t.Context(), db, DefaultMerchant, ids)
	if err != nil {
		t.Fatal(err)
	}
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = byID[id]
	}
	return texts
}
