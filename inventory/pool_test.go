package inventory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/keytill/keytill/internal/pg"
	"github.com/keytill/keytill/internal/pgtest"
)

func createPool(t testing.TB, db *pgxpool.Pool, pool Pool) (made Pool, err error) {
	t.Helper()
	err = pg.InTx(t.Context(), db, func(tx pgx.Tx) (err error) {
		made, err = CreatePool(t.Context(), tx, pool)
		return err
	})
	return made, err
}

// sameTime compares instants: the database's come back in another zone.
var sameTime = cmpopts.EquateApproxTime(0)

func TestAPoolIsReadAsItWasMade(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	supply, release := int64(10), noon.Add(time.Hour)
	full, err := createPool(t, db, Pool{Merchant: DefaultMerchant, SKU: " game ", Name: "A Game", Shortage: Fail, PendingSupply: &supply, ReleaseAt: &release, CreatedAt: noon})
	if err != nil {
		t.Fatal(err)
	}
	plain, err := createPool(t, db, Pool{Merchant: DefaultMerchant, SKU: "a", CreatedAt: noon})
	if err != nil {
		t.Fatal(err)
	}
	if full.SKU != "game" || plain.Name != "a" || plain.Shortage != Wait {
		t.Errorf("%+v, %+v", full, plain)
	}
	pools, err := Pools(t.Context(), db, DefaultMerchant)
	if diff := cmp.Diff([]Pool{plain, full}, pools, sameTime); diff != "" || err != nil {
		t.Errorf("error %v, pools by SKU (-want +got):\n%s", err, diff)
	}
	one, err := PoolBySKU(t.Context(), db, DefaultMerchant, "game")
	if diff := cmp.Diff(full, one, sameTime); diff != "" || err != nil {
		t.Errorf("error %v, pool (-want +got):\n%s", err, diff)
	}
	if pools, err := Pools(t.Context(), db, "other"); err != nil || len(pools) != 0 {
		t.Errorf("another merchant's: %v, %v", pools, err)
	}
}

func TestPoolErrorsSayWhatToDo(t *testing.T) {
	t.Parallel()
	db, _ := stocked(t, 0)
	for _, tc := range []struct {
		name string
		pool Pool
		err  error
		says string
	}{
		{"a SKU twice", Pool{Merchant: DefaultMerchant, SKU: "game"}, ErrPoolExists, "game"},
		{"a SKU twice, with spaces", Pool{Merchant: DefaultMerchant, SKU: " game"}, ErrPoolExists, "game"},
		{"no SKU", Pool{Merchant: DefaultMerchant}, nil, "needs a SKU"},
		{"a blank SKU", Pool{Merchant: DefaultMerchant, SKU: "  "}, nil, "needs a SKU"},
		{"a merchant that is none", Pool{Merchant: "nobody", SKU: "x"}, ErrNoMerchant, "keytill merchant add"},
	} {
		_, err := createPool(t, db, tc.pool)
		if err == nil || tc.err != nil && !errors.Is(err, tc.err) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	for _, q := range []struct{ merchant, sku string }{{DefaultMerchant, "gam"}, {"other", "game"}, {DefaultMerchant, ""}} {
		if _, err := PoolBySKU(t.Context(), db, q.merchant, q.sku); !errors.Is(err, ErrNoPool) || !strings.Contains(err.Error(), "keytill pool list") {
			t.Errorf("%q: %v", q.sku, err)
		}
	}
}

func TestLockPoolsKeepsOthersOutAndClaimsIn(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 2)
	other := makePool(t, db, "other")
	holder := begin(t, db, pgx.TxOptions{})
	if err := LockPools(t.Context(), holder, DefaultMerchant, []int64{pool.ID}); err != nil {
		t.Fatal(err)
	}
	tx := begin(t, db, pgx.TxOptions{})
	exec(t, tx, `SET LOCAL lock_timeout = '50ms'`)
	if err := LockPools(t.Context(), tx, DefaultMerchant, []int64{other.ID}); err != nil {
		t.Errorf("another pool: %v", err)
	}
	if err := LockPools(t.Context(), tx, DefaultMerchant, []int64{pool.ID}); asPgError(err) == nil || asPgError(err).Code != "55P03" {
		t.Errorf("the same pool: %v", err)
	}
	_ = tx.Rollback(t.Context())
	tx = begin(t, db, pgx.TxOptions{})
	exec(t, tx, `SET LOCAL lock_timeout = '50ms'`)
	if got, err := NewClaimer().Claim(t.Context(), tx, request(pool, units("cs_1", 1))); err != nil || len(got) != 1 {
		t.Errorf("a claim: %v, %v", got, err)
	}
	if err := Map(t.Context(), tx, DefaultMerchant, "price_1", &pool, 1); err != nil {
		t.Errorf("a mapping: %v", err)
	}
	if err := LockPools(t.Context(), tx, DefaultMerchant, nil); err != nil {
		t.Errorf("no pool: %v", err)
	}
}

