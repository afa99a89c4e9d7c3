package reconcile_test

import (
	"testing"
	"time"

	"github.com/keytill/keytill/internal/stripefake"
	"github.com/keytill/keytill/reconcile"
)

// happened has Stripe make an event that nobody hears.
func (s *shop) happened(typ, id string) string {
	s.t.Helper()
	event, err := s.stripe.Happened(typ, id)
	s.must(err)
	return event
}

func (s *shop) eventState(id string) (state string) {
	s.t.Helper()
	s.must(s.db.QueryRow(s.t.Context(), `SELECT coalesce((SELECT state FROM keytill.events WHERE event_id = $1), 'none')`, id).Scan(&state))
	return state
}

// A refund that fails weeks later shows in no list of what was made lately, but in the list of events.
func TestAnEventTellsOfWhatIsOlderThanTheWindow(t *testing.T) {
	t.Parallel()
	s := open(t, 9)
	s.buy("cs_1", nil)
	s.must(s.stripe.Refund("re_1", "pi_1", nil))
	s.forward(time.Hour)
	s.sweep(reconcile.Options{})
	s.wants("cs_1", "revoked")
	s.forward(40 * 24 * time.Hour)
	s.sweep(reconcile.Options{})

	s.must(s.stripe.Set("re_1", stripefake.Fields{"status": "failed"}))
	event := s.happened("refund.failed", "re_1")
	s.forward(10 * time.Minute)
	r := s.sweep(reconcile.Options{})
	s.wants("cs_1", "fulfilled")
	if got := s.eventState(event); got != "done" {
		t.Errorf("the event is %s", got)
	}
	if r.ByReason[reconcile.EventMissing] != 1 || r.Late.MaxSeconds != 600 {
		t.Errorf("%+v", r)
	}
	s.stripe.ForgetCalls()
	if r := s.sweep(reconcile.Options{}); r.Differing != 0 || s.stripe.Calls("/v1/refunds/") != 0 {
		t.Errorf("again: %+v", r.Tally)
	}
}

// Made long ago, paid today: neither the walk by creation nor what is open knows of it.
func TestAnEventTellsOfAnOldPaymentThatIsPaidAtLast(t *testing.T) {
	t.Parallel()
	s := open(t, 9)
	s.must(s.stripe.Intent("pi_1", stripefake.Fields{"amount": "1000", "status": "requires_payment_method", "metadata.keytill_lines": "price_game"}))
	s.forward(time.Hour)
	s.sweep(reconcile.Options{})
	s.forward(20 * 24 * time.Hour)
	s.sweep(reconcile.Options{})
	s.must(s.stripe.Set("pi_1", stripefake.Fields{"status": "succeeded"}))
	event := s.happened("payment_intent.succeeded", "pi_1")
	s.forward(10 * time.Minute)
	s.sweep(reconcile.Options{})
	s.wants("pi_1", "fulfilled")
	if got := s.eventState(event); got != "done" {
		t.Errorf("the event is %s", got)
	}
}

// Another application's events on the account are recorded and cost nothing more, now or later.
func TestForeignEventsAreRecordedWithoutASettle(t *testing.T) {
	t.Parallel()
	s := open(t, 9)
	s.forward(time.Hour)
	s.sweep(reconcile.Options{})
	s.must(s.stripe.Intent("pi_foreign", stripefake.Fields{"amount": "1000"}))
	s.must(s.stripe.Refund("re_foreign", "pi_foreign", nil))
	events := []string{s.happened("payment_intent.succeeded", "pi_foreign"), s.happened("charge.refunded", "ch_foreign"),
		s.happened("refund.created", "re_foreign")}
	s.forward(10 * time.Minute)
	s.stripe.ForgetCalls()
	if r := s.sweep(reconcile.Options{}); r.Differing != 0 || r.ByKind[reconcile.Events].Walked != 3 {
		t.Errorf("%+v", r)
	}
	for _, event := range events {
		if got := s.eventState(event); got != "ignored" {
			t.Errorf("event %s is %s", event, got)
		}
	}
	if n := s.stripe.Calls(""); n != 6 {
		t.Errorf("%d calls for six lists", n)
	}
}

