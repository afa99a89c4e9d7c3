package reconcile_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/keytill/keytill/internal/pgtest"
	"github.com/keytill/keytill/internal/sqltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Suite{M: m}) }

func TestStatementsPrepare(t *testing.T) {
	t.Parallel()
	sqltest.Prepare(t, pgtest.New(t), ".", nil)
}
