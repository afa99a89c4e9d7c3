package integration_test

import (
	"context"
	"testing"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/internal/stripefake"
	"github.com/keytill/keytill/inventory"
)

// overlap is a paid order, and a settle of it that has read Stripe as it was then and has not gone on yet.
type overlap struct {
	*town
	life *life
	old  *aside
	hold *stripefake.Hold
}

func newOverlap(t *testing.T) *overlap {
	t.Helper()
	w := newTown(t)
	o := &overlap{town: w, life: w.open()}
	w.stock(o.life.shop, "game", 3, 1, "price_game")
	w.sell("cs_1", "price_game*1")
	_, err := o.life.shop.Settle(w.ctx, "cs_1")
	w.must(err)
	o.hold = w.stripe.Hold("/v1/refunds")
	t.Cleanup(o.hold.LetGo)
	o.old = w.settleAside(o.life.shop, "cs_1")
	ctx, cancel := context.WithTimeout(w.ctx, asideTimeout)
	defer cancel()
	w.must(o.hold.Held(ctx))
	w.must(w.stripe.Refund("re_1", "pi_1", nil))
	return o
}

// want compares the state of the one unit.
func (o *overlap) want(state fulfillment.UnitState) {
	o.t.Helper()
	order, err := fulfillment.LoadOrder(o.ctx, o.db, inventory.DefaultMerchant, "cs_1")
	o.must(err)
	if order.Units()[state] != 1 {
		o.t.Errorf("the unit is %v, want %s", order.Units(), state)
	}
}

// Of two settles, the one that read Stripe first may be the last to write. It must not.
func TestOlderReadingDoesNotUndoANewerOne(t *testing.T) {
	t.Parallel()
	o := newOverlap(t)
	_, err := o.life.shop.Settle(o.ctx, "cs_1")
	o.must(err)
	o.want(fulfillment.UnitRevoked)
	o.hold.LetGo()
	o.must(o.old.err(t)) // it has read again
	o.want(fulfillment.UnitRevoked)
	o.town.hold()
}

// An event that is recorded after a settle began to read says something that this settle may not have seen.
func TestEventThatComesDuringAReadIsNotAnsweredByIt(t *testing.T) {
	t.Parallel()
	o := newOverlap(t)
	ev, err := o.stripe.Event("refund.created", "re_1", stripefake.EventOptions{})
	o.must(err)
	status, body, err := o.stripe.Deliver(o.ctx, o.life.url+webhookPath, ev)
	o.must(err)
	o.must(wantStatus(200, status, body))
	o.hold.LetGo()
	o.must(o.old.err(t))
	o.want(fulfillment.UnitFulfilled) // as it was when it was read
	o.must(o.life.shop.Service().SettleEvent(o.ctx, inventory.DefaultMerchant, ev.ID))
	o.want(fulfillment.UnitRevoked)
	o.town.hold()
}