func TestAnEventThatCameIsLeftAlone(t *testing.T) {
	t.Parallel()
	s := open(t, 9)
	s.forward(time.Hour)
	s.sweep(reconcile.Options{})
	s.buy("cs_1", nil)
	event := s.happened("checkout.session.completed", "cs_1")
	if _, err := s.db.Exec(t.Context(), `
INSERT INTO keytill.events (merchant_id, event_id, type, object_id, payment, livemode, received_at, next_try_at)
VALUES ('default', $1, 'checkout.session.completed', 'cs_1', 'pi_1', false, $2, $2)`, event, s.now()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.service.Settle(t.Context(), "default", "cs_1"); err != nil {
		t.Fatal(err)
	}
	s.forward(10 * time.Minute)
	if r := s.sweep(reconcile.Options{}); r.Differing != 0 {
		t.Errorf("%+v", r)
	}
}

// The endpoint was off for longer than Stripe lists events: what can be seen of the objects still is.
func TestAnOutageLongerThanStripeKeepsEvents(t *testing.T) {
	t.Parallel()
	s := open(t, 99)
	s.buy("cs_refunded", nil)
	s.buy("cs_bank", stripefake.Fields{"payment_status": "unpaid"})
	s.buy("cs_won", nil)
	s.must(s.stripe.Dispute("dp_1", "pi_won", nil))
	s.forward(time.Hour)
	s.sweep(reconcile.Options{})
	s.wants("cs_won", "suspended")
	for day := range 45 {
		s.forward(24 * time.Hour)
		switch day {
		case 2:
			s.must(s.stripe.Refund("re_1", "pi_refunded", nil))
		case 10:
			s.must(s.stripe.Set("pi_bank", stripefake.Fields{"status": "succeeded"}))
		case 11:
			s.must(s.stripe.Set("dp_1", stripefake.Fields{"status": "won"}))
		case 12:
			s.buy("cs_new", nil)
		}
	}
	s.sweep(reconcile.Options{})
	s.wants("cs_refunded", "revoked")
	s.wants("cs_bank", "fulfilled")
	s.wants("cs_won", "fulfilled")
	s.wants("cs_new", "fulfilled")
}

// Half a year of sweeps later, an open dispute is still looked at, and it costs one call.
func TestWhatIsOpenIsLookedAtHoweverOldItIs(t *testing.T) {
	t.Parallel()
	s := open(t, 99)
	s.buy("cs_1", nil)
	s.buy("cs_2", stripefake.Fields{"payment_status": "unpaid"})
	s.buy("cs_3", nil)
	s.must(s.stripe.Dispute("dp_1", "pi_1", nil))
	s.must(s.stripe.Refund("re_3", "pi_3", stripefake.Fields{"status": "pending"}))
	s.forward(time.Hour)
	s.sweep(reconcile.Options{})
	s.forward(180 * 24 * time.Hour)
	s.sweep(reconcile.Options{})
	s.stripe.ForgetCalls()
	if r := s.sweep(reconcile.Options{}); r.Differing != 0 || r.ByKind[reconcile.Open].Walked != 3 {
		t.Errorf("%+v", r)
	}
	if n := s.stripe.Calls(""); n != 9 {
		t.Errorf("%d calls for six lists and three open things", n)
	}
	s.must(s.stripe.Set("dp_1", stripefake.Fields{"status": "lost"}))
	s.must(s.stripe.Set("pi_2", stripefake.Fields{"status": "succeeded"}))
	s.must(s.stripe.Set("re_3", stripefake.Fields{"status": "failed"}))
	s.sweep(reconcile.Options{})
	s.wants("cs_1", "revoked")
	s.wants("cs_2", "fulfilled")
	s.wants("cs_3", "fulfilled")
}
