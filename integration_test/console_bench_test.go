package integration_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/keytill/keytill/adapter"
	"github.com/keytill/keytill/adapter/access"
	"github.com/keytill/keytill/inventory"
)

// largeShop is a year of a shop, made by the database: 50 pools of 20,000 keys, 200,000 orders of two units, 500 that wait,
// and one of 500 units. Nobody can read its keys, and no page of the console does.
var largeShop = []string{
	`INSERT INTO keytill.pools (merchant_id, sku, name, created_at)
	 SELECT 'default', 'sku-' || lpad(n::text, 2, '0'), 'Product ' || n, now() - interval '400 days' FROM generate_series(1, 50) n`,
	`INSERT INTO keytill.stock (merchant_id, pool_id) SELECT merchant_id, pool_id FROM keytill.pools`,
	`INSERT INTO keytill.price_map (merchant_id, item, pool_id) SELECT merchant_id, 'price_' || pool_id, pool_id FROM keytill.pools`,
	`INSERT INTO keytill.batches (merchant_id, pool_id, file_name, file_hash, supplier, actor, keys, created_at)
	 SELECT 'default', 1 + n % 50, 'keys-' || n || '.csv', int8send(n), 'Wholesale Ltd', 'jane', CASE WHEN n < 50 THEN 20000 ELSE 0 END,
	        now() - interval '400 days' + n * interval '1 hour' FROM generate_series(0, 4999) n`,
	`INSERT INTO keytill.orders (merchant_id, order_id, payment_intent, charge, payment, currency, amount_total, amount_captured, amount_refunded,
	        email, placed_at, paid_at, ticket, settled_at)
	 SELECT 'default', 'cs_' || n, 'pi_' || n, 'ch_' || n, CASE WHEN n % 50 = 0 THEN 'refunded' ELSE 'paid' END, 'eur', 3998, 3998, 0,
	        'buyer' || n % 150000 || '@example.com', at, at, n, at
	   FROM (SELECT n, now() - (200001 - n) * interval '157 seconds' AS at FROM generate_series(1, 200001) n) AS o`,
	`INSERT INTO keytill.lines (merchant_id, order_id, line_id, ordinal, price, product, description, quantity, amount, pool_id)
	 SELECT merchant_id, order_id, 'li_' || ticket, 1, 'price_' || 1 + ticket % 50, 'prod', 'Product ' || 1 + ticket % 50,
	        CASE WHEN ticket > 200000 THEN 500 ELSE 2 END, 3998, 1 + ticket % 50 FROM keytill.orders`,
	// Key ids grow with the pool, and in a pool with the order that has the key.
	`INSERT INTO keytill.keys (merchant_id, key_id, pool_id, batch_id, position, state, ciphertext, fingerprint, order_id, line_id, unit)
	 SELECT 'default', pool * 100000 + i, pool, pool, pool * 100000 + i, CASE WHEN sold THEN 'allocated' ELSE 'available' END, '\x00', int8send(pool * 100000 + i),
	        CASE WHEN sold THEN 'cs_' || o END, CASE WHEN sold THEN 'li_' || o END, CASE WHEN sold THEN 1 + i % 2 END
	   FROM (SELECT pool, i, (i / 2) * 50 + (pool + 48) % 50 + 1 AS o, i < 7980 AS sold FROM generate_series(1, 50) pool, generate_series(0, 19999) i) AS k`,
	`INSERT INTO keytill.fulfilments (merchant_id, order_id, line_id, unit, pool_id, state, key_id, paid_at, changed_at)
	 SELECT l.merchant_id, l.order_id, l.line_id, u, l.pool_id, CASE WHEN k.key_id IS NULL THEN 'waiting' ELSE 'fulfilled' END, k.key_id, o.paid_at, o.paid_at
	   FROM keytill.lines l JOIN keytill.orders o USING (merchant_id, order_id) CROSS JOIN LATERAL generate_series(1, l.quantity::int) u
	   LEFT JOIN keytill.keys k ON k.merchant_id = l.merchant_id AND k.order_id = l.order_id AND k.line_id = l.line_id AND k.unit = u`,
	`INSERT INTO keytill.movements (merchant_id, pool_id, keys, batch_id, to_state, reason, actor, at)
	 SELECT merchant_id, pool_id, keys, batch_id, 'available', 'import', actor, created_at FROM keytill.batches WHERE keys > 0`,
	`INSERT INTO keytill.movements (merchant_id, pool_id, key_id, from_state, to_state, order_id, line_id, unit, reason, actor, at)
	 SELECT f.merchant_id, f.pool_id, f.key_id, 'available', 'allocated', f.order_id, f.line_id, f.unit, 'paid', 'settle', f.changed_at
	   FROM keytill.fulfilments f WHERE f.key_id IS NOT NULL ORDER BY f.changed_at`,
	`INSERT INTO keytill.events (merchant_id, event_id, type, object_id, payment, livemode, received_at, next_try_at, state, done_at)
	 SELECT merchant_id, 'evt_' || ticket, 'checkout.session.completed', order_id, payment_intent, false, placed_at, placed_at, 'done', placed_at FROM keytill.orders`,
	`INSERT INTO keytill.deliveries (merchant_id, order_id, channel, type, recipient, state, attempts, send_after, created_at, done_at)
	 SELECT merchant_id, order_id, 'email', 'keys.ready', email, 'sent', 1, placed_at, placed_at, placed_at FROM keytill.orders`,
	`INSERT INTO keytill.audit (merchant_id, at, actor, action, order_id, subject, reason)
	 SELECT merchant_id, placed_at, 'jane', 'reveal', order_id, order_id, 'the buyer lost the mail' FROM keytill.orders WHERE ticket % 4 = 0`,
	`INSERT INTO keytill.findings (merchant_id, kind, subject, order_id, detail, opened_at)
	 SELECT merchant_id, 'fraud_warning', order_id, order_id, 'look at it', placed_at FROM keytill.orders WHERE ticket % 400 = 0`,
	`INSERT INTO keytill.reservation_attempts (merchant_id, pool_id, at, result)
	 SELECT 'default', 1 + n % 50, now() - n * interval '60 seconds', CASE WHEN n % 20 = 0 THEN 'sold_out' ELSE 'ok' END FROM generate_series(1, 40000) n`,
	`VACUUM ANALYZE`,
}

