package pgtest

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx", by which pgtestdb creates and drops databases
	"github.com/peterldowns/pgtestdb"

	"github.com/keytill/keytill/migrations"
)

// migrator makes the template database that pgtestdb clones.
type migrator struct{}

func (migrator) Hash() (string, error) { return migrations.Hash() }

// Migrate uses a pool of its own, since the migrations want pgx. It must be closed again: a database with connections
// cannot be cloned.
func (migrator) Migrate(ctx context.Context, _ *sql.DB, template pgtestdb.Config) error {
	return migrate(ctx, template.URL())
}

func migrate(ctx context.Context, url string) error {
	config, err := poolConfig(url)
	if err != nil {
		return err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	return migrations.Up(ctx, pool)
}

// parseServer puts a URL into pgtestdb's words. Its user makes databases; the tests themselves connect as a role of
// pgtestdb's that owns its database and is nothing more, like the one keytill has in production.
func parseServer(address string) (pgtestdb.Config, error) {
	config, err := poolConfig(address)
	if err != nil {
		return pgtestdb.Config{}, err
	}
	parsed, err := url.Parse(address)
	if err != nil {
		return pgtestdb.Config{}, err
	}
	conn := config.ConnConfig
	if strings.HasPrefix(conn.Host, "/") {
		return pgtestdb.Config{}, fmt.Errorf("%s must name a host and a port, not a socket", urlEnv)
	}
	host := conn.Host
	if strings.Contains(host, ":") {
		host = "[" + host + "]" // IPv6; pgtestdb pastes it into a URL
	}
	return pgtestdb.Config{
		DriverName: "pgx",
		Host:       host,
		Port:       strconv.Itoa(int(conn.Port)),
		User:       url.PathEscape(conn.User),
		Password:   url.PathEscape(conn.Password),
		Database:   conn.Database,
		Options:    parsed.RawQuery,
		// A crash test leaves connections of the process it killed.
		ForceTerminateConnections: true,
	}, nil
}

func poolConfig(address string) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(address)
	if err != nil {
		return nil, fmt.Errorf("database URL: %w", err)
	}
	if !strings.Contains(address, "pool_max_conns=") {
		config.MaxConns = maxConns
	}
	return config, nil
}
