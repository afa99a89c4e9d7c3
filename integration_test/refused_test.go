package integration_test

import (
	"strings"
	"testing"

	"github.com/keytill/keytill/internal/stripefake"
	"github.com/keytill/keytill/inventory"
)

// Stripe calls the question malformed, each time: the event is tried for hours and then ends with a note, and a later
// question, as the sweep's, still finds the payment.
func TestAnEventWhoseReadStripeRefusesComesToAnEnd(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	l := w.open()
	service := l.shop.Service()
	pool := w.stock(l.shop, "game", 1, 1, "price_game")
	w.sell("cs_1", "price_game*1")
	w.must(w.tell(l, "checkout.session.completed", "cs_1"))
	w.stripe.Fail(1_000, stripefake.Fault{Status: 400})

	var event, state, note string
	read := func() {
		w.t.Helper()
		w.must(w.db.QueryRow(w.ctx, `SELECT event_id, state, note FROM keytill.events`).Scan(&event, &state, &note))
	}
	read()
	tries := 0
	for ; state == "pending" && tries < 100; tries++ {
		_ = service.SettleEvent(w.ctx, inventory.DefaultMerchant, event) // its error is in the note
		read()
	}
	if state != "done" || tries < 10 || !strings.HasPrefix(note, "given up: ") {
		t.Errorf("after %d tries the event is %s: %s", tries, state, note)
	}
	w.stripe.Fail(0, stripefake.Fault{})
	order, err := service.Settle(w.ctx, inventory.DefaultMerchant, "cs_1")
	w.must(err)
	if got := order.KeyIDs("fulfilled"); len(got) != 1 {
		t.Errorf("the order of pool %d has the keys %v", pool.ID, got)
	}
	w.hold()
}
