package wire

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/integration_test/shoptest"
	"github.com/keytill/keytill/internal/stripefake"
	"github.com/keytill/keytill/inventory"
)

// settleLast works the round's newest event, as its job does and does again.
func settleLast(ctx context.Context, r *round, by *shoptest.Shop) error {
	return by.Service.SettleEvent(ctx, merchant, r.events[len(r.events)-1])
}

// A settle makes an order and gives it keys. Overlapped, the other keytill hears of a refund.
var settleNew = operation{
	name:  "settle a new order",
	stock: func(w *world) { w.fill("full", 200) },
	begin: func(r *round) {
		r.forward(shoptest.Grace)
		r.told("checkout.session.completed", r.sell("price_full*2", nil))
	},
	run:       settleLast,
	meanwhile: refundAndSettle,
	end: func(r *round) {
		r.wantDone()
		if r.overlapped() {
			r.wantUnits(r.orders[0], units(2, fulfillment.UnitRevoked))
			return
		}
		r.wantUnits(r.orders[0], units(2, fulfillment.UnitFulfilled))
		r.wantTold(r.orders[0], "email keys.ready", "hook fulfillment.completed")
	},
}

// atOnce is how many sales are settled at the same time.
const atOnce = 4

// Sales that are settled at the same time share a transaction; one that fails does not take the others with it. How many fall
// into one is chance.
var settleMany = operation{
	name:  "settle new orders together",
	stock: settleNew.stock,
	begin: func(r *round) {
		r.forward(shoptest.Grace)
		for range atOnce {
			r.told("checkout.session.completed", r.sell("price_full*1", nil))
		}
	},
	run: func(ctx context.Context, r *round, by *shoptest.Shop) error {
		var all errgroup.Group
		for _, id := range r.events {
			all.Go(func() error { return by.Service.SettleEvent(ctx, merchant, id) })
		}
		return all.Wait()
	},
	meanwhile: refundAndSettle,
	end: func(r *round) {
		r.wantDone()
		for i, order := range r.orders {
			if i == 0 && r.overlapped() {
				r.wantUnits(order, units(1, fulfillment.UnitRevoked))
				continue
			}
			r.wantUnits(order, units(1, fulfillment.UnitFulfilled))
			r.wantTold(order, "email keys.ready", "hook fulfillment.completed")
		}
	},
	loose: true,
}

func refundAndSettle(ctx context.Context, r *round, by *shoptest.Shop) error {
	if err := by.Stripe.Refund(r.name("re", 0), intent(r.orders[0]), nil); err != nil {
		return err
	}
	_, err := by.Service.Settle(ctx, merchant, r.orders[0])
	return err
}

// The storefront asks for a settle itself, and shows the keys.
var thankYou = operation{
	name:  "settle for the thank-you page",
	stock: settleNew.stock,
	begin: func(r *round) {
		r.forward(shoptest.Grace)
		r.sell("price_full*2", nil)
	},
	run: func(ctx context.Context, r *round, by *shoptest.Shop) error {
		order, err := by.Service.Settle(ctx, merchant, r.orders[0])
		if err != nil {
			return err
		}
		keys, err := by.Service.Keys(ctx, merchant, order, fulfillment.UnitFulfilled)
		if err == nil && order.Payment == fulfillment.Paid && len(keys) != 2 {
			err = errors.New("the page shows other than two keys")
		}
		return err
	},
	end: func(r *round) {
		r.wantUnits(r.orders[0], units(2, fulfillment.UnitFulfilled))
		r.wantTold(r.orders[0], "email keys.ready", "hook fulfillment.completed")
	},
}

