// Package waiting holds what paid units and carts may count on while there is no stock, or while others are at it, and what
// buyers, storefronts and people of the shop may count on then.
package waiting

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/integration_test/shoptest"
	"github.com/keytill/keytill/internal/pgtest"
	"github.com/keytill/keytill/internal/stripefake"
	"github.com/keytill/keytill/inventory"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// shop is a shop without job workers: what a job would do, a test does.
type shop struct{ *shoptest.Shop }

func open(t *testing.T, keys int) shop {
	t.Helper()
	return shop{shoptest.Open(t, shoptest.Config{Keys: keys})}
}

// pool changes a pool that is there, or makes one.
func (s shop) pool(sku string, change func(*inventory.Pool)) inventory.Pool {
	s.T.Helper()
	p := inventory.Pool{Merchant: inventory.DefaultMerchant, SKU: sku, Shortage: inventory.Wait, CreatedAt: s.Now()}
	if change != nil {
		change(&p)
	}
	s.Must(pgx.BeginFunc(s.T.Context(), s.DB, func(tx pgx.Tx) (err error) {
		p, err = inventory.CreatePool(s.T.Context(), tx, p)
		return err
	}))
	s.Must(s.Service.Map(s.T.Context(), p.Merchant, "price_"+sku, &p, 1))
	return p
}

func (s shop) restock(p inventory.Pool, keys ...string) {
	s.T.Helper()
	_, _, err := s.Service.Import(s.T.Context(), inventory.Import{Pool: p, File: strings.NewReader(strings.Join(keys, "\n")),
		FileName: p.SKU, Actor: "test", At: s.Now()})
	s.Must(err)
}

// buy makes a paid session at Stripe and settles it.
func (s shop) buy(session string, items ...string) fulfillment.Order {
	s.T.Helper()
	parsed, err := stripefake.ParseItems(items...)
	s.Must(err)
	s.Must(s.Stripe.Session(session, parsed, nil))
	order, err := s.Service.Settle(s.T.Context(), inventory.DefaultMerchant, session)
	s.Must(err)
	return order
}

func (s shop) wantUnits(session string, want string) {
	s.T.Helper()
	order, err := fulfillment.LoadOrder(s.T.Context(), s.DB, inventory.DefaultMerchant, session)
	s.Must(err)
	if got := fmt.Sprint(order.Units()); got != want {
		s.T.Errorf("the units of %s are %s, want %s", session, got, want)
	}
}

func (s shop) reserve(ref, sku string, n int) (fulfillment.Held, error) {
	return s.Service.Reserve(s.T.Context(), inventory.DefaultMerchant, fulfillment.Reservation{Ref: ref,
		Lines: []fulfillment.ReservationLine{{SKU: sku, Quantity: n}}})
}

// besideStock leaves a paid unit that waits, and a key on the shelf for it that no job has handed out yet.
func (s shop) besideStock() inventory.Pool {
	s.T.Helper()
	p := s.pool("last", nil)
	s.restock(p, "LAST-1")
	if _, err := s.reserve("cart", "last", 1); err != nil {
		s.T.Fatal(err)
	}
	s.buy("cs_1", "price_last*1")
	s.wantUnits("cs_1", "map[waiting:1]")
	_, err := s.Service.Release(s.T.Context(), p.Merchant, "cart")
	s.Must(err)
	s.wantUnits("cs_1", "map[waiting:1]")
	return p
}

