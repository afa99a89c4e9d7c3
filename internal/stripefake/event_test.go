package stripefake

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v76"
	"github.com/stripe/stripe-go/v76/webhook"
)

// verify reads a payload as an endpoint does.
func verify(payload []byte, header, secret string) (stripe.Event, error) {
	return webhook.ConstructEventWithOptions(payload, header, secret, webhook.ConstructEventOptions{IgnoreAPIVersionMismatch: true})
}

func TestEventVerifiesWithTheSecretThatSignedIt(t *testing.T) {
	t.Parallel()
	s := New(Config{})
	must(t, s.Session("cs_1", mustItems(t, "price_game*1"), nil))
	for _, tc := range []struct {
		o    EventOptions
		with int
		want error
	}{
		{EventOptions{}, 0, nil},
		{EventOptions{Secret: 1}, 0, nil},
		{EventOptions{Secret: 2}, 1, nil},
		{EventOptions{Secret: 2}, 0, webhook.ErrNoValidSignature},
		{EventOptions{Secret: WrongSecret}, 0, webhook.ErrNoValidSignature},
		{EventOptions{Age: 10 * time.Minute}, 0, webhook.ErrTooOld},
		{EventOptions{Age: -20 * time.Minute}, 0, nil}, // the library lets the future pass
	} {
		ev, err := s.Event("checkout.session.completed", "cs_1", tc.o)
		must(t, err)
		got, err := verify(ev.Payload, ev.Header, s.Secrets()[tc.with])
		if !errors.Is(err, tc.want) {
			t.Errorf("%+v: got %v, want %v", tc.o, err, tc.want)
		}
		if err == nil && (got.ID != ev.ID || got.Type != "checkout.session.completed" || got.GetObjectValue("id") != "cs_1" || got.APIVersion != stripe.APIVersion) {
			t.Errorf("got %+v", got)
		}
	}
	if _, err := s.Event("x", "cs_1", EventOptions{Secret: 3}); err == nil {
		t.Error("there is a third secret")
	}
	if _, err := s.Event("x", "cs_0", EventOptions{}); err == nil {
		t.Error("an event about nothing")
	}
}

func TestEventSaysWhereItsObjectIs(t *testing.T) {
	t.Parallel()
	s := New(Config{})
	yes := true
	must(t, s.Session("cs_1", nil, nil))
	must(t, s.Session("cs_2", nil, Fields{"account": "acct_1", "livemode": "true"}))
	for _, tc := range []struct {
		id              string
		o               EventOptions
		account         string
		live            bool
		version, inside any
	}{
		{"cs_1", EventOptions{}, "", false, "2023-10-16", false},
		{"cs_2", EventOptions{}, "acct_1", true, "2023-10-16", true},
		{"cs_2", EventOptions{Account: NoAccount, APIVersion: "2025-09-30.clover"}, "", true, "2025-09-30.clover", true},
		{"cs_1", EventOptions{Account: "acct_9", Livemode: &yes, APIVersion: NullVersion}, "acct_9", true, nil, false},
	} {
		ev, err := s.Event("checkout.session.completed", tc.id, tc.o)
		must(t, err)
		m, err := decodeObject(ev.Payload)
		must(t, err)
		account, _ := m["account"].(string)
		if account != tc.account || m["livemode"] != tc.live || m["api_version"] != tc.version || at(m, []string{"data", "object", "livemode"}) != tc.inside {
			t.Errorf("%s %+v: got %s", tc.id, tc.o, ev.Payload)
		}
	}
}

func TestSnapshotStaysAsItWas(t *testing.T) {
	t.Parallel()
	s := New(Config{})
	must(t, s.Session("cs_1", nil, Fields{"payment_status": "unpaid"}))
	early, err := s.Snapshot("cs_1")
	must(t, err)
	first, err := s.Event("checkout.session.completed", "cs_1", EventOptions{ID: "evt_same"})
	must(t, err)
	must(t, s.Set("cs_1", Fields{"payment_status": "paid"}))
	says := func(want, id string, o EventOptions) Event {
		t.Helper()
		ev, err := s.Event("checkout.session.completed", id, o)
		must(t, err)
		if m, _ := decodeObject(ev.Payload); at(m, []string{"data", "object", "payment_status"}) != want {
			t.Errorf("want %s, got %s", want, ev.Payload)
		}
		return ev
	}
	says("paid", "cs_1", EventOptions{})
	says("unpaid", "", EventOptions{Snapshot: early})
	again := says("unpaid", "cs_1", EventOptions{ID: "evt_same"}) // sent again is sent as it was
	if string(again.Payload) != string(first.Payload) {
		t.Errorf("got %s\nfirst %s", again.Payload, first.Payload)
	}
	if _, err := s.Event("charge.refunded", "cs_1", EventOptions{ID: "evt_same"}); err == nil {
		t.Error("two events have one id")
	}
}