func TestPoolsAreLockedInOneOrder(t *testing.T) {
	t.Parallel()
	db, a := stocked(t, 0)
	b := makePool(t, db, "b")
	ids := []int64{a.ID, b.ID}
	var group errgroup.Group
	for i := range 4 {
		mine := slices.Clone(ids)
		if i%2 == 1 {
			slices.Reverse(mine)
		}
		group.Go(func() error {
			for range 30 {
				tx, err := db.Begin(t.Context())
				if err != nil {
					return err
				}
				if err := errors.Join(LockPools(t.Context(), tx, DefaultMerchant, mine), tx.Rollback(t.Context())); err != nil {
					return err // a deadlock, if the order were the caller's
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
}

func mapItem(t testing.TB, db *pgxpool.Pool, item string, pool *Pool, perUnit int) error {
	t.Helper()
	return pg.InTx(t.Context(), db, func(tx pgx.Tx) error { return Map(t.Context(), tx, DefaultMerchant, item, pool, perUnit) })
}

func mappings(t testing.TB, db pg.Querier, items ...string) map[string]Mapping {
	t.Helper()
	got, err := Mappings(t.Context(), db, DefaultMerchant, items)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestMappingsSayWhatIsHandedOut(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 0)
	other := makePool(t, db, "other")
	for _, m := range []Mapping{{"price_1", &pool, 3}, {"price_2", &other, 1}, {"price_2", &pool, 2}, {"prod_free", nil, 1}, {"other", &pool, 5}} {
		if err := mapItem(t, db, m.Item, m.Pool, m.PerUnit); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]Mapping{
		"price_1":   {"price_1", &pool, 3},
		"price_2":   {"price_2", &pool, 2}, // mapped again
		"prod_free": {"prod_free", nil, 1},
		"game":      {"game", &pool, 1},  // a pool's SKU names it
		"other":     {"other", &pool, 5}, // unless something is mapped under that name
	}
	got := mappings(t, db, "price_1", "price_2", "prod_free", "game", "other", "price_unknown", "price_1")
	if diff := cmp.Diff(want, got, sameTime); diff != "" {
		t.Errorf("mappings (-want +got):\n%s", diff)
	}
	batch := new(pgx.Batch)
	QueueMappings(batch, DefaultMerchant, []string{"price_1"}).Query(func(rows pgx.Rows) (err error) {
		got, err = CollectMappings(rows, DefaultMerchant)
		return err
	})
	if err := db.SendBatch(t.Context(), batch).Close(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]Mapping{"price_1": want["price_1"]}, got, sameTime); diff != "" {
		t.Errorf("in a batch (-want +got):\n%s", diff)
	}
	items, err := Items(t.Context(), db, DefaultMerchant)
	if diff := cmp.Diff([]Item{{Item: "other", PoolID: &pool.ID, PerUnit: 5}, {Item: "price_1", PoolID: &pool.ID, PerUnit: 3},
		{Item: "price_2", PoolID: &pool.ID, PerUnit: 2}, {Item: "prod_free", PerUnit: 1}}, items); diff != "" || err != nil {
		t.Errorf("error %v, items (-want +got):\n%s", err, diff)
	}
	if got, err := Mappings(t.Context(), db, "other", []string{"price_1", "game"}); err != nil || len(got) != 0 {
		t.Errorf("another merchant's: %v, %v", got, err)
	}
}

func TestMapRefusesWhatCannotBe(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 0)
	for _, tc := range []struct {
		item    string
		perUnit int
		says    string
	}{{"", 1, "name a Stripe price (price_…) or product (prod_…)"}, {"price_1", 0, "from 1 to 100"}, {"price_1", -1, "from 1 to 100"}, {"price_1", 101, "from 1 to 100"}} {
		if err := mapItem(t, db, tc.item, &pool, tc.perUnit); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%q, %d a unit: %v", tc.item, tc.perUnit, err)
		}
	}
	if err := mapItem(t, db, "price_1", &Pool{ID: 99}, 1); err == nil || !strings.Contains(err.Error(), "price_1") {
		t.Errorf("a pool that is none: %v", err)
	}
	if got := mappings(t, db, "price_1"); len(got) != 0 {
		t.Errorf("mapped all the same: %v", got)
	}
	if err := mapItem(t, db, "price_1", &pool, 100); err != nil {
		t.Error(err)
	}
}

// A settle that found an item unmapped and whoever maps it see each other: one waits for the other.
func TestMappingAnItemWaitsForThoseWhoFoundItUnmapped(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 0)
	settles := []pgx.Tx{begin(t, db, pgx.TxOptions{}), begin(t, db, pgx.TxOptions{})}
	for _, tx := range settles { // they do not wait for each other
		if got, err := LockUnmapped(t.Context(), tx, DefaultMerchant, []string{"price_1", "price_2"}); err != nil || len(got) != 0 {
			t.Fatal(got, err)
		}
	}
	if err := mapItem(t, db, "price_3", &pool, 1); err != nil { // nor does another item
		t.Fatal(err)
	}
	mapped := make(chan error, 1)
	go func() { mapped <- mapItem(t, db, "price_2", &pool, 1) }()
	waiting(t, db)
	for i, tx := range settles {
		select {
		case err := <-mapped:
			t.Fatalf("mapped while %d settles had found it unmapped: %v", len(settles)-i, err)
		default:
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-mapped; err != nil {
		t.Fatal(err)
	}
}

func TestASettleThatComesWhileAnItemIsMappedFindsItMapped(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 0)
	mapping := begin(t, db, pgx.TxOptions{})
	if err := Map(t.Context(), mapping, DefaultMerchant, "price_1", &pool, 2); err != nil {
		t.Fatal(err)
	}
	type answer struct {
		found map[string]Mapping
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		var a answer
		a.err = pg.InTx(t.Context(), db, func(tx pgx.Tx) (err error) {
			a.found, err = LockUnmapped(t.Context(), tx, DefaultMerchant, []string{"price_1"})
			return err
		})
		answers <- a
	}()
	waiting(t, db)
	if err := mapping.Commit(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	a := <-answers
	if diff := cmp.Diff(map[string]Mapping{"price_1": {"price_1", &pool, 2}}, a.found, sameTime); diff != "" || a.err != nil {
		t.Errorf("error %v, found (-want +got):\n%s", a.err, diff)
	}
}

func TestMerchants(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	exec(t, db, `UPDATE keytill.merchants SET channels = '{email,hook}'`)
	add := func(id, account string) error { return AddMerchant(t.Context(), db, id, account, noon) }
	if err := add("acme", "acct_1"); err != nil {
		t.Fatal(err)
	}
	if channels := one[[]string](t, db, `SELECT channels FROM keytill.merchants WHERE merchant_id = 'acme'`); len(channels) != 2 {
		t.Errorf("it is served by channels %v, want those of the default merchant", channels)
	}
	for merchant, want := range map[string]string{"acme": "acct_1", DefaultMerchant: ""} {
		if account, err := StripeAccount(t.Context(), db, merchant); account != want || err != nil {
			t.Errorf("%s sells through %q, error %v", merchant, account, err)
		}
	}
	if _, err := StripeAccount(t.Context(), db, "nobody"); !errors.Is(err, ErrNoMerchant) || !strings.Contains(err.Error(), "keytill merchant add") {
		t.Error(err)
	}
	for name, m := range map[string][2]string{"the id again": {"acme", "acct_2"}, "the account again": {"acme2", "acct_1"}, "the default": {DefaultMerchant, "acct_3"}} {
		if err := add(m[0], m[1]); !errors.Is(err, ErrMerchantExists) || !strings.Contains(err.Error(), m[0]) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, id := range []string{"", "A", "a b", "-a", "ä", strings.Repeat("a", 64), "a\n"} {
		if err := add(id, "acct_9"); err == nil || !strings.Contains(err.Error(), "lower-case letters, digits, - and _") {
			t.Errorf("id %q: %v", id, err)
		}
	}
	for _, account := range []string{"", " "} {
		if err := add("empty", account); err == nil || !strings.Contains(err.Error(), "acct_") {
			t.Errorf("account %q, which would be the platform's own: %v", account, err)
		}
	}
}

func TestOneAccountIsOneMerchantsHoweverManyAddItAtOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	errs := make([]error, 6)
	var group errgroup.Group
	for i := range errs {
		group.Go(func() error {
			errs[i] = AddMerchant(t.Context(), db, fmt.Sprint("m", i), "acct_1", noon)
			return nil
		})
	}
	_ = group.Wait()
	added := 0
	for _, err := range errs {
		if err == nil {
			added++
		} else if !errors.Is(err, ErrMerchantExists) {
			t.Error(err)
		}
	}
	if added != 1 {
		t.Errorf("%d were added", added)
	}
}

func TestAMerchantIsAddedAfterThoseWhoAreAddingOne(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	first := begin(t, db, pgx.TxOptions{})
	exec(t, first, `INSERT INTO keytill.merchants (merchant_id, stripe_account, created_at) VALUES ('first', 'acct_1', $1)`, noon)
	added := make(chan error, 1)
	go func() { added <- AddMerchant(t.Context(), db, "second", "acct_1", noon) }()
	waiting(t, db)
	if err := first.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-added; !errors.Is(err, ErrMerchantExists) {
		t.Errorf("two merchants with one account: %v", err)
	}
}
