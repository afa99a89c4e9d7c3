package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/keytill/keytill/adapter"
	"github.com/keytill/keytill/adapter/stripeapi"
	"github.com/keytill/keytill/inventory"
	"github.com/keytill/keytill/migrations"
)

func (c *command) serve() *cobra.Command {
	var noMigrate bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the daemon: webhook, API, workers, deliveries, sweeps",
		Long: "Runs the daemon until it is told to stop (SIGTERM, Ctrl-C): Stripe posts to /webhooks/stripe, /healthz and\n" +
			"/readyz say how it is, /metrics tells Prometheus, and with access tokens /v1 is the API. Open requests and running\n" +
			"jobs end first, within ten seconds.",
		Example: "  keytill serve\n  keytill serve --listen 0.0.0.0:8080 --no-migrate",
		Args:    args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.runServe(cmd.Context(), !noMigrate)
		},
	}
	cmd.Flags().BoolVar(&noMigrate, "no-migrate", false, "do not bring the schema up to date first")
	return cmd
}

func (c *command) runServe(ctx context.Context, migrate bool) error {
	logger, err := c.logger()
	if err != nil {
		return err
	}
	if err := c.checkServe(); err != nil {
		return err
	}
	db, err := c.openDatabase(ctx, logger)
	if err != nil {
		return err
	}
	defer db.close()
	if migrate {
		if err := migrations.Up(ctx, db.pool); err != nil {
			return err
		}
	}
	keyset, err := c.loadKeyset(ctx)
	if err != nil {
		return err
	}
	shop, err := c.newShop(ctx, db, keyset, logger)
	if err != nil {
		return err
	}
	return c.listenAndRun(ctx, shop, db, logger)
}

// checkServe says what is missing before anything is started.
func (c *command) checkServe() error {
	s := c.settings
	return errors.Join(c.checkStripe(), together("KEYTILL_SMTP_URL", s.smtpURL, "KEYTILL_MAIL_FROM", s.mailFrom),
		together("KEYTILL_HOOK_URL", s.hookURL, "KEYTILL_HOOK_SECRET", s.hookSecret))
}

// together checks two settings of which neither works without the other.
func together(name, value, otherName, other string) error {
	switch {
	case value != "" && other == "":
		return fmt.Errorf("%s is set, and %s is not: set both, or neither", name, otherName)
	case value == "" && other != "":
		return together(otherName, other, name, value)
	}
	return nil
}

func (c *command) checkStripe() error {
	if c.settings.stripeKey == "" {
		return errors.New("no Stripe API key: set KEYTILL_STRIPE_API_KEY to a secret (sk_…) or restricted (rk_…) key from the Stripe dashboard, Developers → API keys")
	}
	if len(adapter.SplitList(c.settings.stripeSecrets)) == 0 {
		return errors.New("no webhook secret: set KEYTILL_STRIPE_WEBHOOK_SECRETS to the signing secret (whsec_…) of the endpoint in the Stripe dashboard, Developers → Webhooks")
	}
	_, err := stripeapi.Livemode(c.settings.stripeKey)
	return err
}

func (c *command) newShop(ctx context.Context, db *database, keyset *inventory.Keyset, logger *slog.Logger) (*adapter.Shop, error) {
	s := c.settings
	sweeps, err := c.sweepSettings()
	if err != nil {
		return nil, err
	}
	ttl, err := time.ParseDuration(s.reservationTTL)
	if err != nil || ttl <= 0 {
		return nil, usage("KEYTILL_RESERVATION_TTL is %q: it is a time such as 15m", s.reservationTTL)
	}
	tokens, err := c.readTokens()
	if err != nil {
		return nil, err
	}
	withKeys, err := c.withKeys()
	if err != nil {
		return nil, err
	}
	return adapter.New(ctx, adapter.Config{
		Pool:   db.pool,
		Keyset: keyset,
		Stripe: adapter.Stripe{APIKey: s.stripeKey, WebhookSecrets: adapter.SplitList(s.stripeSecrets), URL: s.stripeURL},
		Mail:   adapter.Mail{URL: s.smtpURL, From: s.mailFrom, ReplyTo: s.mailReplyTo, Templates: c.mailTemplates()},
		Hook:   adapter.Hook{URL: s.hookURL, Secrets: adapter.SplitList(s.hookSecret), WithKeys: withKeys},
		Now:    c.Now,
		Logger: logger,

		Reconcile: sweeps, ReservationTTL: ttl, PublicURL: s.publicURL, Tokens: tokens,
	})
}

