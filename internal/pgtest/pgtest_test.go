package pgtest_test

import (
	"context"
	"fmt"
	"testing"

	"go.uber.org/goleak"

	"github.com/keytill/keytill/internal/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Suite{M: m}) }

func TestEachTestHasItsOwnMigratedDatabase(t *testing.T) {
	t.Parallel()
	for i := range 4 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			pool := pgtest.New(t)
			var tables int
			err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_tables WHERE schemaname = 'keytill'`).Scan(&tables)
			if err != nil || tables == 0 {
				t.Fatalf("%d tables of keytill, error %v", tables, err)
			}
			// In a database that two tests share, the second of them fails here.
			if _, err := pool.Exec(context.Background(), `CREATE TABLE mine (n int)`); err != nil {
				t.Error(err)
			}
		})
	}
}
