package reconcile_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/keytill/keytill/internal/stripefake"
	"github.com/keytill/keytill/inventory"
	"github.com/keytill/keytill/reconcile"
)

func TestWhatNoEventToldOfIsFoundOnceAndSettled(t *testing.T) {
	t.Parallel()
	s := open(t, 9)
	s.buy("cs_paid", nil)
	s.buy("cs_free", stripefake.Fields{"payment_status": "no_payment_required"})
	s.buy("cs_bank", stripefake.Fields{"payment_status": "unpaid"})
	s.buy("cs_cart", stripefake.Fields{"status": "open"})
	s.must(s.stripe.Intent("pi_alone", stripefake.Fields{"amount": "1000", "metadata.keytill_lines": "price_game"}))
	s.must(s.stripe.Intent("pi_foreign", stripefake.Fields{"amount": "1000"}))
	s.forward(6 * time.Minute)

	first := s.sweep(reconcile.Options{})
	s.wants("cs_paid", "fulfilled")
	s.wants("cs_free", "fulfilled")
	s.wants("cs_bank", "pending")
	s.wants("cs_cart", "none")
	s.wants("pi_alone", "fulfilled")
	s.wants("pi_foreign", "none")
	if first.Differing != 4 || first.Repaired != 4 || first.Failed != 0 || first.ByKind[reconcile.Sessions].Repaired != 3 {
		t.Errorf("first sweep: %+v", first.Tally)
	}
	if first.Late.MaxSeconds != 360 || first.Late.MedianSeconds != 360 {
		t.Errorf("late: %+v", first.Late)
	}

	s.stripe.ForgetCalls()
	second := s.sweep(reconcile.Options{})
	if second.Differing != 0 || second.Repaired != 0 {
		t.Errorf("second sweep: %+v", second.Tally)
	}
	if n := s.stripe.Calls(""); n > 6 {
		t.Errorf("a sweep of nothing new made %d calls", n)
	}

	s.must(s.stripe.Set("pi_bank", stripefake.Fields{"status": "succeeded"}))
	s.must(s.stripe.Refund("re_1", "pi_paid", nil))
	s.must(s.stripe.Dispute("dp_1", "pi_alone", nil))
	s.forward(6 * time.Minute)
	s.sweep(reconcile.Options{})
	s.wants("cs_bank", "fulfilled")
	s.wants("cs_paid", "revoked")
	s.wants("pi_alone", "suspended")
}

func TestAYoungPaymentBelongsToTheWebhook(t *testing.T) {
	t.Parallel()
	s := open(t, 9)
	s.forward(time.Hour)
	s.sweep(reconcile.Options{})
	s.buy("cs_1", nil)
	s.forward(4 * time.Minute)
	if r := s.sweep(reconcile.Options{}); r.Differing != 0 {
		t.Errorf("%+v", r.Tally)
	}
	s.wants("cs_1", "none")
	s.forward(61 * time.Second)
	s.sweep(reconcile.Options{})
	s.wants("cs_1", "fulfilled")
}

// The day before, sessions were made; the first pool came later, and what was sold before it is nobody's order.
func TestTheFirstSweepGoesBackToTheFirstPoolOrAsFarAsAsked(t *testing.T) {
	t.Parallel()
	s := open(t, 9)
	s.forward(10 * 24 * time.Hour)
	s.buy("cs_old", nil)
	s.forward(5 * 24 * time.Hour)
	s.buy("cs_new", nil)
	s.forward(time.Hour)
	s.sweep(reconcile.Options{Since: 72 * time.Hour})
	s.wants("cs_old", "none")
	s.wants("cs_new", "fulfilled")
	s.sweep(reconcile.Options{Since: 30 * 24 * time.Hour})
	s.wants("cs_old", "fulfilled")

	empty := open(t, 0)
	if _, err := empty.db.Exec(t.Context(), `DELETE FROM keytill.price_map; DELETE FROM keytill.stock; DELETE FROM keytill.pools`); err != nil {
		t.Fatal(err)
	}
	empty.buy("cs_1", nil)
	empty.forward(time.Hour)
	if r := empty.sweep(reconcile.Options{}); r.Walked != 0 || empty.stripe.Calls("") != 0 {
		t.Errorf("without a pool: %+v", r.Tally)
	}
}

