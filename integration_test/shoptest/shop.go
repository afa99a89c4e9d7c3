// Package shoptest is keytill between a fake Stripe and a database, for tests that break what lies around it.
package shoptest

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

// A Shop is keytill's own parts between a fake Stripe and a database, without the job queue's workers: who runs it
// says when an event is worked and when there is a sweep, and the clock is its own.
type Shop struct {
	T       testing.TB
	DB      *pgxpool.Pool
	Stripe  *stripefake.Server
	Keyset  *inventory.Keyset
	Client  *stripeapi.Client
	Service *fulfillment.Service
	Sweeper *reconcile.Sweeper
	Webhook *httptest.Server

	patience  time.Duration                         // with Stripe; without end unless set
	onRequest func(*http.Request) *stripefake.Fault // of Config

	of     *Shop // beside which it was opened, and by whose clock it goes; nil for the first
	mu     sync.Mutex
	at     time.Time
	random *rand.Rand // of faults
	faults float64    // how many of Stripe's answers are 429 or 500
}

// Config says what shop to open. Its zero value is a shop on a fresh database, without a key.
type Config struct {
	DB   *pgxpool.Pool // nil: a fresh one
	Keys int           // of SKU game, which price_game sells
	Seed uint64        // of random faults

	// OnRequest, if set, says what goes wrong with a call of Stripe's, before Faults does.
	OnRequest func(*http.Request) *stripefake.Fault
}

// Grace is how long the sweep leaves a payment to the webhook.
const Grace = 5 * time.Minute

// Open opens a shop, which is closed with the test.
func Open(t testing.TB, cfg Config) *Shop {
	t.Helper()
	s := &Shop{T: t, DB: cfg.DB, onRequest: cfg.OnRequest, at: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), random: rand.New(rand.NewPCG(cfg.Seed, 2))}
	if s.DB == nil {
		s.DB = pgtest.New(t)
	}
	s.Stripe = stripefake.Start(stripefake.Config{Now: s.Now, OnRequest: s.fault})
	t.Cleanup(s.Stripe.Close)
	var err error
	s.Keyset, err = inventory.NewKeyset()
	s.Must(err)
	s.assemble()
	s.stock(cfg.Keys)
	return s
}

// Beside opens another keytill of the same shop, with a way of its own to the database, as a second process has.
func (s *Shop) Beside(db *pgxpool.Pool) *Shop {
	s.T.Helper()
	other := &Shop{T: s.T, DB: db, Stripe: s.Stripe, Keyset: s.Keyset, of: s}
	other.assemble()
	return other
}

// Impatient opens another keytill of the same shop that waits so long for Stripe to begin an answer, and twice that for its
// end.
func (s *Shop) Impatient(patience time.Duration) *Shop {
	s.T.Helper()
	other := &Shop{T: s.T, DB: s.DB, Stripe: s.Stripe, Keyset: s.Keyset, patience: patience, of: s}
	other.assemble()
	return other
}

// assemble makes keytill's parts.
func (s *Shop) assemble() {
	s.T.Helper()
	logger := slog.New(slog.DiscardHandler)
	inserter, err := jobs.NewInserter(s.DB, s.Now, logger)
	s.Must(err)
	s.Client = newClient(s.T, s.DB, s.Stripe.URL(), s.Stripe.APIKey(), s.patience)
	s.Service, err = fulfillment.New(fulfillment.Config{DB: s.DB, Stripe: s.Client, Jobs: inserter, Keyset: s.Keyset, Now: s.Now, Logger: logger})
	s.Must(err)
	s.Sweeper, err = reconcile.New(reconcile.Config{DB: s.DB, Stripe: s.Client, Settler: s.Service, Grace: Grace, Now: s.Now, Logger: logger})
	s.Must(err)
	store, err := webhooks.NewStore(webhooks.StoreConfig{DB: s.DB, Jobs: inserter, Now: s.Now})
	s.Must(err)
	verifier, err := webhooks.NewVerifier(webhooks.VerifierConfig{Secrets: s.Stripe.Secrets(), Now: s.Now})
	s.Must(err)
	handler, err := webhooks.NewHandler(webhooks.Config{Verifier: verifier, Inbox: store})
	s.Must(err)
	s.Webhook = httptest.NewServer(handler)
	s.T.Cleanup(s.Webhook.Close)
}

// NewClient reads the fake without a limit.
func NewClient(t testing.TB, db *pgxpool.Pool, url, key string) *stripeapi.Client {
	t.Helper()
	return newClient(t, db, url, key, 0)
}