func TestDeliverySignsAnewAndSettlesTheWebhook(t *testing.T) {
	t.Parallel()
	c := newClock()
	s, api := start(t, Config{Now: c.now})
	must(t, s.Session("cs_1", mustItems(t, "price_game*1"), nil))
	answer := http.StatusServiceUnavailable
	var sigs []string
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		sig := r.Header.Get("Stripe-Signature")
		if _, err := webhook.ConstructEventWithOptions(body, sig, s.Secrets()[0], webhook.ConstructEventOptions{IgnoreTolerance: true}); err != nil {
			t.Error(err)
		}
		sigs = append(sigs, sig)
		w.WriteHeader(answer)
		_, _ = w.Write([]byte("well"))
	}))
	defer hook.Close()
	ev, err := s.Event("checkout.session.completed", "cs_1", EventOptions{})
	must(t, err)
	_, err = s.Happened("payment_intent.succeeded", "pi_1")
	must(t, err)
	c.move(time.Hour)
	deliver := func(want int) {
		t.Helper()
		if status, body, err := s.Deliver(context.Background(), hook.URL, ev); err != nil || status != want || string(body) != "well" {
			t.Errorf("got %d %s %v", status, body, err)
		}
	}
	pending := func(ok bool) (types string) {
		it := api.Events.List(&stripe.EventListParams{DeliverySuccess: stripe.Bool(ok)})
		for it.Next() {
			types += string(it.Event().Type) + " "
		}
		must(t, it.Err())
		return types
	}
	deliver(503)
	if got := pending(false); got != "payment_intent.succeeded checkout.session.completed " {
		t.Errorf("pending: %s", got)
	}
	c.move(time.Hour)
	answer = http.StatusOK
	deliver(200)
	if got := pending(true); got != "checkout.session.completed " {
		t.Errorf("delivered: %s", got)
	}
	if got := pending(false); got != "payment_intent.succeeded " {
		t.Errorf("pending: %s", got)
	}
	if len(sigs) != 2 || sigs[0] == sigs[1] || sigs[0] == ev.Header {
		t.Errorf("got signatures %v, first %s", sigs, ev.Header)
	}
	if _, _, err := s.Deliver(context.Background(), "http://127.0.0.1:1/", ev); err == nil {
		t.Error("delivered to nobody")
	}
}

func TestEventsReachBackThirtyDays(t *testing.T) {
	t.Parallel()
	c := newClock()
	s, api := start(t, Config{Now: c.now})
	must(t, s.Session("cs_1", nil, nil))
	old, err := s.Happened("checkout.session.completed", "cs_1")
	must(t, err)
	c.move(20 * 24 * time.Hour)
	young, err := s.Happened("charge.refunded", "cs_1")
	must(t, err)
	if got := listed(t, s, "events"); got != young+" "+old {
		t.Error(got)
	}
	if got := listed(t, s, "events?types[]=charge.refunded&types[]=refund.created"); got != young {
		t.Error(got)
	}
	if got := listed(t, s, "events?type=checkout.session.completed"); got != old {
		t.Error(got)
	}
	c.move(11 * 24 * time.Hour)
	if got := listed(t, s, "events"); got != young {
		t.Error(got)
	}
	_, err = api.Events.Get(old, nil)
	refused(t, err, 404, stripe.ErrorCodeResourceMissing)
	ev, err := api.Events.Get(young, nil)
	must(t, err)
	if ev.GetObjectValue("id") != "cs_1" || ev.PendingWebhooks != 1 {
		t.Errorf("got %+v", ev)
	}
}

func TestPayloadIsNotEscapedForHTML(t *testing.T) {
	t.Parallel()
	s := New(Config{})
	must(t, s.Session("cs_1", nil, Fields{"metadata.note": "<a> & b"}))
	ev, err := s.Event("checkout.session.completed", "cs_1", EventOptions{})
	must(t, err)
	if !strings.Contains(string(ev.Payload), "<a> & b") || !json.Valid(ev.Payload) {
		t.Errorf("got %s", ev.Payload)
	}
}