// A key that somebody holds the lock of comes back or goes for good within moments. The units here are the oldest, and
// whoever serves them waits for that.
func TestRestockWaitsForAKeyThatIsLocked(t *testing.T) {
	t.Parallel()
	s := open(t, 1)
	p := s.besideStock()
	holder, err := s.DB.Begin(t.Context())
	s.Must(err)
	defer func() { _ = holder.Rollback(context.Background()) }()
	_, err = holder.Exec(t.Context(), `SELECT FROM keytill.keys WHERE pool_id = $1 FOR UPDATE`, p.ID)
	s.Must(err)
	ended := make(chan error, 1)
	go func() {
		_, err := s.Service.ServeWaiting(t.Context(), p.Merchant, p.ID)
		ended <- err
	}()
	for blocked := 0; blocked == 0; {
		select {
		case err := <-ended:
			t.Fatalf("it did not wait: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
		s.Must(s.DB.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
 WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0`).Scan(&blocked))
	}
	s.Must(holder.Rollback(t.Context()))
	s.Must(<-ended)
	s.wantUnits("cs_1", "map[fulfilled:1]")
}

// The round that runs every minute finds them, whatever became of the job.
func TestUnitsThatWaitBesideStockAreServedWithoutAJob(t *testing.T) {
	t.Parallel()
	s := open(t, 1)
	s.besideStock()
	_, err := s.DB.Exec(t.Context(), `DELETE FROM keytill.river_job`)
	s.Must(err)
	_, err = s.Service.TidyShelf(t.Context())
	s.Must(err)
	s.wantUnits("cs_1", "map[fulfilled:1]")
}

// The stock that would have served it may have been committed in the same moment.
func TestASettleThatLeavesUnitsWaitingLeavesAJobThatServesThem(t *testing.T) {
	t.Parallel()
	s := open(t, 1)
	p := s.pool("none", nil)
	s.buy("cs_1", "price_none*1")
	var jobs int
	s.Must(s.DB.QueryRow(t.Context(), `SELECT count(*) FROM keytill.river_job WHERE kind = 'serve' AND args->>'pool_id' = $1::text`,
		fmt.Sprint(p.ID)).Scan(&jobs))
	if jobs != 1 {
		t.Errorf("%d jobs serve the pool", jobs)
	}
}

func TestReservationsAreBounded(t *testing.T) {
	t.Parallel()
	s := open(t, 200)
	two, three := int64(2), int64(3)
	ahead := s.pool("ahead", func(p *inventory.Pool) { p.PendingSupply = &three })
	few := s.pool("few", func(p *inventory.Pool) { p.MaxReserved = &two })
	s.restock(few, "FEW-1", "FEW-2", "FEW-3")
	waited := s.pool("waited", nil)
	s.restock(waited, "WAITED-1")
	s.buy("cs_1", "price_ahead*1") // one of the three is promised

	if _, err := s.reserve("older", "waited", 1); err != nil {
		t.Fatal(err)
	}
	s.buy("cs_2", "price_waited*1")
	_, err := s.Service.Release(t.Context(), waited.Merchant, "older")
	s.Must(err)

	for _, c := range []struct {
		ref, sku string
		n        int
		want     error
	}{
		{"cart", "game", 101, fulfillment.ErrTooMany},
		{"cart", "game", 100, nil},
		{"full", "few", 3, fulfillment.ErrTooMany},
		{"full", "few", 2, nil},
		{"next", "few", 1, fulfillment.ErrTooMany},
		{"full", "few", 1, nil}, // it asks for less than it has
		{"next", "few", 1, nil},
		{"buyer", ahead.SKU, 3, fulfillment.ErrSoldOut},
		{"buyer", ahead.SKU, 2, nil},
		{"other", ahead.SKU, 1, fulfillment.ErrSoldOut},
		{"newer", "waited", 1, fulfillment.ErrSoldOut}, // its key is a paid unit's
	} {
		if _, err := s.reserve(c.ref, c.sku, c.n); !errors.Is(err, c.want) {
			t.Errorf("%s reserves %d of %s: %v, want %v", c.ref, c.n, c.sku, err, c.want)
		}
	}
}

func TestCartsAtOnceSellAheadNoMoreThanMayBe(t *testing.T) {
	t.Parallel()
	s := open(t, 1)
	three := int64(3)
	s.pool("ahead", func(p *inventory.Pool) { p.PendingSupply = &three })
	const carts = 16
	results := make(chan error, carts)
	for n := range carts {
		go func() {
			_, err := s.reserve(fmt.Sprintf("cart%d", n), "ahead", 1)
			results <- err
		}()
	}
	got := 0
	for range carts {
		switch err := <-results; {
		case err == nil:
			got++
		case !errors.Is(err, fulfillment.ErrSoldOut):
			t.Error(err)
		}
	}
	if got != 3 {
		t.Errorf("%d carts were promised a key, and 3 are to come", got)
	}
}