func newClient(t testing.TB, db *pgxpool.Pool, url, key string, patience time.Duration) *stripeapi.Client {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 32, ResponseHeaderTimeout: patience}
	t.Cleanup(transport.CloseIdleConnections)
	client, err := stripeapi.New(stripeapi.Config{Key: key, URL: url, PerSecond: 1e6, RetryWait: time.Millisecond, CallTimeout: 2 * patience, Transport: transport,
		Account: func(ctx context.Context, merchant string) (string, error) {
			return inventory.StripeAccount(ctx, db, merchant)
		}})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// stock makes the one pool, with keys.
func (s *Shop) stock(keys int) {
	s.T.Helper()
	p := inventory.Pool{Merchant: inventory.DefaultMerchant, SKU: "game", Name: "Game", Shortage: inventory.Wait, CreatedAt: s.Now()}
	s.Must(pgx.BeginFunc(s.T.Context(), s.DB, func(tx pgx.Tx) (err error) {
		p, err = inventory.CreatePool(s.T.Context(), tx, p)
		return err
	}))
	s.Must(s.Service.Map(s.T.Context(), inventory.DefaultMerchant, "price_game", &p, 1))
	if keys == 0 {
		return
	}
	var file bytes.Buffer
	for i := range keys {
		fmt.Fprintf(&file, "GAME-%07d\n", i)
	}
	_, _, err := s.Service.Import(s.T.Context(), inventory.Import{Pool: p, File: io.Reader(&file), FileName: "keys", Actor: "test", At: s.Now()})
	s.Must(err)
}

// Must ends the test on an error.
func (s *Shop) Must(err error) {
	s.T.Helper()
	if err != nil {
		s.T.Fatal(err)
	}
}

// Now is the shop's clock, which moves by GoTo alone.
func (s *Shop) Now() time.Time {
	if s.of != nil {
		return s.of.Now()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}

// GoTo sets the clock forward.
func (s *Shop) GoTo(at time.Time) {
	if s.of != nil {
		s.of.GoTo(at)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if at.After(s.at) {
		s.at = at
	}
}

// Faults has a share of Stripe's answers fail from now on: 0.01 is one in a hundred.
func (s *Shop) Faults(share float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = share
}

func (s *Shop) fault(r *http.Request) *stripefake.Fault {
	if s.onRequest != nil {
		if f := s.onRequest(r); f != nil {
			return f
		}
	}
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

// Deliver posts an event to the webhook, signed, and works it as a job would.
func (s *Shop) Deliver(typ, id string) {
	s.T.Helper()
	event, err := s.Stripe.Event(typ, id, stripefake.EventOptions{})
	s.Must(err)
	status, _, err := s.Stripe.Deliver(s.T.Context(), s.Webhook.URL, event)
	s.Must(err)
	if status != http.StatusOK {
		s.T.Fatalf("event %s of %s was answered %d", typ, id, status)
	}
	// A failure is noted with the event, which the next round tries again.
	_ = s.Service.SettleEvent(s.T.Context(), inventory.DefaultMerchant, event.ID)
}

// WorkPending works the events that failed before.
func (s *Shop) WorkPending() {
	s.T.Helper()
	rows, err := s.DB.Query(s.T.Context(), `SELECT event_id FROM keytill.events WHERE merchant_id = 'default' AND state = 'pending' AND NOT swept`)
	s.Must(err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	s.Must(err)
	for _, id := range ids {
		_ = s.Service.SettleEvent(s.T.Context(), inventory.DefaultMerchant, id)
	}
}

// UnitsOf counts an order's units by state.
func (s *Shop) UnitsOf(order string) (u Units) {
	s.T.Helper()
	err := s.DB.QueryRow(s.T.Context(), `
SELECT count(*) FILTER (WHERE state = 'pending'), count(*) FILTER (WHERE state = 'fulfilled'),
       count(*) FILTER (WHERE state = 'suspended'), count(*) FILTER (WHERE state = 'revoked'),
       count(*) FILTER (WHERE state NOT IN ('pending', 'fulfilled', 'suspended', 'revoked'))
  FROM keytill.fulfilments WHERE merchant_id = 'default' AND order_id = $1`, order).
		Scan(&u.Pending, &u.Fulfilled, &u.Suspended, &u.Revoked, &u.Other)
	s.Must(err)
	return u
}

// Units are an order's, counted by state.
type Units struct{ Pending, Fulfilled, Suspended, Revoked, Other int }
