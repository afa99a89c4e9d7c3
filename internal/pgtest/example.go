package pgtest

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Example returns a pool on a fresh database for an Example, which has no testing.TB, and what closes it and drops the
// database. It panics where New would fail a test.
func Example() (pool *pgxpool.Pool, done func()) {
	t := &exampleTB{}
	config, err := poolConfig(newURL(t))
	if err == nil {
		pool, err = pgxpool.NewWithConfig(context.Background(), config)
	}
	if err != nil {
		t.end()
		t.Fatalf("open a pool: %v", err)
	}
	return pool, func() {
		pool.Close()
		t.end()
	}
}

// exampleTB is as much of a testing.TB as making a database takes.
type exampleTB struct{ cleanups []func() }

// Cleanup keeps what is to be done at the end.
func (t *exampleTB) Cleanup(f func()) { t.cleanups = append(t.cleanups, f) }

// Failed is false: an example that fails says so by its output.
func (t *exampleTB) Failed() bool { return false }

// Fatalf panics.
func (t *exampleTB) Fatalf(format string, args ...any) {
	panic("pgtest: " + fmt.Sprintf(format, args...))
}

// Helper does nothing.
func (t *exampleTB) Helper() {}

// Logf does nothing: what is printed is the example's output.
func (t *exampleTB) Logf(string, ...any) {}

func (t *exampleTB) end() {
	for i := range t.cleanups {
		t.cleanups[len(t.cleanups)-1-i]()
	}
}
