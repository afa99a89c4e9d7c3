// Package pgtest gives tests databases: fresh, with keytill's schema, each a clone of a template that is migrated once.
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
//
//	func TestClaim(t *testing.T) {
//		t.Parallel()
//		pool := pgtest.New(t)
//		…
//	}
//
// The databases live on one temporary server for each test binary, started when the first test asks for it, and
// stopped by Main; without Main, it ends with the process and its files go with the next start of any. With
// KEYTILL_TEST_DATABASE_URL they live on that server instead, whose user must be allowed to create databases and
// roles.
//
// A failing test leaves its database, says how to look at it, and keeps the temporary server running for a while. A
// machine without PostgreSQL fails the tests; it never skips them.
package pgtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/peterldowns/pgtestdb"
)

// maxConns keeps many parallel tests within one server's connections. A URL's pool_max_conns wins.
const maxConns = 10

// New returns a pool on a fresh database. Pool and database go with the test.
func New(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return Pool(t, NewURL(t))
}

// NewURL returns the URL of a fresh database, for a test that connects by itself or has another process connect.
// Connections that are still open when the test ends are cut.
func NewURL(t testing.TB) string {
	t.Helper()
	return newURL(t)
}

func newURL(t pgtestdb.TB) string {
	t.Helper()
	url, err := sharedURL()
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	server, err := parseServer(url)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	// Cleanups run backwards: this one is registered first, so it sees how the test ended.
	var database *pgtestdb.Config
	t.Cleanup(func() {
		if t.Failed() && database != nil {
			keepForInspection(t, database.URL())
		}
	})
	database = pgtestdb.Custom(t, server, migrator{})
	return database.URL()
}

// Pool opens a pool that is closed with the test. It has at most 10 connections unless the URL has a pool_max_conns.
func Pool(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	config, err := poolConfig(url)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatalf("pgtest: open a pool: %v", err)
	}
	t.Cleanup(func() { closePool(t, pool) })
	return pool
}

// closePool does not wait for ever, as Close would, for a connection that a test took and never gave back.
func closePool(t testing.TB, pool *pgxpool.Pool) {
	closed := make(chan struct{})
	go func() {
		pool.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Errorf("pgtest: %d connections were not given back to the pool", pool.Stat().AcquiredConns())
	}
}

func keepForInspection(t pgtestdb.TB, url string) {
	t.Helper()
	until, err := keepShared()
	if err != nil {
		t.Logf("pgtest: the failed test's database cannot be kept: %v", err)
		return
	}
	note := ""
	if !until.IsZero() {
		note = fmt.Sprintf(" (until %s, or the next run of these tests)", until.Format(time.TimeOnly))
	}
	t.Logf("pgtest: look at this test's database%s:\n\tpsql '%s'", note, url)
}