// Limits of the HTTP server, against clients that are slow on purpose or by accident.
const (
	readHeaderTimeout = 10 * time.Second
	requestTimeout    = 30 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeader         = 64 << 10
	shutdownTimeout   = 10 * time.Second
)

// routes are the shop's, and its metrics.
func routes(shop *adapter.Shop) http.Handler {
	router := chi.NewRouter()
	shop.Mount(router)
	router.Method(http.MethodGet, "/metrics", shop.Metrics())
	return router
}

// listen opens the address of everything HTTP.
func (c *command) listen() (net.Listener, error) {
	listener, err := net.Listen("tcp", c.settings.listen)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w; choose another address with KEYTILL_LISTEN", c.settings.listen, err)
	}
	return listener, nil
}

// newServer is what serves a shop to the outside.
func (c *command) newServer(shop *adapter.Shop, logger *slog.Logger) (*http.Server, error) {
	tokens, err := c.readTokens()
	if err != nil {
		return nil, err
	}
	return &http.Server{Handler: newFront(routes(shop), c.settings.publicURL, tokens, c.Now, logger),
		ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: requestTimeout, WriteTimeout: requestTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeader, ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelWarn)}, nil
}

// listenAndRun serves HTTP and works jobs until ctx ends or one of them fails. The listener closes first, so that no
// request comes in that nobody ends; jobs stop at the same time.
func (c *command) listenAndRun(ctx context.Context, shop *adapter.Shop, db *database, logger *slog.Logger) error {
	listener, err := c.listen()
	if err != nil {
		return err
	}
	server, err := c.newServer(shop, logger)
	if err != nil {
		return err
	}
	logger.InfoContext(ctx, "keytill is up", "webhook", "http://"+listener.Addr().String()+"/webhooks/stripe", "embedded_database", db.server != nil)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return shop.Run(ctx) })
	group.Go(func() error {
		shop.WarnOfEndpoint(ctx)
		return nil
	})
	group.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve HTTP: %w", err)
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		return server.Shutdown(stop)
	})
	if db.server != nil {
		group.Go(func() error {
			select {
			case <-db.server.Done():
				return errors.New("the embedded PostgreSQL has ended; its log is postgres.log in the data directory")
			case <-ctx.Done():
				return nil
			}
		})
	}
	err = group.Wait()
	logger.InfoContext(context.WithoutCancel(ctx), "keytill has stopped")
	return err
}

func (c *command) migrate() *cobra.Command {
	return &cobra.Command{
		Use:   "migrate",
		Short: "Bring the database's schema up to this version",
		Long: "Brings the schema up to this version. `keytill serve` does it, too, unless it is told not to; run it by itself where\n" +
			"the daemon's user may not change tables. Several at once are no harm, and daemons of the version before go on meanwhile.",
		Example: "  keytill migrate && keytill serve --no-migrate\n  keytill migrate --database-url postgres://owner@db/shop",
		Args:    args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			logger, err := c.logger()
			if err != nil {
				return err
			}
			db, err := c.openDatabase(cmd.Context(), logger)
			if err != nil {
				return err
			}
			defer db.close()
			pending, err := migrations.Pending(cmd.Context(), db.pool)
			if err != nil {
				return err
			}
			if err := migrations.Up(cmd.Context(), db.pool); err != nil {
				return err
			}
			return c.show(map[string]any{"migrated": pending}, func(w io.Writer) {
				if pending {
					fmt.Fprintln(w, "The schema is up to date now.")
				} else {
					fmt.Fprintln(w, "The schema was up to date already.")
				}
			})
		},
	}
}
