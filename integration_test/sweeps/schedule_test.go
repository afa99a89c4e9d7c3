package sweeps_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/keytill/keytill/adapter"
	"github.com/keytill/keytill/integration_test/shoptest"
	"github.com/keytill/keytill/internal/stripefake"
	"github.com/keytill/keytill/inventory"
)

// A shop that runs sweeps by itself, every merchant, and nobody has to ask.
func TestTheDaemonSweepsEveryMerchantOnSchedule(t *testing.T) {
	t.Parallel()
	s := shoptest.Open(t, shoptest.Config{Keys: 10})
	s.Must(s.Stripe.Account("acct_b", nil))
	s.Must(inventory.AddMerchant(t.Context(), s.DB, "b", "acct_b", s.Now()))
	s.GoTo(time.Now().Add(-time.Hour))
	item := []stripefake.Item{{Price: "price_game", Quantity: 1, Amount: unitAmount}}
	s.Must(s.Stripe.Session("cs_1", item, nil))
	s.GoTo(time.Now())

	daemon, err := adapter.New(t.Context(), adapter.Config{Pool: s.DB, Keyset: s.Keyset,
		Stripe:    adapter.Stripe{APIKey: s.Stripe.APIKey(), WebhookSecrets: s.Stripe.Secrets(), URL: s.Stripe.URL()},
		Reconcile: adapter.Reconcile{Every: 300 * time.Millisecond}, Logger: slog.New(slog.DiscardHandler)})
	s.Must(err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- daemon.Run(ctx) }()
	deadline := time.Now().Add(30 * time.Second)
	for {
		var swept int
		s.Must(s.DB.QueryRow(t.Context(), `SELECT count(DISTINCT merchant_id) FROM keytill.sweeps WHERE ended_at IS NOT NULL`).Scan(&swept))
		if swept == 2 && s.UnitsOf("cs_1") == (shoptest.Units{Fulfilled: 1}) {
			break
		}
		if time.Now().After(deadline) {
			t.Errorf("after 30 s %d merchants were swept, and the order has %+v", swept, s.UnitsOf("cs_1"))
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