// Of many that were not heard of, the oldest payments come to the keys there are.
func TestTheOldestPaymentsComeToTheirKeysFirst(t *testing.T) {
	t.Parallel()
	s := open(t, 120)
	s.buyMany(0, 250)
	s.forward(time.Hour)
	s.sweep(reconcile.Options{})
	early := s.count(`SELECT count(*) FROM keytill.fulfilments f JOIN keytill.orders o USING (merchant_id, order_id)
 WHERE f.state = 'fulfilled' AND o.placed_at < $1`, s.now().Add(-time.Hour-130*time.Second))
	if early < 116 { // four are settled at once
		t.Errorf("%d of the first 120 payments have the 120 keys", early)
	}
}

func TestADryRunTellsAndChangesNothing(t *testing.T) {
	t.Parallel()
	s := open(t, 9)
	s.buy("cs_1", nil)
	s.forward(10 * time.Minute)
	r := s.sweep(reconcile.Options{DryRun: true})
	if len(r.Payments) != 1 || r.Payments[0].Ref != "cs_1" || r.Differing != 1 || r.Repaired != 0 {
		t.Errorf("%+v", r)
	}
	s.wants("cs_1", "none")
	for _, table := range []string{"sweeps", "sweep_cursors", "sweep_spans", "sweep_todo", "sweep_leases", "sweep_looked", "events"} {
		if n := s.count(`SELECT count(*) FROM keytill.` + table); n != 0 {
			t.Errorf("%d rows in %s", n, table)
		}
	}
	s.sweep(reconcile.Options{})
	s.wants("cs_1", "fulfilled")
}

func TestTwoProcessesNeverSweepOneMerchant(t *testing.T) {
	t.Parallel()
	s := open(t, 9)
	s.buy("cs_1", nil)
	s.forward(10 * time.Minute)
	hold := s.stripe.Hold("/v1/checkout/sessions")
	done := make(chan error)
	go func() {
		_, err := s.newSweeper(nil).Sweep(t.Context(), "default", reconcile.Options{})
		done <- err
	}()
	s.must(hold.Held(t.Context()))
	if _, err := s.sweeper.Sweep(t.Context(), "default", reconcile.Options{}); !errors.Is(err, reconcile.ErrBusy) {
		t.Errorf("beside another: %v", err)
	}
	if _, err := s.sweeper.Sweep(t.Context(), "default", reconcile.Options{DryRun: true}); err != nil {
		t.Errorf("a dry run changes nothing, and may: %v", err)
	}
	hold.LetGo()
	s.must(<-done)
	s.sweep(reconcile.Options{})
}

// A process that stood still past its lease must not write over what its successor noted.
func TestASweepThatLostItsLeaseStops(t *testing.T) {
	t.Parallel()
	s := open(t, 9)
	s.buy("cs_1", nil)
	s.forward(10 * time.Minute)
	hold := s.stripe.Hold("/v1/checkout/sessions")
	done := make(chan error)
	go func() {
		_, err := s.newSweeper(nil).Sweep(t.Context(), "default", reconcile.Options{})
		done <- err
	}()
	s.must(hold.Held(t.Context()))
	s.forward(6 * time.Minute)
	s.sweep(reconcile.Options{})
	hold.LetGo()
	if err := <-done; err == nil {
		t.Error("the first went on")
	}
	s.wants("cs_1", "fulfilled")
	if n := s.count(`SELECT count(*) FROM keytill.sweep_spans`); n != 0 {
		t.Errorf("%d spans are left", n)
	}
}

func TestEachMerchantIsSweptInItsOwnAccount(t *testing.T) {
	t.Parallel()
	s := open(t, 9)
	s.must(s.stripe.Account("acct_b", nil))
	s.must(inventory.AddMerchant(t.Context(), s.db, "b", "acct_b", s.now()))
	s.pool("b", "game", "price_game", 9)
	s.buy("cs_a", nil)
	s.buy("cs_b", stripefake.Fields{"account": "acct_b"})
	s.forward(10 * time.Minute)
	s.sweep(reconcile.Options{})
	s.wants("cs_a", "fulfilled")
	if n := s.fulfilled(); n != 1 {
		t.Errorf("%d units have keys after the sweep of one merchant", n)
	}
	if _, err := s.sweeper.Sweep(t.Context(), "b", reconcile.Options{}); err != nil {
		t.Fatal(err)
	}
	if n := s.fulfilled(); n != 2 {
		t.Errorf("%d units have keys after the sweep of both", n)
	}
	if merchants, err := s.sweeper.Merchants(t.Context()); err != nil || len(merchants) != 2 {
		t.Errorf("merchants %v, error %v", merchants, err)
	}
}

