package sweeps_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/keytill/keytill/adapter"
	"github.com/keytill/keytill/internal/stripefake"
	"github.com/keytill/keytill/inventory"
)

// A shop that runs sweeps by itself, every merchant, and nobody has to ask.
func TestTheDaemonSweepsEveryMerchantOnSchedule(t *testing.T) {
	t.Parallel()
	s := openShop(t, 1, 10)
	s.must(s.stripe.Account("acct_b", nil))
	s.must(inventory.AddMerchant(t.Context(), s.db, "b", "acct_b", s.now()))
	s.goTo(time.Now().Add(-time.Hour))
	item := []stripefake.Item{{Price: "price_game", Quantity: 1, Amount: unitAmount}}
	s.must(s.stripe.Session("cs_1", item, nil))
	s.goTo(time.Now())

	daemon, err := adapter.New(t.Context(), adapter.Config{Pool: s.db, Keyset: s.keyset,
		Stripe:    adapter.Stripe{APIKey: s.stripe.APIKey(), WebhookSecrets: s.stripe.Secrets(), URL: s.stripe.URL()},
		Reconcile: adapter.Reconcile{Every: 300 * time.Millisecond}, Logger: slog.New(slog.DiscardHandler)})
	s.must(err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- daemon.Run(ctx) }()
	deadline := time.Now().Add(30 * time.Second)
	for {
		var swept int
		s.must(s.db.QueryRow(t.Context(), `SELECT count(DISTINCT merchant_id) FROM keytill.sweeps WHERE ended_at IS NOT NULL`).Scan(&swept))
		if swept == 2 && s.unitsOf("cs_1") == (units{fulfilled: 1}) {
			break
		}
		if time.Now().After(deadline) {
			t.Errorf("after 30 s %d merchants were swept, and the order has %+v", swept, s.unitsOf("cs_1"))
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
