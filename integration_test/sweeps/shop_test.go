package sweeps_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
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
	"github.com/keytill/keytill/webhooks"
)

// A shop is keytill's own parts between a fake Stripe and a database, without the job queue's workers: who runs it
// says when an event is worked and when there is a sweep, and the clock is its own.
type shop struct {
	t       testing.TB
	db      *pgxpool.Pool
	stripe  *stripefake.Server
	keyset  *inventory.Keyset
	service *fulfillment.Service
	sweeper *reconcile.Sweeper
	webhook *httptest.Server

	mu     sync.Mutex
	at     time.Time
	random *rand.Rand // of faults
	faults float64    // how many of Stripe's answers are 429 or 500
}

const grace = 5 * time.Minute

func openShop(t testing.TB, seed uint64, keys int) *shop {
	t.Helper()
	s := &shop{t: t, db: pgtest.New(t), at: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), random: rand.New(rand.NewPCG(seed, 2))}
	s.stripe = stripefake.Start(stripefake.Config{Now: s.now, OnRequest: s.fault})
	t.Cleanup(s.stripe.Close)
	logger := slog.New(slog.DiscardHandler)
	inserter, err := jobs.NewInserter(s.db, s.now, logger)
	s.must(err)
	client := newClient(t, s.db, s.stripe.URL(), s.stripe.APIKey())
	s.keyset, err = inventory.NewKeyset()
	s.must(err)
	s.service, err = fulfillment.New(fulfillment.Config{DB: s.db, Stripe: client, Jobs: inserter, Keyset: s.keyset, Now: s.now, Logger: logger})
	s.must(err)
	s.sweeper, err = reconcile.New(reconcile.Config{DB: s.db, Stripe: client, Settler: s.service, Grace: grace, Now: s.now, Logger: logger})
	s.must(err)
	store, err := webhooks.NewStore(webhooks.StoreConfig{DB: s.db, Jobs: inserter, Now: s.now})
	s.must(err)
	verifier, err := webhooks.NewVerifier(webhooks.VerifierConfig{Secrets: s.stripe.Secrets(), Now: s.now})
	s.must(err)
	handler, err := webhooks.NewHandler(webhooks.Config{Verifier: verifier, Inbox: store})
	s.must(err)
	s.webhook = httptest.NewServer(handler)
	t.Cleanup(s.webhook.Close)
	s.stock(keys)
	return s
}

// newClient reads the fake without a limit.
func newClient(t testing.TB, db *pgxpool.Pool, url, key string) *stripeapi.Client {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 32}
	t.Cleanup(transport.CloseIdleConnections)
	client, err := stripeapi.New(stripeapi.Config{Key: key, URL: url, PerSecond: 1e6, RetryWait: time.Millisecond, Transport: transport,
		Account: func(ctx context.Context, merchant string) (string, error) {
			return inventory.StripeAccount(ctx, db, merchant)
		}})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// stock makes the one pool, with keys.
func (s *shop) stock(keys int) {
	s.t.Helper()
	p := inventory.Pool{Merchant: inventory.DefaultMerchant, SKU: "game", Name: "Game", Shortage: inventory.Wait, CreatedAt: s.now()}
	s.must(pgx.BeginFunc(s.t.Context(), s.db, func(tx pgx.Tx) (err error) {
		p, err = inventory.CreatePool(s.t.Context(), tx, p)
		return err
	}))
	s.must(s.service.Map(s.t.Context(), inventory.DefaultMerchant, "price_game", &p, 1))
	var file bytes.Buffer
	for i := range keys {
		fmt.Fprintf(&file, "GAME-%07d\n", i)
	}
	_, _, err := s.service.Import(s.t.Context(), inventory.Import{Pool: p, File: io.Reader(&file), FileName: "keys", Actor: "test", At: s.now()})
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

func (s *shop) goTo(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at.After(s.at) {
		s.at = at
	}
}

// fault has a share of Stripe's answers fail.
func (s *shop) fault(*http.Request) *stripefake.Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.faults == 0 || s.random.Float64() >= s.faults {
		return nil
	}
	if s.random.IntN(2) == 0 {
		return &stripefake.Fault{Status: http.StatusTooManyRequests}
	}
	return &stripefake.Fault{Status: http.StatusInternalServerError}
}

// deliver posts an event to the webhook, signed, and works it as a job would.
func (s *shop) deliver(typ, id string) {
	s.t.Helper()
	event, err := s.stripe.Event(typ, id, stripefake.EventOptions{})
	s.must(err)
	status, _, err := s.stripe.Deliver(s.t.Context(), s.webhook.URL, event)
	s.must(err)
	if status != http.StatusOK {
		s.t.Fatalf("event %s of %s was answered %d", typ, id, status)
	}
	// A failure is noted with the event, which the next round tries again.
	_ = s.service.SettleEvent(s.t.Context(), inventory.DefaultMerchant, event.ID)
}

// workPending works the events that failed before.
func (s *shop) workPending() {
	s.t.Helper()
	rows, err := s.db.Query(s.t.Context(), `SELECT event_id FROM keytill.events WHERE merchant_id = 'default' AND state = 'pending' AND NOT swept`)
	s.must(err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	s.must(err)
	for _, id := range ids {
		_ = s.service.SettleEvent(s.t.Context(), inventory.DefaultMerchant, id)
	}
}

// units counts an order's units by state.
func (s *shop) unitsOf(order string) (u units) {
	s.t.Helper()
	err := s.db.QueryRow(s.t.Context(), `
SELECT count(*) FILTER (WHERE state = 'pending'), count(*) FILTER (WHERE state = 'fulfilled'),
       count(*) FILTER (WHERE state = 'suspended'), count(*) FILTER (WHERE state = 'revoked'),
       count(*) FILTER (WHERE state NOT IN ('pending', 'fulfilled', 'suspended', 'revoked'))
  FROM keytill.fulfilments WHERE merchant_id = 'default' AND order_id = $1`, order).
		Scan(&u.pending, &u.fulfilled, &u.suspended, &u.revoked, &u.other)
	s.must(err)
	return u
}
