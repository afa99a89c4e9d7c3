package metrics_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/keytill/keytill/adapter/metrics"
	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/internal/pgtest"
	"github.com/keytill/keytill/internal/sqltest"
	"github.com/keytill/keytill/inventory"
	"github.com/keytill/keytill/reconcile"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestEveryStatementPrepares(t *testing.T) {
	t.Parallel()
	sqltest.Prepare(t, pgtest.New(t), ".", nil)
}

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// stockUp makes a shop with 5 keys of one pool, 2 of them held, and a unit that waits in another.
func stockUp(t *testing.T, db *pgxpool.Pool) {
	t.Helper()
	keyset, err := inventory.NewKeyset()
	if err != nil {
		t.Fatal(err)
	}
	err = pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
		pool, err := inventory.CreatePool(t.Context(), tx, inventory.Pool{Merchant: inventory.DefaultMerchant, SKU: "game", CreatedAt: now})
		if err != nil {
			return err
		}
		if _, err := inventory.CreatePool(t.Context(), tx, inventory.Pool{Merchant: inventory.DefaultMerchant, SKU: "empty", CreatedAt: now}); err != nil {
			return err
		}
		_, err = keyset.Load(t.Context(), tx, inventory.Import{Pool: pool, File: strings.NewReader("A\nB\nC\nD\nE\n"), At: now})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, query := range []string{
		`INSERT INTO keytill.reservations (merchant_id, ref, pool_id, keys, ahead, expires_at, created_at)
		 SELECT merchant_id, 'basket-7', pool_id, 2, 0, $1::timestamptz + interval '5 min', $1::timestamptz - interval '10 min' FROM keytill.pools WHERE sku = 'game'`,
		`INSERT INTO keytill.orders (merchant_id, order_id, payment, currency, amount_total, amount_captured, amount_refunded, placed_at, ticket, settled_at)
		 VALUES ('default', 'cs_1', 'paid', 'eur', 1, 1, 0, $1, 1, $1)`,
		`INSERT INTO keytill.lines (merchant_id, order_id, line_id, ordinal, price, product, description, quantity, amount, pool_id)
		 SELECT 'default', 'cs_1', 'li_1', 1, 'p', 'p', 'd', CASE WHEN $1::timestamptz IS NULL THEN 0 ELSE 1 END, 1, pool_id FROM keytill.pools WHERE sku = 'empty'`,
		`INSERT INTO keytill.fulfilments (merchant_id, order_id, line_id, unit, pool_id, state, paid_at, changed_at)
		 SELECT 'default', 'cs_1', 'li_1', 1, pool_id, 'waiting', $1::timestamptz - interval '1 hour', $1 FROM keytill.pools WHERE sku = 'empty'`,
		`INSERT INTO keytill.deliveries (merchant_id, order_id, channel, type, send_after, created_at)
		 VALUES ('default', 'cs_1', 'email', 'keys.ready', $1::timestamptz - interval '1 min', $1), ('default', 'cs_1', 'hook', 'x', $1::timestamptz + interval '1 day', $1)`,
		`INSERT INTO keytill.events (merchant_id, event_id, type, object_id, payment, livemode, received_at, next_try_at)
		 VALUES ('default', 'evt_1', 'x', 'cs_1', 'cs_1', false, $1::timestamptz - interval '30 s', $1)`,
		`INSERT INTO keytill.findings (merchant_id, kind, subject, detail, opened_at) VALUES ('default', 'shortage', 'cs_1', 'x', $1)`,
		`INSERT INTO keytill.sweeps (merchant_id, started_at, ended_at) VALUES ('default', $1, $1::timestamptz - interval '100 s')`,
	} {
		if _, err := db.Exec(t.Context(), query, now); err != nil {
			t.Fatalf("%v\n%s", err, query)
		}
	}
}

