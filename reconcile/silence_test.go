package reconcile_test

import (
	"strings"
	"testing"
	"time"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/internal/stripefake"
	"github.com/keytill/keytill/reconcile"
)

// silence is the detail of the open finding, or nothing.
func (s *shop) silence() string {
	s.t.Helper()
	findings, err := fulfillment.Findings(s.t.Context(), s.db, "default")
	s.must(err)
	for _, f := range findings {
		if f.Kind == fulfillment.Silence {
			return f.Detail
		}
	}
	return ""
}

// hears has the inbox receive an event.
func (s *shop) hears(id string) {
	s.t.Helper()
	_, err := s.db.Exec(s.t.Context(), `
INSERT INTO keytill.events (merchant_id, event_id, type, object_id, payment, livemode, received_at, next_try_at, state, done_at)
VALUES ('default', $1, 'charge.refunded', 'ch_x', 'pi_x', false, $2, $2, 'ignored', $2)`, id, s.now())
	s.must(err)
}

func TestPaymentsWithoutEventsAreAnAlarm(t *testing.T) {
	t.Parallel()
	s := open(t, 99)
	s.must(s.stripe.WebhookEndpoint("we_1", stripefake.Fields{"status": "disabled"}))
	s.hears("evt_1")
	s.forward(5 * time.Hour)
	s.buy("cs_1", nil)
	s.forward(30 * time.Minute)
	s.sweep(reconcile.Options{})
	if got := s.silence(); got != "" {
		t.Errorf("after five and a half hours: %s", got)
	}
	s.forward(time.Hour)
	r := s.sweep(reconcile.Options{DryRun: true})
	if got := s.silence(); got != "" || r.Silence == "" {
		t.Errorf("a dry run: finding %q, report %q", got, r.Silence)
	}
	r = s.sweep(reconcile.Options{})
	got := s.silence()
	if got != r.Silence || !strings.Contains(got, "1 payments") || !strings.Contains(got, "we_1") || !strings.Contains(got, "DISABLED") {
		t.Errorf("finding %q, report %q", got, r.Silence)
	}
	s.hears("evt_2")
	s.sweep(reconcile.Options{})
	if got := s.silence(); got != "" {
		t.Errorf("once events come again: %s", got)
	}
}

func TestNoPaymentsNoAlarm(t *testing.T) {
	t.Parallel()
	s := open(t, 99)
	s.buy("cs_1", nil)
	s.forward(time.Minute)
	s.hears("evt_1")
	s.forward(72 * time.Hour)
	s.sweep(reconcile.Options{})
	if got := s.silence(); got != "" {
		t.Errorf("%s", got)
	}
}

// What a sweep found in Stripe's list is no sign of life of the endpoint.
func TestEventsThatASweepFoundDoNotEndTheSilence(t *testing.T) {
	t.Parallel()
	s := open(t, 99)
	s.forward(time.Hour)
	s.sweep(reconcile.Options{})
	for range 3 {
		s.forward(3 * time.Hour)
		s.buy("cs_"+s.now().Format("15"), nil)
		s.happened("checkout.session.completed", "cs_"+s.now().Format("15"))
	}
	for range 2 { // the second knows of the events that the first found
		s.forward(time.Hour)
		s.sweep(reconcile.Options{})
		if got := s.silence(); !strings.Contains(got, "no webhook endpoint") {
			t.Errorf("finding %q", got)
		}
	}
}

func TestTheAlarmWorksWithAKeyThatMayNotReadEndpoints(t *testing.T) {
	t.Parallel()
	s := open(t, 99)
	s.stripe.Fail(1, stripefake.Fault{Path: "/v1/webhook_endpoints", Status: 403})
	s.forward(time.Hour)
	s.buy("cs_1", nil)
	s.forward(12 * time.Hour)
	s.sweep(reconcile.Options{})
	if got := s.silence(); !strings.Contains(got, "may not read the webhook endpoints") {
		t.Errorf("finding %q", got)
	}
}
