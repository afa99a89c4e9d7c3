package reconcile_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keytill/keytill/adapter/stripeapi"
	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/internal/jobs"
	"github.com/keytill/keytill/internal/pgtest"
	"github.com/keytill/keytill/internal/stripefake"
	"github.com/keytill/keytill/inventory"
	"github.com/keytill/keytill/reconcile"
)

// shop is a merchant with a pool of keys for price_game, at a Stripe that can be made to fail.
type shop struct {
	t       testing.TB
	db      *pgxpool.Pool
	stripe  *stripefake.Server
	service *fulfillment.Service
	client  *stripeapi.Client
	sweeper *reconcile.Sweeper
	config  reconcile.Config

	mu    sync.Mutex
	at    time.Time
	fault func(*http.Request) *stripefake.Fault
}

func open(t testing.TB, keys int) *shop {
	t.Helper()
	s := &shop{t: t, db: pgtest.New(t), at: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	s.stripe = stripefake.Start(stripefake.Config{Now: s.now, OnRequest: s.onRequest})
	t.Cleanup(s.stripe.Close)
	logger := slog.New(slog.DiscardHandler)
	inserter, err := jobs.NewInserter(s.db, s.now, logger)
	s.must(err)
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	t.Cleanup(transport.CloseIdleConnections)
	s.client, err = stripeapi.New(stripeapi.Config{Key: s.stripe.APIKey(), URL: s.stripe.URL(), Logger: logger, PerSecond: 1e6,
		RetryWait: time.Millisecond, Transport: transport,
		Account: func(ctx context.Context, merchant string) (string, error) {
			return inventory.StripeAccount(ctx, s.db, merchant)
		}})
	s.must(err)
	text, err := inventory.NewKeyset()
	s.must(err)
	s.service, err = fulfillment.New(fulfillment.Config{DB: s.db, Stripe: s.client, Jobs: inserter, Keyset: text, Now: s.now, Logger: logger})
	s.must(err)
	s.config = reconcile.Config{DB: s.db, Stripe: s.client, Settler: s.service, Now: s.now, Logger: logger}
	s.sweeper = s.newSweeper(nil)
	s.pool("default", "game", "price_game", keys)
	s.forward(time.Second)
	return s
}

func (s *shop) newSweeper(change func(*reconcile.Config)) *reconcile.Sweeper {
	s.t.Helper()
	c := s.config
	if change != nil {
		change(&c)
	}
	sweeper, err := reconcile.New(c)
	s.must(err)
	return sweeper
}

// pool makes a pool with keys that a price hands out.
func (s *shop) pool(merchant, sku, price string, keys int) {
	s.t.Helper()
	p := inventory.Pool{Merchant: merchant, SKU: sku, Name: sku, Shortage: inventory.Wait, CreatedAt: s.now()}
	s.must(pgx.BeginFunc(s.t.Context(), s.db, func(tx pgx.Tx) (err error) {
		p, err = inventory.CreatePool(s.t.Context(), tx, p)
		return err
	}))
	s.must(s.service.Map(s.t.Context(), merchant, price, &p, 1))
	if keys == 0 {
		return
	}
	var file strings.Builder
	for i := range keys {
		fmt.Fprintf(&file, "%s-%06d\n", sku, i)
	}
	_, _, err := s.service.Import(s.t.Context(), inventory.Import{Pool: p, File: strings.NewReader(file.String()), FileName: "keys",
		Actor: "test", At: s.now()})
	s.must(err)
}

func (s *shop) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *shop) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}

func (s *shop) forward(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = s.at.Add(d)
}

// failing makes calls go wrong until the function that it returns is called.
func (s *shop) failing(fault func(*http.Request) *stripefake.Fault) (heal func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.fault = nil
	}
}

func (s *shop) onRequest(r *http.Request) *stripefake.Fault {
	s.mu.Lock()
	fault := s.fault
	s.mu.Unlock()
	if fault == nil {
		return nil
	}
	return fault(r)
}

// buy makes a paid session for one game.
func (s *shop) buy(id string, fields stripefake.Fields) {
	s.t.Helper()
	items, err := stripefake.ParseItems("price_game*1")
	s.must(err)
	s.must(s.stripe.Session(id, items, fields))
}

func (s *shop) buyMany(from, to int) {
	s.t.Helper()
	for i := from; i < to; i++ {
		s.buy(fmt.Sprintf("cs_%d", i), nil)
		s.forward(time.Second)
	}
}

func (s *shop) sweep(o reconcile.Options) reconcile.Report {
	s.t.Helper()
	report, err := s.sweeper.Sweep(s.t.Context(), "default", o)
	s.must(err)
	return report
}

// state is the state of an order's only unit; "none" where there is no order.
func (s *shop) state(id string) string {
	s.t.Helper()
	var state string
	err := s.db.QueryRow(s.t.Context(), `
SELECT coalesce((SELECT state FROM keytill.fulfilments WHERE merchant_id = 'default' AND order_id = $1), 'none')`, id).Scan(&state)
	s.must(err)
	return state
}

func (s *shop) wants(id, state string) {
	s.t.Helper()
	if got := s.state(id); got != state {
		s.t.Errorf("order %s is %s, want %s", id, got, state)
	}
}

// count is the single number that a query gives.
func (s *shop) count(query string, args ...any) (n int) {
	s.t.Helper()
	s.must(s.db.QueryRow(s.t.Context(), query, args...).Scan(&n))
	return n
}

func (s *shop) fulfilled() int {
	return s.count(`SELECT count(*) FROM keytill.fulfilments WHERE state = 'fulfilled'`)
}

// lazy is a settler that leaves everything as it is.
type lazy struct{}

func (lazy) Settle(context.Context, string, string) (fulfillment.Order, error) {
	return fulfillment.Order{}, fulfillment.ErrNotOurs
}

func (lazy) PickUp(context.Context) (int, error) { return 0, nil }

// isList reports whether a call lists a kind by creation.
func isList(r *http.Request, path string) bool {
	return r.URL.Path == path && r.URL.Query().Has("created[gte]")
}