// A subscription's first payment looks like a sale of keys: its PaymentIntent says so, its session does not.
func TestWhatIsNoOrderIsNotLookedAtAgainUntilItChanges(t *testing.T) {
	t.Parallel()
	s := open(t, 9)
	s.buy("cs_sub", stripefake.Fields{"mode": "subscription", "payment_intent": "pi_sub"})
	s.must(s.stripe.Intent("pi_sub", stripefake.Fields{"amount": "1000", "metadata.keytill_lines": "price_game"}))
	s.forward(10 * time.Minute)
	if r := s.sweep(reconcile.Options{}); r.Ignored != 1 || r.Repaired != 0 || r.Failed != 0 {
		t.Errorf("first: %+v", r.Tally)
	}
	s.stripe.ForgetCalls()
	s.forward(15 * time.Minute)
	if r := s.sweep(reconcile.Options{}); r.Differing != 0 || r.Known != 1 {
		t.Errorf("second: %+v", r.Tally)
	}
	if n := s.stripe.Calls("/v1/checkout/sessions/"); n != 0 {
		t.Errorf("%d reads of a payment that is known", n)
	}
	s.must(s.stripe.Set("pi_sub", stripefake.Fields{"amount_received": "900"}))
	s.forward(15 * time.Minute)
	if r := s.sweep(reconcile.Options{}); r.Differing != 1 || r.Ignored != 1 {
		t.Errorf("changed: %+v", r.Tally)
	}
}

// Captured for less than the order asks: a person must look at it, and no sweep can help.
func TestWhatASettleCannotHelpIsSettledTwiceAtMost(t *testing.T) {
	t.Parallel()
	s := open(t, 9)
	s.buy("cs_1", stripefake.Fields{"intent.amount_received": "400"})
	for i := range 4 {
		s.forward(15 * time.Minute)
		r := s.sweep(reconcile.Options{})
		if i >= 2 && (r.Differing != 0 || r.Known == 0) {
			t.Errorf("sweep %d: %+v", i+1, r.Tally)
		}
		if !r.OK() {
			t.Errorf("sweep %d: %+v", i+1, r.Tally)
		}
	}
	s.wants("cs_1", "pending")
}

func TestAReportIsKept(t *testing.T) {
	t.Parallel()
	var told []reconcile.Report
	s := open(t, 9)
	s.sweeper = s.newSweeper(func(c *reconcile.Config) { c.Reported = func(r reconcile.Report) { told = append(told, r) } })
	s.buy("cs_1", nil)
	s.forward(10 * time.Minute)
	s.sweep(reconcile.Options{})
	s.forward(time.Minute)
	s.sweep(reconcile.Options{})
	kept, err := s.sweeper.Reports(t.Context(), "default", 10)
	s.must(err)
	if len(kept) != 2 || kept[1].Repaired != 1 || kept[0].Repaired != 0 || kept[1].ByReason[reconcile.PaidWithoutOrder] != 1 || len(told) != 2 {
		t.Errorf("kept %+v, told %d", kept, len(told))
	}
}

func TestProgressIsTold(t *testing.T) {
	t.Parallel()
	s := open(t, 9)
	s.buyMany(0, 5)
	s.forward(10 * time.Minute)
	var told []reconcile.Progress
	s.sweep(reconcile.Options{Progress: func(p reconcile.Progress) { told = append(told, p) }})
	var settled bool
	for _, p := range told {
		if p.Part < 0 || p.Part > 1 {
			t.Errorf("%+v", p)
		}
		settled = settled || p.Kind == "" && p.Count == 5 && p.Part == 1
	}
	if !settled {
		t.Errorf("%+v", told)
	}
}

func TestAStoppedSweepSaysSoAndFreesTheLease(t *testing.T) {
	t.Parallel()
	s := open(t, 9)
	s.buy("cs_1", nil)
	s.forward(10 * time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	heal := s.failing(func(r *http.Request) *stripefake.Fault {
		if strings.HasPrefix(r.URL.Path, "/v1/checkout") {
			cancel()
		}
		return nil
	})
	if _, err := s.sweeper.Sweep(ctx, "default", reconcile.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	heal()
	s.sweep(reconcile.Options{})
	s.wants("cs_1", "fulfilled")
}
