package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keytill/keytill/adapter"
	"github.com/keytill/keytill/adapter/access"
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

	tokens *access.Tokens // of API and console; both are closed unless set
	public string         // where the shop stays open, if it does
	every  time.Duration  // between sweeps; negative: the story says when

	postgres string // version
	webhook  string // where Stripe posts to
	fail     func(error)
	down     []func() // what takes down what is up, the last first
	shopDown []func() // the same for the shop alone
}

// connections are for 32 workers, of which most wait for Stripe at any time, and for the webhooks.
const connections = 24

func (st *stage) open(ctx context.Context) (note string, err error) {
	if err := st.openDatabase(ctx); err != nil {
		return "", err
	}
	st.stripe = stripefake.Start(stripefake.Config{Now: st.clock.Now})
	st.down = append(st.down, st.stripe.Close)
	st.mail = smtptest.Start()
	st.down = append(st.down, st.mail.Close)
	st.hooks = hooktest.StartAt(hooktest.NewSecret(), st.clock.Now)
	st.down = append(st.down, st.hooks.Close)
	if st.keyset, err = inventory.NewKeyset(); err != nil {
		return "", err
	}
	st.down = append(st.down, st.closeShop)
	if err := st.openShop(ctx); err != nil {
		return "", err
	}
	return fmt.Sprintf("PostgreSQL %s, Stripe, mail and storefront are up", st.postgres), nil
}

func (st *stage) openDatabase(ctx context.Context) (err error) {
	st.server, err = pgserver.Start(ctx, pgserver.Config{Fast: true, TempDir: pgserver.MemoryDir(), Label: "demo", Logger: st.log})
	if err != nil {
		return err
	}
	st.down = append(st.down, func() { _ = st.server.Stop() })
	ended, closing := st.server.Done(), make(chan struct{})
	go func() {
		select {
		case <-ended:
			st.fail(errors.New("the demo's PostgreSQL has ended"))
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

// fakePerSecond lets keytill ask the fake Stripe as fast as it can: that one has no limit.
const fakePerSecond = 10_000

// openShop sets up keytill as a storefront would, serves its routes and starts its workers.
func (st *stage) openShop(ctx context.Context) (err error) {
	st.shop, err = adapter.New(ctx, adapter.Config{
		Pool:   st.db,
		Keyset: st.keyset,
		Stripe: adapter.Stripe{APIKey: st.stripe.APIKey(), WebhookSecrets: st.stripe.Secrets(), URL: st.stripe.URL(), PerSecond: fakePerSecond},
		Mail:   adapter.Mail{URL: st.mail.URL(), From: "Nebula Shop <shop@example.com>"},
		Hook:   adapter.Hook{URL: st.hooks.URL(), Secrets: []string{st.hooks.Secret()}},
		Now:    st.clock.Now,
		Logger: st.log,

		Reconcile: adapter.Reconcile{Every: st.every}, Tokens: st.tokens, PublicURL: st.public,
	})
	if err != nil {
		return err
	}
	if err := st.serve(); err != nil {
		return err
	}
	st.work(ctx)
	return st.waitForWorkers(ctx)
}

func (st *stage) serve() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen on the loopback: %w", err)
	}
	st.webhook = "http://" + listener.Addr().String() + "/webhooks/stripe"
	server := &http.Server{Handler: st.shop.Handler(), ReadHeaderTimeout: 10 * time.Second,
		ErrorLog: slog.NewLogLogger(st.log.Handler(), slog.LevelDebug)}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			st.fail(fmt.Errorf("serve HTTP: %w", err))
		}
	}()
	st.shopDown = append(st.shopDown, func() { _ = server.Close() })
	return nil
}

// work runs the workers until the stage closes. They do not stop with ctx, so that they end before what they work with.
func (st *stage) work(ctx context.Context) {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := st.shop.Run(ctx); err != nil {
			st.fail(err)
		}
	}()
	st.shopDown = append(st.shopDown, func() {
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

// sleep lets so much time pass. The shop is shut for it: the job queue of a running one would not take a jump of the
// clock for sleep.
func (st *stage) sleep(ctx context.Context, d time.Duration) error {
	st.closeShop()
	st.clock.jump(d)
	return st.openShop(ctx)
}

func (st *stage) closeShop() { takeDown(&st.shopDown) }

func (st *stage) close() { takeDown(&st.down) }

func takeDown(down *[]func()) {
	for _, f := range slices.Backward(*down) {
		f()
	}
	*down = nil
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
