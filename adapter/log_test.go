package adapter_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/keytill/keytill/adapter"
	"github.com/keytill/keytill/adapter/access"
	"github.com/keytill/keytill/internal/pgtest"
	"github.com/keytill/keytill/internal/stripefake"
	"github.com/keytill/keytill/inventory"
)

// logLines is a log, line by line.
type logLines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write takes a line.
func (l *logLines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *logLines) read(t *testing.T) (lines []map[string]any, text string) {
	t.Helper()
	l.mu.Lock()
	text = l.text.String()
	l.mu.Unlock()
	for line := range strings.Lines(text) {
		var one map[string]any
		must(t, json.Unmarshal([]byte(line), &one))
		lines = append(lines, one)
	}
	return lines, text
}

// A busy half minute of webhooks, API, console and jobs at once, and a storefront whose hook is dead: every line of the log says what it belongs to, and none holds a key, an address or a token.
func TestEveryLineOfTheLogSaysWhatItBelongsToAndNothingSecret(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	stripe := stripefake.Start(stripefake.Config{})
	t.Cleanup(stripe.Close)
	keyset, err := inventory.NewKeyset()
	must(t, err)
	admin, line, err := access.New(access.Token{Name: "jane", Role: access.Admin})
	must(t, err)
	tokens, err := access.Read(strings.NewReader(line))
	must(t, err)
	dead := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	t.Cleanup(dead.Close)
	log := &logLines{}
	shop, err := adapter.New(t.Context(), adapter.Config{Pool: db, Keyset: keyset, Tokens: tokens, Reconcile: adapter.Reconcile{Every: -1},
		Hook:   adapter.Hook{URL: dead.URL, Secrets: []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}, WithKeys: true},
		Logger: slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
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
	var keys strings.Builder
	for i := range 60 {
		fmt.Fprintf(&keys, "SECRET-KEY-%d\n", i)
	}
	_, _, err = shop.Service().Import(ctx, inventory.Import{Pool: pool, File: strings.NewReader(keys.String())})
	must(t, err)
	call := func(client *http.Client, method, path, kind, body string) (int, error) {
		req, err := http.NewRequestWithContext(ctx, method, server.URL+path, strings.NewReader(body))
		if err != nil {
			return 0, err
		}
		req.Header.Set("Content-Type", kind)
		req.Header.Set("Sec-Fetch-Site", "same-origin")
		req.Header.Set("Authorization", "Bearer "+admin)
		resp, err := client.Do(req)
		if err != nil {
			return 0, err
		}
		if resp.Header.Get("X-Request-Id") == "" {
			return 0, fmt.Errorf("%s %s: the answer has no request id", method, path)
		}
		return resp.StatusCode, resp.Body.Close()
	}
	var work errgroup.Group
	for worker := range 4 {
		work.Go(func() error {
			jar, err := cookiejar.New(nil)
			if err != nil {
				return err
			}
			browser := &http.Client{Jar: jar}
			form := func(path string, values url.Values) error {
				_, err := call(browser, http.MethodPost, path, "application/x-www-form-urlencoded", values.Encode())
				return err
			}
			if err := form("/console/login", url.Values{"token": {admin}}); err != nil {
				return err
			}
			for i := range 4 {
				order := fmt.Sprintf("cs_%d_%d", worker, i)
				items, err := stripefake.ParseItems("price_game*2@500#li_" + order)
				if err != nil {
					return err
				}
				if err := stripe.Session(order, items, stripefake.Fields{"customer_details.email": "buyer@secret.example"}); err != nil {
					return err
				}
				event, err := stripe.Event("checkout.session.completed", order, stripefake.EventOptions{})
				if err != nil {
					return err
				}
				if _, _, err := stripe.Deliver(ctx, server.URL+"/webhooks/stripe", event); err != nil {
					return err
				}
				for _, ask := range []struct{ method, path, body string }{
					{"POST", "/v1/orders/" + order + "/settle", ""}, {"POST", "/v1/orders/cs_none/settle", ""}, {"POST", "/v1/orders/buyer@secret.example/settle", ""},
					{"GET", "/v1/orders/" + order + "/keys", ""}, {"GET", "/v1/orders/buyer@secret.example", ""}, {"GET", "/v1/orders/SECRET-KEY-1", ""},
					{"POST", "/v1/orders/search", `{"query": "buyer@secret.example"}`}, {"POST", "/v1/orders/search", `{"key": "SECRET-KEY-1"}`},
					{"POST", "/v1/orders/" + order + "/reveal", `{"reason": "SECRET-KEY-1 was asked for by buyer@secret.example"}`},
					{"POST", "/v1/orders/" + order + "/resend", `{"to": "other@secret.example"}`}, {"POST", "/v1/keys/verify", `{"key": "SECRET-KEY-1"}`},
					{"POST", "/v1/pools/game/imports", "SECRET-KEY-1\nSECRET\x00-KEY-2\n"}, {"GET", "/v1/keys/changes?after=SECRET-KEY-1", ""},
					{"POST", "/webhooks/stripe", `{"id": "evt_x", "buyer": "buyer@secret.example"}`},
				} {
					if _, err := call(browser, ask.method, ask.path, "application/json", ask.body); err != nil {
						return err
					}
				}
				for path, values := range map[string]url.Values{"/console/orders": {"q": {"buyer@secret.example"}}, "/console/orders/" + order + "/reveal": {"reason": {"SECRET-KEY-2"}},
					"/console/orders/" + order + "/resend": {"to": {"not an address SECRET-KEY-3"}}, "/console/orders/SECRET-KEY-4/settle": nil,
					"/console/login": {"token": {"keytill_admin_SECRET"}}} {
					if err := form(path, values); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	must(t, work.Wait())
	seen := map[string]bool{}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		lines, text := log.read(t)
		for _, l := range lines {
			for _, key := range []string{"request", "job", "event", "order", "delivery", "operation", "token"} {
				if l[key] != nil {
					seen[fmt.Sprint(l["msg"], " ", key)] = true
				}
			}
			if l["request"] == nil && l["job"] == nil {
				t.Errorf("nobody knows what this belongs to: %v", l)
			}
		}
		for _, secret := range []string{"SECRET", "secret.example", admin, "whsec_"} {
			if i := strings.Index(text, secret); i >= 0 {
				t.Fatalf("the log holds %s: %s", secret, text[max(0, i-300):min(len(text), i+100)])
			}
		}
		want := []string{"webhook recorded request", "webhook recorded event", "API request request", "API request order", "API request operation", "API request token",
			"a delivery failed and is tried again job", "a delivery failed and is tried again order",
			"a delivery failed and is tried again delivery", "a log-in to the console failed request"}
		missing := ""
		for _, w := range want {
			if !seen[w] {
				missing += "\n" + w
			}
		}
		if missing == "" {
			return
		}
		if time.Now().After(deadline) || t.Failed() {
			t.Fatalf("the log of %d lines lacks%s", len(lines), missing)
		}
	}
}
