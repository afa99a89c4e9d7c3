package integration_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/inventory"
)

// Stock by product, what carts hold by age, and how many found nothing.
func TestTheNumbersOfAShelf(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	l := w.open()
	pool := w.stock(l.shop, "game", 3, 1, "price_game")
	w.must(w.cart(l, pool, "old", 3*time.Hour))
	w.clock.forward(2 * time.Hour)
	w.must(w.cart(l, pool, "young", time.Hour))
	w.must(w.cart(l, pool, "other", time.Minute))
	w.must(w.cart(l, pool, "late", time.Minute)) // sold out
	w.clock.forward(10 * time.Minute)            // the other's time is up
	w.sell("cs_1", "price_game*3")
	w.must(w.buy(l, "cs_1"))

	now := w.clock.now()
	stock, err := inventory.Stock(w.ctx, w.db, pool.Merchant, 0)
	w.must(err)
	if diff := cmp.Diff(inventory.Counts{inventory.Allocated: 1, inventory.Reserved: 2}, stock[pool.ID]); diff != "" {
		t.Errorf("stock (-want +got):\n%s", diff)
	}
	held, err := fulfillment.HeldByPool(w.ctx, w.db, pool.Merchant, now)
	w.must(err)
	want := fulfillment.HeldAge{Keys: 2, Under15m: 1, Older: 1}
	if diff := cmp.Diff(want, held[pool.ID], cmpopts.IgnoreFields(fulfillment.HeldAge{}, "OldestSince")); diff != "" {
		t.Errorf("held (-want +got):\n%s", diff)
	}
	waiting, err := fulfillment.WaitingByPool(w.ctx, w.db, pool.Merchant)
	w.must(err)
	if waiting[pool.ID].Units != 2 || now.Sub(waiting[pool.ID].Since) > time.Minute {
		t.Errorf("waiting %+v", waiting[pool.ID])
	}
	for since, want := range map[time.Duration]fulfillment.SoldOut{3 * time.Hour: {Attempts: 4, SoldOut: 1}, time.Hour: {Attempts: 3, SoldOut: 1}} {
		got, err := fulfillment.SoldOutByPool(w.ctx, w.db, pool.Merchant, now.Add(-since))
		w.must(err)
		if diff := cmp.Diff(want, got[pool.ID]); diff != "" {
			t.Errorf("sold out in %s (-want +got):\n%s", since, diff)
		}
	}
}
