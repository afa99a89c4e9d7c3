package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keytill/keytill/adapter"
	"github.com/keytill/keytill/internal/hooktest"
	"github.com/keytill/keytill/internal/pgserver"
	"github.com/keytill/keytill/internal/smtptest"
	"github.com/keytill/keytill/internal/stripefake"
	"github.com/keytill/keytill/inventory"
	"github.com/keytill/keytill/migrations"
)

// stage is what the day needs. All of it is on the loopback and in memory or in a temporary directory.
type stage struct {
	log    *slog.Logger
	clock  clock
	server *pgserver.Server
	db     *pgxpool.Pool
	stripe *stripefake.Server
	mail   *smtptest.Server
	hooks  *hooktest.Server
	keyset *inventory.Keyset
	shop   *adapter.Shop

	postgres string // version
	webhook  string // where Stripe posts to
	down     []func()
}

// connections are for 32 workers, of which most wait for Stripe at any time, and for the webhooks.
const connections = 24

func (st *stage) open(ctx context.Context, fail func(error)) (note string, err error) {
	if err := st.openDatabase(ctx, fail); err != nil {
		return "", err
	}
	st.stripe = stripefake.Start(stripefake.Config{Now: st.clock.Now})
	st.down = append(st.down, st.stripe.Close)
	st.mail = smtptest.Start()
	st.down = append(st.down, st.mail.Close)
	st.hooks = hooktest.Start(hooktest.NewSecret())
	st.down = append(st.down, st.hooks.Close)
	if err := st.openShop(ctx, fail); err != nil {
		return "", err
	}
	return fmt.Sprintf("PostgreSQL %s, Stripe, mail and storefront are up", st.postgres), nil
}

func (st *stage) openDatabase(ctx context.Context, fail func(error)) (err error) {
	st.server, err = pgserver.Start(ctx, pgserver.Config{Fast: true, TempDir: pgserver.MemoryDir(), Label: "demo", Logger: st.log})
	if err != nil {
		return err
	}
	st.down = append(st.down, func() { _ = st.server.Stop() })
	ended, closing := st.server.Done(), make(chan struct{})
	go func() {
		select {
		case <-ended:
			fail(errors.New("the demo's PostgreSQL has ended"))
		case <-closing:
		}
	}()
	st.down = append(st.down, func() { close(closing) })
	config, err := pgxpool.ParseConfig(st.server.URL())
	if err != nil {
		return fmt.Errorf("read the database's address: %w", err)
	}
	config.MaxConns = connections
	if st.db, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	st.down = append(st.down, st.db.Close)
	if err := st.db.QueryRow(ctx, `SELECT split_part(current_setting('server_version'), ' ', 1)`).Scan(&st.postgres); err != nil {
		return fmt.Errorf("ask the database: %w", err)
	}
	return migrations.Up(ctx, st.db)
}

// openShop sets up keytill as a storefront would, serves its routes and starts its workers.
func (st *stage) openShop(ctx context.Context, fail func(error)) (err error) {
	if st.keyset, err = inventory.NewKeyset(); err != nil {
		return err
	}
	st.shop, err = adapter.New(ctx, adapter.Config{
		Pool:   st.db,
		Keyset: st.keyset,
		Stripe: adapter.Stripe{APIKey: st.stripe.APIKey(), WebhookSecrets: st.stripe.Secrets(), URL: st.stripe.URL()},
		Mail:   adapter.Mail{URL: st.mail.URL(), From: "Nebula Shop <shop@example.com>"},
		Hook:   adapter.Hook{URL: st.hooks.URL(), Secrets: []string{st.hooks.Secret()}},
		Now:    st.clock.Now,
		Logger: st.log,
	})
	if err != nil {
		return err
	}
	if err := st.serve(fail); err != nil {
		return err
	}
	st.work(ctx, fail)
	return st.waitForWorkers(ctx)
}

func (st *stage) serve(fail func(error)) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen on the loopback: %w", err)
	}
	st.webhook = "http://" + listener.Addr().String() + "/webhooks/stripe"
	server := &http.Server{Handler: st.shop.Handler(), ReadHeaderTimeout: 10 * time.Second,
		ErrorLog: slog.NewLogLogger(st.log.Handler(), slog.LevelDebug)}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			fail(fmt.Errorf("serve HTTP: %w", err))
		}
	}()
	st.down = append(st.down, func() { _ = server.Close() })
	return nil
}

// work runs the workers until the stage closes. They do not stop with ctx, so that they end before what they work with.
func (st *stage) work(ctx context.Context, fail func(error)) {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := st.shop.Run(ctx); err != nil {
			fail(err)
		}
	}()
	st.down = append(st.down, func() {
		stop()
		<-ended
	})
}

// waitForWorkers waits until the workers have noted that they send mails and hooks: deliveries are written only for
// channels that somebody serves.
func (st *stage) waitForWorkers(ctx context.Context) error {
	return poll(ctx, func() (bool, error) {
		var channels int
		err := st.db.QueryRow(ctx, `SELECT cardinality(channels) FROM keytill.merchants WHERE merchant_id = $1`,
			inventory.DefaultMerchant).Scan(&channels)
		return channels > 0, err
	})
}

// close takes down what has come up, the last first.
func (st *stage) close() {
	for i := len(st.down) - 1; i >= 0; i-- {
		st.down[i]()
	}
	st.down = nil
}

const pollEvery = 25 * time.Millisecond

// poll asks again and again until the answer is yes.
func poll(ctx context.Context, ask func() (bool, error)) error {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		if yes, err := ask(); err != nil || yes {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}
