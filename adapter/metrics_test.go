package adapter_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keytill/keytill/adapter"
	"github.com/keytill/keytill/internal/pgtest"
	"github.com/keytill/keytill/internal/stripefake"
	"github.com/keytill/keytill/inventory"
	"github.com/keytill/keytill/reconcile"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// One order for two keys of a pool that has one, told by an event and swept after: what a scrape shows of it.
func TestAScrapeAfterASmallRun(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	stripe := stripefake.Start(stripefake.Config{})
	t.Cleanup(stripe.Close)
	keyset, err := inventory.NewKeyset()
	must(t, err)
	shop, err := adapter.New(t.Context(), adapter.Config{Pool: db, Keyset: keyset, Reconcile: adapter.Reconcile{Every: -1},
		Stripe: adapter.Stripe{APIKey: stripe.APIKey(), WebhookSecrets: stripe.Secrets(), URL: stripe.URL(), PerSecond: 10_000}})
	must(t, err)
	server := httptest.NewServer(shop.Handler())
	t.Cleanup(server.Close)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- shop.Run(ctx) }()
	t.Cleanup(func() { cancel(); must(t, <-ended) })

	pool := inventory.Pool{Merchant: inventory.DefaultMerchant, SKU: "game", CreatedAt: time.Now()}
	must(t, pgx.BeginFunc(ctx, db, func(tx pgx.Tx) (err error) {
		pool, err = inventory.CreatePool(ctx, tx, pool)
		return err
	}))
	must(t, shop.Service().Map(ctx, pool.Merchant, "price_game", &pool, 1))
	_, _, err = shop.Service().Import(ctx, inventory.Import{Pool: pool, File: strings.NewReader("SECRET-KEY-1\n")})
	must(t, err)
	items, err := stripefake.ParseItems("price_game*2@500")
	must(t, err)
	must(t, stripe.Session("cs_1", items, stripefake.Fields{"customer_details.email": "buyer@example.com"}))
	event, err := stripe.Event("checkout.session.completed", "cs_1", stripefake.EventOptions{})
	must(t, err)
	for range 2 {
		status, body, err := stripe.Deliver(ctx, server.URL+"/webhooks/stripe", event)
		if must(t, err); status != http.StatusOK {
			t.Fatal(status, body)
		}
	}
	resp, err := http.Post(server.URL+"/webhooks/stripe", "application/json", strings.NewReader("{}"))
	must(t, err)
	resp.Body.Close()

	wanted := []string{
		`keytill_webhooks_total{outcome="recorded"} 2`,
		`keytill_webhooks_total{outcome="not_authentic"} 1`,
		`keytill_settle_seconds_count{result="applied"} 1`,
		`keytill_claimed_keys_total 1`,
		`keytill_stock_keys{merchant="default",sku="game",state="allocated"} 1`,
		`keytill_stock_keys{merchant="default",sku="game",state="available"} 0`,
		`keytill_waiting_units{merchant="default",sku="game"} 1`,
		`keytill_events_pending 0`,
		`keytill_sweeps_total{result="done"} 1`,
	}
	waitForSettle(ctx, t, db)
	_, err = shop.Sweep(ctx, inventory.DefaultMerchant, reconcile.Options{})
	must(t, err)
	text := scrape(t, shop)
	for _, want := range wanted {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("the scrape has no %s", want)
		}
	}
	for _, some := range []string{`keytill_stripe_requests_total\{status="200"\} [1-9]`, `keytill_claims_empty_total [1-9]`} {
		if !regexp.MustCompile(some).MatchString(text) {
			t.Errorf("the scrape has no %s", some)
		}
	}
	for _, secret := range []string{"SECRET-KEY", "buyer@", "cs_1", "evt_", "pi_"} {
		if strings.Contains(text, secret) {
			t.Errorf("the scrape holds %s", secret)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

func waitForSettle(ctx context.Context, t *testing.T, db *pgxpool.Pool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		var done bool
		must(t, db.QueryRow(ctx, `SELECT count(*) > 0 FROM keytill.events WHERE state = 'done'`).Scan(&done))
		if done {
			return
		}
	}
	t.Fatal("nothing was settled")
}

func scrape(t *testing.T, shop *adapter.Shop) string {
	t.Helper()
	w := httptest.NewRecorder()
	shop.Metrics().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	body, err := io.ReadAll(w.Body)
	if must(t, err); w.Code != http.StatusOK {
		t.Fatal(w.Code)
	}
	return string(body)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