func TestScrapeShowsWhatHappenedAndHowThingsStand(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	stockUp(t, db)
	m, err := metrics.New(metrics.Config{DB: db, Now: func() time.Time { return now },
		Claims: func() inventory.ClaimStats { return inventory.ClaimStats{Claims: 3, Keys: 5, Empty: 1} }})
	if err != nil {
		t.Fatal(err)
	}
	m.Webhook("recorded")
	o := m.Observer()
	o.Settled(fulfillment.SettleApplied, 300*time.Millisecond)
	o.Delivered(fulfillment.ChannelEmail, fulfillment.DeliverSent)
	m.Swept(reconcile.Report{Tally: reconcile.Tally{Repaired: 2, Failed: 1}, Late: reconcile.Lateness{MaxSeconds: 400}})
	calls := m.Stripe(answers{200, 429, 0})
	for range 3 {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://stripe.example/v1/secret-path", nil)
		if resp, err := calls.RoundTrip(req); err == nil {
			resp.Body.Close()
		}
	}
	text := scrape(t, m)
	for _, want := range []string{
		`keytill_webhooks_total{outcome="recorded"} 1`,
		`keytill_settle_seconds_count{result="applied"} 1`,
		`keytill_deliveries_total{channel="email",result="sent"} 1`,
		`keytill_sweeps_total{result="failed"} 1`,
		`keytill_sweep_payments_total{result="repaired"} 2`,
		`keytill_sweep_late_seconds_sum 400`,
		`keytill_stripe_requests_total{status="200"} 1`,
		`keytill_stripe_requests_total{status="429"} 1`,
		`keytill_stripe_requests_total{status="error"} 1`,
		`keytill_claims_total 3`, `keytill_claimed_keys_total 5`, `keytill_claims_empty_total 1`,
		`keytill_stock_keys{merchant="default",sku="game",state="available"} 5`,
		`keytill_stock_keys{merchant="default",sku="empty",state="available"} 0`,
		`keytill_waiting_units{merchant="default",sku="empty"} 1`,
		`keytill_waiting_oldest_seconds{merchant="default",sku="empty"} 3600`,
		`keytill_undelivered{channel="email"} 1`, `keytill_undelivered_oldest_seconds{channel="email"} 60`,
		`keytill_undelivered{channel="hook"} 0`,
		`keytill_reserved_keys{age="5m to 15m"} 2`, `keytill_reserved_keys{age="over 1h"} 0`,
		`keytill_events_pending 1`, `keytill_events_pending_oldest_seconds 30`, `keytill_event_age_seconds 30`,
		`keytill_sweep_age_seconds 100`,
		`keytill_findings_open{kind="shortage"} 1`,
		`keytill_scrape_failures_total 0`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("the scrape has no %s", want)
		}
	}
	for _, secret := range []string{"cs_1", "evt_1", "secret-path", "basket-7"} {
		if strings.Contains(text, secret) {
			t.Errorf("the scrape holds %s", secret)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

func TestNoLabelComesFromOutside(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	stockUp(t, db)
	if _, err := db.Exec(t.Context(), `
		WITH made AS (INSERT INTO keytill.pools (merchant_id, sku, name, created_at)
		              SELECT 'default', 'sku-' || n, 'x', now() FROM generate_series(1, 600) n RETURNING merchant_id, pool_id)
		INSERT INTO keytill.stock (merchant_id, pool_id) SELECT * FROM made`); err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	m, err := metrics.New(metrics.Config{DB: db, Registerer: registry})
	if err != nil {
		t.Fatal(err)
	}
	if m.Handler() != nil {
		t.Error("there is a handler for somebody else's registry")
	}
	m.Webhook("recorded")
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	allowed := []string{"merchant", "sku", "state", "outcome", "result", "channel", "status", "age", "queue", "kind"}
	for _, family := range families {
		if n := len(family.Metric); n > 600 {
			t.Errorf("%s has %d series", family.GetName(), n)
		}
		for _, label := range family.Metric[0].Label {
			if !slices.Contains(allowed, label.GetName()) {
				t.Errorf("%s has the label %s", family.GetName(), label.GetName())
			}
		}
	}
}

func TestGaugesAreReadOnceForSeveralScrapes(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	m, err := metrics.New(metrics.Config{DB: db, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	scrape(t, m)
	stockUp(t, db)
	if text := scrape(t, m); strings.Contains(text, "keytill_waiting_units{") {
		t.Error("the second scrape asked the database again")
	}
}

func TestGaugesAreMissingWhereTheDatabaseDoesNotAnswer(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	m, err := metrics.New(metrics.Config{DB: db, CacheFor: -1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(t.Context(), `ALTER TABLE keytill.findings RENAME TO gone`); err != nil {
		t.Fatal(err)
	}
	text := scrape(t, m)
	if strings.Contains(text, "keytill_findings_open") || !strings.Contains(text, "keytill_scrape_failures_total 1\n") ||
		!strings.Contains(text, "keytill_events_pending 0\n") {
		t.Error(text)
	}
}

func scrape(t *testing.T, m *metrics.Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodGet, "/metrics", nil))
	body, err := io.ReadAll(w.Body)
	if err != nil || w.Code != http.StatusOK {
		t.Fatalf("%d %v", w.Code, err)
	}
	return string(body)
}

// answers is a Stripe that answers with these statuses; 0 is none.
type answers []int

// RoundTrip gives the next answer.
func (a answers) RoundTrip(*http.Request) (*http.Response, error) {
	status := a[0]
	copy(a, a[1:])
	if status == 0 {
		return nil, errors.New("no answer")
	}
	return &http.Response{StatusCode: status, Body: http.NoBody}, nil
}