// A settle takes keys back. Overlapped, the refund fails at the buyer's bank, and the same keys are given back.
var settleRefund = operation{
	name:  "settle a refund that revokes",
	stock: settleNew.stock,
	begin: func(r *round) {
		r.forward(shoptest.Grace)
		session := r.sell("price_full*2", nil)
		r.settled(session)
		r.keys = append(r.keys, r.keyOf(session))
		r.shop.Must(r.shop.Stripe.Refund(r.name("re", 0), intent(session), nil))
		r.told("charge.refunded", "ch_"+session[len("cs_"):])
	},
	run: settleLast,
	meanwhile: func(ctx context.Context, r *round, by *shoptest.Shop) error {
		if err := by.Stripe.Set(r.name("re", 0), stripefake.Fields{"status": "failed"}); err != nil {
			return err
		}
		_, err := by.Service.Settle(ctx, merchant, r.orders[0])
		return err
	},
	end: func(r *round) {
		r.wantDone()
		if key := r.keyOf(r.orders[0]); key != r.keys[0] {
			r.t.Errorf("its key was %d and is %d", r.keys[0], key)
		}
		if r.overlapped() {
			r.wantUnits(r.orders[0], units(2, fulfillment.UnitFulfilled))
			return
		}
		r.wantUnits(r.orders[0], units(2, fulfillment.UnitRevoked))
		r.wantTold(r.orders[0], "email keys.ready", "hook fulfillment.completed", "hook key.revoked")
	},
}

// A settle finds no key, and its units wait. Overlapped, the other keytill brings the stock just then. In the end each round
// leaves the shelf as empty as it was.
var settleWaiting = operation{
	name: "settle an order that waits",
	begin: func(r *round) {
		r.forward(shoptest.Grace)
		r.told("checkout.session.completed", r.sell("price_dry*2", nil))
	},
	run: settleLast,
	meanwhile: func(ctx context.Context, r *round, by *shoptest.Shop) error {
		_, _, err := by.Service.Import(ctx, inventory.Import{Pool: r.pools["dry"], File: r.newFile(2), FileName: r.name("file", 0), Actor: "test"})
		return err
	},
	end: func(r *round) {
		r.wantDone()
		r.serveJobs()
		if !r.overlapped() {
			r.wantUnits(r.orders[0], units(2, fulfillment.UnitWaiting))
			r.wantTold(r.orders[0], "hook fulfillment.waiting")
			r.fill("dry", 2)
		}
		r.wantUnits(r.orders[0], units(2, fulfillment.UnitFulfilled))
	},
}

// serveJobs works the jobs that serve a pool's waiting units, which there must be where units wait.
func (r *round) serveJobs() {
	r.t.Helper()
	for _, pool := range collect[int64](r.world, `
DELETE FROM keytill.river_job WHERE kind = 'serve' RETURNING (args->>'pool_id')::bigint`) {
		_, err := r.shop.Service.ServeWaiting(r.t.Context(), merchant, pool)
		r.shop.Must(err)
	}
}

// A settle takes the key that a cart holds for it. Overlapped, another order takes the last free one.
var settleHeld = operation{
	name: "settle an order with a hold",
	begin: func(r *round) {
		r.forward(shoptest.Grace)
		r.fill("dry", 2)
		ref := r.name("cart", 0)
		_, err := r.shop.Service.Reserve(r.t.Context(), merchant, fulfillment.Reservation{Ref: ref,
			Lines: []fulfillment.ReservationLine{{SKU: "dry", Quantity: 1}}})
		r.shop.Must(err)
		r.keys = collect[int64](r.world, `SELECT key_id FROM keytill.keys WHERE reserved_for = $1`, ref)
		r.sell("price_dry*1", nil) // the other
		r.told("checkout.session.completed", r.sell("price_dry*1", stripefake.Fields{"client_reference_id": ref}))
	},
	run: settleLast,
	meanwhile: func(ctx context.Context, r *round, by *shoptest.Shop) error {
		_, err := by.Service.Settle(ctx, merchant, r.orders[0])
		return err
	},
	end: func(r *round) {
		r.wantDone()
		r.settled(r.orders[0])
		r.serveJobs()
		r.wantUnits(r.orders[0], units(1, fulfillment.UnitFulfilled))
		r.wantUnits(r.orders[1], units(1, fulfillment.UnitFulfilled))
		if key := r.keyOf(r.orders[1]); key != r.keys[0] {
			r.t.Errorf("key %d was held for it and it has %d", r.keys[0], key)
		}
		r.wantCount("holds", 0, `SELECT count(*) FROM keytill.reservations`)
	},
}
