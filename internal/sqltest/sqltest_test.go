package sqltest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/keytill/keytill/internal/pgtest"
	"github.com/keytill/keytill/internal/sqltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Suite{M: m}) }

const sample = "testdata/sample"

func TestStatementsAreFoundWhereverTheyStand(t *testing.T) {
	t.Parallel()
	statements, err := sqltest.Statements(sample)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range statements {
		got = append(got, s.Name+": "+s.SQL)
	}
	want := []string{
		"readTail: WITH tail AS (SELECT 1 AS x) SELECT x FROM tail",
		"limited: SELECT pool_id FROM keytill.pools LIMIT %d",
		"makeTable: CREATE TEMPORARY TABLE sample (n int)",
		"useTable: INSERT INTO sample VALUES ($1)",
		"commented: -- why\nDELETE FROM keytill.pools",
		": UPDATE keytill.pools SET name = $1",
		"local: SELECT sku FROM keytill.pools",
		": SELECT name FROM keytill.pools",
		": SELECT pool_id, sku FROM keytill.pools WHERE sku = $1",
		": TABLE keytill.pools",
	}
	// readPools itself is used in an expression outside of the constants, so it stands for itself too.
	want = append([]string{"readPools: SELECT pool_id, sku FROM keytill.pools"}, want...)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("statements (-want +got):\n%s", diff)
	}
}

func TestPreparePassesWhatTheDatabaseTakes(t *testing.T) {
	t.Parallel()
	sqltest.Prepare(t, pgtest.New(t), sample, sqltest.Fill{"limited": {{1}, {500}}})
}

func TestPrepareFailsForEachStatementTheDatabaseRefuses(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	if _, err := db.Exec(t.Context(), `ALTER TABLE keytill.pools RENAME COLUMN sku TO code`); err != nil {
		t.Fatal(err)
	}
	log := &recorder{TB: t}
	sqltest.Prepare(log, db, sample, sqltest.Fill{"missing": {{1}}})
	for _, want := range []string{"readPools: ", "local: ", "limited: ", "no statement missing"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no error for %q in:\n%s", want, log)
		}
	}
	if len(log.errors) != 5 { // and readPools with its WHERE
		t.Errorf("%d errors, want 5:\n%s", len(log.errors), log)
	}
}

// recorder keeps the errors of a test that is meant to fail.
type recorder struct {
	testing.TB
	errors []string
}

func (r *recorder) Error(args ...any) { r.errors = append(r.errors, fmt.Sprint(args...)) }
func (r *recorder) Errorf(f string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(f, args...))
}
func (r *recorder) String() string { return strings.Join(r.errors, "\n") }

func TestConstantsOfATypeAreFoundWithoutAList(t *testing.T) {
	t.Parallel()
	got, err := sqltest.Constants(sample, "State")
	if diff := cmp.Diff([]string{"SELECT"}, got); diff != "" || err != nil {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
	if got, err := sqltest.Constants(sample, "Stat"); err == nil {
		t.Errorf("a type that does not exist has constants: %v", got)
	}
}

func TestCheckedReadsTheSchema(t *testing.T) {
	t.Parallel()
	got := sqltest.Checked(t, pgtest.New(t), "keytill.deliveries", "channel")
	if diff := cmp.Diff([]string{"email", "hook", "process"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
