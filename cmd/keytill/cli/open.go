package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keytill/keytill/adapter/stripeapi"
	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/internal/jobs"
	"github.com/keytill/keytill/internal/pg"
	"github.com/keytill/keytill/internal/pgserver"
	"github.com/keytill/keytill/inventory"
	"github.com/keytill/keytill/migrations"
)

// database is the one the settings name, or an embedded one.
type database struct {
	pool   *pgxpool.Pool
	server *pgserver.Server // nil where the database is somebody else's
}

func (d *database) close() {
	d.pool.Close()
	if d.server != nil {
		_ = d.server.Stop()
	}
}

const connectTimeout = 10 * time.Second

// openDatabase connects. Without a URL it starts the embedded PostgreSQL, or uses the one that a daemon runs in the same
// directory.
func (c *command) openDatabase(ctx context.Context, logger *slog.Logger) (*database, error) {
	db := &database{}
	address := c.settings.databaseURL
	if address == "" {
		dir := c.path(c.settings.dataDir)
		server, err := pgserver.Start(ctx, pgserver.Config{Dir: dir, Logger: logger})
		switch {
		case err == nil:
			db.server, address = server, server.URL()
		case errors.Is(err, pgserver.ErrInUse):
			if address, err = pgserver.Running(dir); err != nil {
				return nil, err
			}
		default:
			return nil, err
		}
	}
	pool, err := connect(ctx, address)
	if err != nil {
		if db.server != nil {
			_ = db.server.Stop()
		}
		return nil, err
	}
	db.pool = pool
	return db, nil
}

// maxConns is how many connections a process opens at most unless pool_max_conns in the database URL says otherwise:
// enough for the workers, which wait for Stripe most of the time and for the database the rest.
const maxConns = 24

// connect opens a pool, makes sure that somebody answers, and does without prepared statements where a pooler does. Its
// errors never hold the password.
func connect(ctx context.Context, address string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(address)
	if err != nil {
		return nil, errors.New("the database URL cannot be read: it must look like postgres://user:password@host:5432/database")
	}
	if !strings.Contains(address, "pool_max_conns") {
		config.MaxConns = maxConns
	}
	pool, err := openPool(ctx, config)
	if err != nil || strings.Contains(address, "default_query_exec_mode") {
		return pool, err
	}
	pooled, err := pg.Pooled(ctx, pool)
	if err == nil && !pooled {
		return readCommitted(ctx, config, pool)
	}
	pool.Close()
	if err != nil {
		return nil, fmt.Errorf("look for a pooler before the database: %w", err)
	}
	// Not every pooler bears prepared statements: PgBouncer does from version 1.21 on, if it is told to.
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	return openPool(ctx, config)
}

// readCommitted opens another pool where the server's transactions are stricter unless they say otherwise. keytill's say so;
// single statements, such as the job queue's, cannot, and would fail where they get into each other's way.
func readCommitted(ctx context.Context, config *pgxpool.Config, pool *pgxpool.Pool) (*pgxpool.Pool, error) {
	var isolation string
	err := pool.QueryRow(ctx, `SHOW default_transaction_isolation`).Scan(&isolation)
	if err == nil && isolation == "read committed" {
		return pool, nil
	}
	pool.Close()
	if err != nil {
		return nil, fmt.Errorf("ask the database how it isolates transactions: %w", err)
	}
	config.ConnConfig.RuntimeParams["default_transaction_isolation"] = "read committed"
	return openPool(ctx, config)
}

func openPool(ctx context.Context, config *pgxpool.Config) (*pgxpool.Pool, error) {
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	ping, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := pool.Ping(ping); err != nil {
		pool.Close()
		return nil, fmt.Errorf("the database %s at %s:%d does not answer: %s. Start it, or check KEYTILL_DATABASE_URL",
			config.ConnConfig.Database, config.ConnConfig.Host, config.ConnConfig.Port, connectProblem(err))
	}
	return pool, nil
}

// connectProblem is what went wrong, once: each address of a host and each kind of encryption has been tried.
func connectProblem(err error) string {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return refused.Message
	}
	var failed *pgconn.ConnectError
	if errors.As(err, &failed) {
		if cause := failed.Unwrap(); cause != nil {
			first, _, _ := strings.Cut(cause.Error(), "\n")
			return first
		}
	}
	return err.Error()
}

// operator is what the commands of a person work with.
type operator struct {
	*database
	service  *fulfillment.Service
	stripe   *stripeapi.Client // nil without an API key
	keyset   *inventory.Keyset
	merchant string
}

// open connects, checks schema and keyset, and puts together what a command needs. Stripe is there if its key is.
func (c *command) open(ctx context.Context) (*operator, error) {
	logger, err := c.logger()
	if err != nil {
		return nil, err
	}
	db, err := c.openDatabase(ctx, logger)
	if err != nil {
		return nil, err
	}
	op, err := c.operator(ctx, db, logger)
	if err != nil {
		db.close()
		return nil, err
	}
	return op, nil
}

func (c *command) operator(ctx context.Context, db *database, logger *slog.Logger) (*operator, error) {
	if err := c.prepareSchema(ctx, db); err != nil {
		return nil, err
	}
	keyset, err := c.loadKeyset(ctx)
	if err != nil {
		return nil, err
	}
	if err := inventory.CheckKeyset(ctx, db.pool, keyset); err != nil {
		return nil, err
	}
	inserter, err := jobs.NewInserter(db.pool, c.Now, logger)
	if err != nil {
		return nil, err
	}
	var (
		stripe fulfillment.Stripe
		client *stripeapi.Client
	)
	if c.settings.stripeKey != "" {
		client, err = stripeapi.New(stripeapi.Config{Key: c.settings.stripeKey, URL: c.settings.stripeURL, Logger: logger,
			Account: func(ctx context.Context, merchant string) (string, error) {
				return inventory.StripeAccount(ctx, db.pool, merchant)
			}})
		if err != nil {
			return nil, err
		}
		stripe = client
	}
	service, err := fulfillment.New(fulfillment.Config{DB: db.pool, Stripe: stripe, Jobs: inserter, Keyset: keyset, Now: c.Now,
		Logger: logger})
	if err != nil {
		return nil, err
	}
	if _, err := inventory.StripeAccount(ctx, db.pool, c.settings.merchant); err != nil {
		return nil, err
	}
	return &operator{database: db, service: service, stripe: client, keyset: keyset, merchant: c.settings.merchant}, nil
}

// prepareSchema brings an embedded database up to date by itself; another one is migrated by who owns it.
func (c *command) prepareSchema(ctx context.Context, db *database) error {
	if db.server != nil {
		return migrations.Up(ctx, db.pool)
	}
	pending, err := migrations.Pending(ctx, db.pool)
	if err != nil {
		return err
	}
	if pending {
		return errors.New("the database's schema is older than this keytill, or not there yet: run `keytill migrate`")
	}
	return nil
}
