package outage_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keytill/keytill/adapter/access"
	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/internal/hooktest"
	"github.com/keytill/keytill/internal/jobs"
	"github.com/keytill/keytill/internal/pgtest"
	"github.com/keytill/keytill/internal/smtptest"
	"github.com/keytill/keytill/internal/stripefake"
	"github.com/keytill/keytill/inventory"
)

const (
	webhookPath = "/webhooks/stripe"
	sku         = "game"
	price       = "price_game"
)

// A shop is what stands around keytill and does not break: Stripe, a mail server, the storefront that gets notices, and the
// test's own view of the database.
type shop struct {
	t      testing.TB
	stripe *stripefake.Server
	mail   *smtptest.Server
	hook   *hooktest.Server
	keyset *inventory.Keyset
	token  string // of the API
	url    string // of the database, as the daemons know it
	db     *pgxpool.Pool
	env    []string // of a daemon, but for its database
	pool   inventory.Pool
}

// open opens a shop on a migrated database, with so many keys on the shelf.
func open(t testing.TB, url string, keys int) *shop {
	t.Helper()
	s := newShop(t, url)
	s.stock(keys)
	return s
}

// newShop opens a shop on a database that may be empty.
func newShop(t testing.TB, url string) *shop {
	t.Helper()
	s := &shop{t: t, url: url, stripe: stripefake.Start(stripefake.Config{}), mail: smtptest.Start(),
		hook: hooktest.Start(hooktest.NewSecret())}
	t.Cleanup(func() {
		s.stripe.Close()
		s.mail.Close()
		s.hook.Close()
	})
	s.db = pgtest.Pool(t, url)
	var err error
	s.keyset, err = inventory.NewKeyset()
	s.must(err)
	s.furnish()
	return s
}

// furnish writes down what a daemon needs to know.
func (s *shop) furnish() {
	s.t.Helper()
	text, err := s.keyset.Marshal()
	s.must(err)
	token, line, err := access.New(access.Token{Name: "shop", Role: access.Admin})
	s.must(err)
	s.token = token
	tokens := filepath.Join(s.t.TempDir(), "tokens")
	s.must(os.WriteFile(tokens, []byte(line+"\n"), 0o600))
	s.env = append(os.Environ(),
		"KEYTILL_STRIPE_API_KEY="+s.stripe.APIKey(),
		"KEYTILL_STRIPE_WEBHOOK_SECRETS="+strings.Join(s.stripe.Secrets(), ","),
		"KEYTILL_STRIPE_API_URL="+s.stripe.URL(),
		"KEYTILL_KEYSET="+string(text),
		"KEYTILL_LISTEN=127.0.0.1:0",
		"KEYTILL_SMTP_URL="+s.mail.URL(),
		"KEYTILL_MAIL_FROM=Shop <shop@example.com>",
		"KEYTILL_HOOK_URL="+s.hook.URL(),
		"KEYTILL_HOOK_SECRET="+s.hook.Secret(),
		"KEYTILL_HOOK_WITH_KEYS=true",
		"KEYTILL_TOKENS_FILE="+tokens,
		// No sweep may mend what the webhook's way has lost.
		"KEYTILL_RECONCILE_EVERY=off")
}

func (s *shop) environment(url string) []string {
	return append(append([]string{}, s.env...), "KEYTILL_DATABASE_URL="+url)
}

// stock makes the one pool, which sells ahead of no stock but lets paid units wait, and fills it.
func (s *shop) stock(keys int) {
	s.t.Helper()
	now := time.Now()
	s.pool = inventory.Pool{Merchant: inventory.DefaultMerchant, SKU: sku, Name: "Game", Shortage: inventory.Wait, CreatedAt: now}
	s.must(pgx.BeginFunc(s.t.Context(), s.db, func(tx pgx.Tx) (err error) {
		s.pool, err = inventory.CreatePool(s.t.Context(), tx, s.pool)
		return err
	}))
	logger := slog.New(slog.DiscardHandler)
	inserter, err := jobs.NewInserter(s.db, time.Now, logger)
	s.must(err)
	service, err := fulfillment.New(fulfillment.Config{DB: s.db, Jobs: inserter, Keyset: s.keyset, Logger: logger})
	s.must(err)
	s.must(service.Map(s.t.Context(), inventory.DefaultMerchant, price, &s.pool, 1))
	_, _, err = service.Import(s.t.Context(), inventory.Import{Pool: s.pool, File: strings.NewReader(keyFile("FIRST", keys)), FileName: "first.txt",
		Actor: "test", At: now})
	s.must(err)
}

// keyFile is a file of keys whose texts tell where they are from, in the form that keyText finds in mails.
func keyFile(from string, keys int) string {
	var file strings.Builder
	for i := range keys {
		fmt.Fprintf(&file, "KEY-%s-%06d\n", from, i)
	}
	return file.String()
}

func (s *shop) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// The clock of the tests' databases is the real one, and keytill gives up on what died only after minutes. These minutes
// pass at once: what was to be tried again is due, and the jobs and the leadership of processes that are gone are known to
// be.
var passTime = []string{
	`UPDATE keytill.events SET next_try_at = next_try_at - interval '3 minutes' WHERE state = 'pending'`,
	`UPDATE keytill.river_job SET scheduled_at = scheduled_at - interval '1 hour' WHERE state IN ('retryable', 'scheduled')`,
	`UPDATE keytill.river_job SET attempted_at = attempted_at - interval '3 minutes' WHERE state = 'running'`,
	`DELETE FROM keytill.river_leader`,
}

// minutesPass is only for when no daemon runs.
func (s *shop) minutesPass() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, statement := range passTime {
		_, err := s.db.Exec(ctx, statement)
		s.must(err)
	}
}

// hurry has everything due that is to be tried again, also while daemons run: the pauses after many failures are long.
func (s *shop) hurry(ctx context.Context) error {
	_, err := s.db.Exec(ctx, `UPDATE keytill.river_job SET state = 'available', scheduled_at = now() WHERE state IN ('retryable', 'scheduled')`)
	return err
}

// await waits until something is so.
func (s *shop) await(within time.Duration, what string, so func(ctx context.Context) (bool, error)) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	var why error
	for {
		done, err := so(ctx)
		if done && err == nil {
			return
		}
		if ctx.Err() == nil {
			why = err
		}
		select {
		case <-ctx.Done():
			s.t.Fatalf("not after %v: %s (%v)", within, what, why)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (s *shop) count(ctx context.Context, query string, args ...any) (n int, err error) {
	err = s.db.QueryRow(ctx, query, args...).Scan(&n)
	return n, err
}

// freePort asks the kernel for a port.
func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
