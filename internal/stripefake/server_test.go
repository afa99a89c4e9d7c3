package stripefake

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v76"
	"github.com/stripe/stripe-go/v76/client"
)

// start makes a fake and a client of it that retries nothing.
func start(t *testing.T, cfg Config) (*Server, *client.API) {
	t.Helper()
	s := Start(cfg)
	t.Cleanup(s.Close)
	return s, clientOf(s, s.APIKey())
}

func clientOf(s *Server, key string) *client.API {
	return client.New(key, &stripe.Backends{API: stripe.GetBackendWithConfig(stripe.APIBackend, &stripe.BackendConfig{
		URL:               stripe.String(s.URL()),
		MaxNetworkRetries: stripe.Int64(0),
		HTTPClient:        &http.Client{Timeout: 10 * time.Second},
		LeveledLogger:     &stripe.LeveledLogger{Level: stripe.LevelNull},
		EnableTelemetry:   stripe.Bool(false),
	})})
}

// must fails the test on an error of a maker.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// refused checks that a call was answered with this status and code.
func refused(t *testing.T, err error, status int, code stripe.ErrorCode) *stripe.Error {
	t.Helper()
	var e *stripe.Error
	if !errors.As(err, &e) {
		t.Fatalf("got error %v, want one of Stripe's", err)
	}
	if e.HTTPStatusCode != status || e.Code != code {
		t.Errorf("got %d %q (%s), want %d %q", e.HTTPStatusCode, e.Code, e.Msg, status, code)
	}
	return e
}

func mustItems(t *testing.T, specs ...string) []Item {
	t.Helper()
	items, err := ParseItems(specs...)
	must(t, err)
	return items
}

func TestSessionOfManyLinesIsReadToItsEnd(t *testing.T) {
	s, api := start(t, Config{})
	must(t, s.Session("cs_1", mustItems(t, "price_game*1..130"), nil))
	cs, err := api.CheckoutSessions.Get("cs_1", nil)
	must(t, err)
	if cs.AmountTotal != 130_000 || cs.PaymentIntent.ID != "pi_1" || cs.CustomerDetails.Email != "buyer@example.com" || cs.LineItems != nil {
		t.Errorf("got %+v", cs)
	}
	p := &stripe.CheckoutSessionListLineItemsParams{Session: stripe.String("cs_1")}
	p.Limit = stripe.Int64(100)
	it := api.CheckoutSessions.ListLineItems(p)
	n := 0
	for it.Next() {
		n++
		if li := it.LineItem(); li.Price.ID != "price_game" || li.Price.Product.ID != "prod_game" || li.AmountTotal != 1000 {
			t.Errorf("got line %+v", li)
		}
	}
	must(t, it.Err())
	if n != 130 {
		t.Errorf("got %d lines, want 130", n)
	}
	if got := s.Calls("/v1/checkout/sessions/cs_1/line_items"); got != 2 {
		t.Errorf("got %d pages, want 2", got)
	}
}
