package integration_test

import (
	"fmt"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/keytill/keytill/fulfillment"
)

// Exactly as many buyers as keys: one unit that finds no key, or one key in two hands, shows.
func TestFiftyOrdersAtOnceTakeFiftyKeys(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	l := w.run()
	rounds(t, 3, 20, func(t *testing.T, round int) {
		const orders = 50
		price := fmt.Sprintf("price_fifty%d", round)
		pool := w.stock(l.shop, fmt.Sprintf("fifty%d", round), orders, 1, price)
		var buyers errgroup.Group
		for n := range orders {
			session := fmt.Sprintf("cs_%d_%d", round, n)
			w.sell(session, price+"*1")
			buyers.Go(func() error { return w.tell(l, "checkout.session.completed", session) })
		}
		w.must(buyers.Wait())
		w.must(w.settle(w.ctx))
		w.wantUnits(pool, map[fulfillment.UnitState]int{fulfillment.UnitFulfilled: orders})
	})
	w.hold()
}

func TestSixtyFourClaimersShareFiveKeys(t *testing.T) {
	t.Parallel()
	w := newTown(t, func(w *town) { w.conns = 64 })
	l := w.open()
	rounds(t, 3, 20, func(t *testing.T, round int) {
		const claimers, keys = 64, 5
		price := fmt.Sprintf("price_five%d", round)
		pool := w.stock(l.shop, fmt.Sprintf("five%d", round), keys, 1, price)
		var group errgroup.Group
		for n := range claimers {
			session := fmt.Sprintf("cs_%d_%d", round, n)
			w.sell(session, price+"*1")
			group.Go(func() error {
				_, err := l.shop.Settle(w.ctx, session)
				return err
			})
		}
		w.must(group.Wait())
		w.wantUnits(pool, map[fulfillment.UnitState]int{fulfillment.UnitFulfilled: keys, fulfillment.UnitWaiting: claimers - keys})
	})
	w.hold()
}

// The webhook, the thank-you page, the sweep and the operator can all come at once for one order that nobody has seen yet.
func TestSixtyFourSettlesOfOneOrderTakeOneKeyAUnit(t *testing.T) {
	t.Parallel()
	w := newTown(t, func(w *town) { w.conns = 64 })
	l := w.open()
	rounds(t, 1, 20, func(t *testing.T, round int) {
		price := fmt.Sprintf("price_one%d", round)
		pool := w.stock(l.shop, fmt.Sprintf("one%d", round), 64, 1, price)
		session := fmt.Sprintf("cs_%d", round)
		w.sell(session, price+"*2")
		var group errgroup.Group
		for n := range 64 {
			ref := []string{session, fmt.Sprintf("pi_%d", round), fmt.Sprintf("ch_%d", round)}[n%3]
			group.Go(func() error {
				_, err := l.shop.Settle(w.ctx, ref)
				return overtaken(err)
			})
		}
		w.must(group.Wait())
		w.wantUnits(pool, map[fulfillment.UnitState]int{fulfillment.UnitFulfilled: 2})
	})
	w.hold()
}