// BenchmarkConsole asks for each page of the console on a shop of a million keys and 200,000 orders, and reports the
// milliseconds that the server takes for one.
func BenchmarkConsole(b *testing.B) {
	db := benchDatabase(b)
	keyset, err := inventory.NewKeyset()
	if err != nil {
		b.Fatal(err)
	}
	text, line, err := access.New(access.Token{Name: "bench", Role: access.Admin})
	if err != nil {
		b.Fatal(err)
	}
	tokens, err := access.Read(strings.NewReader(line))
	if err != nil {
		b.Fatal(err)
	}
	shop, err := adapter.New(b.Context(), adapter.Config{Pool: db, Keyset: keyset, Tokens: tokens, Logger: slog.New(slog.DiscardHandler),
		Stripe: adapter.Stripe{APIKey: "sk_test_bench", WebhookSecrets: []string{"whsec_bench"}, URL: "http://127.0.0.1:1"}})
	if err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	execAll(b, db, largeShop...)
	if err := inventory.FoldAll(b.Context(), db); err != nil {
		b.Fatal(err)
	}
	if err := shop.Service().FoldFigures(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.Logf("made the shop in %s", time.Since(began).Round(time.Second))
	handler := shop.Handler()
	login := httptest.NewRecorder()
	req := httptest.NewRequest(http.MethodPost, "/console/login", strings.NewReader(url.Values{"token": {text}}.Encode()))
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	handler.ServeHTTP(login, req)
	cookies := login.Result().Cookies()
	if len(cookies) == 0 {
		b.Fatalf("log in: %d %s", login.Code, login.Body)
	}
	ask := func(b *testing.B, method, path, form string) *httptest.ResponseRecorder {
		req := httptest.NewRequest(method, path, strings.NewReader(form))
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.AddCookie(cookies[0])
		rec := httptest.NewRecorder()
		handler.ServeHTTP(rec, req)
		if rec.Code >= 400 && form != "q=ABCDE-NOBODYS-KEY" {
			b.Fatalf("%s %s: %d %s", method, path, rec.Code, rec.Body)
		}
		return rec
	}
	// next is a page far from the beginning of its list.
	next := func(path string) string {
		for range 20 {
			_, link, found := strings.Cut(ask(b, http.MethodGet, path, "").Body.String(), `rel="next" href="`)
			if !found {
				return path
			}
			link, _, _ = strings.Cut(link, `"`)
			path = strings.ReplaceAll(link, "&amp;", "&")
		}
		return path
	}
	for _, page := range []struct{ name, method, path, form string }{
		{"overview", "GET", "/console", ""}, {"pools", "GET", "/console/pools", ""},
		{"pool", "GET", "/console/pool?sku=sku-07", ""}, {"batch", "GET", "/console/batch?sku=sku-07&id=7", ""},
		{"orders", "GET", "/console/orders", ""}, {"orders-page-20", "GET", next("/console/orders"), ""},
		{"orders-waiting", "GET", "/console/orders?waiting=1", ""}, {"orders-refunded", "GET", "/console/orders?payment=refunded", ""},
		{"orders-lost", "GET", "/console/orders?payment=lost", ""},
		{"search-charge", "POST", "/console/orders", "q=ch_77777"}, {"search-address", "POST", "/console/orders", "q=buyer777@example.com"},
		{"search-key", "POST", "/console/orders", "q=ABCDE-NOBODYS-KEY"},
		{"batch-next", "GET", next("/console/batch?sku=sku-07&id=7"), ""},
		{"order", "GET", "/console/orders/cs_77777", ""}, {"order-of-500-units", "GET", "/console/orders/cs_200001", ""},
		{"order-of-500-units-next", "GET", "/console/orders/cs_200001?from=1.401", ""},
		{"findings", "GET", "/console/findings", ""}, {"audit", "GET", "/console/audit", ""}, {"audit-page-20", "GET", next("/console/audit"), ""},
	} {
		b.Run(page.name, func(b *testing.B) {
			for b.Loop() {
				ask(b, page.method, page.path, page.form)
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/1000/float64(b.N), "ms/page")
		})
	}
}
