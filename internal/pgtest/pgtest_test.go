package pgtest_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/keytill/keytill/internal/pgserver"
	"github.com/keytill/keytill/internal/pgtest"
)

// childEnv makes TestChild do something, in a test binary that another test runs.
const childEnv = "PGTEST_TEST_CHILD"

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
			if _, err := pool.Exec(t.Context(), `CREATE TABLE mine (n int)`); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestPoolIsSmallUnlessTheURLSaysOtherwise(t *testing.T) {
	t.Parallel()
	url := pgtest.NewURL(t)
	if got := pgtest.Pool(t, url).Config().MaxConns; got != 10 {
		t.Errorf("MaxConns %d, want 10", got)
	}
	if got := pgtest.Pool(t, url+"&pool_max_conns=3").Config().MaxConns; got != 3 {
		t.Errorf("MaxConns %d, want 3", got)
	}
}

func TestPassedTestLeavesNoDatabaseEvenWithAnOpenConnection(t *testing.T) {
	t.Parallel()
	var conn *pgx.Conn
	t.Run("user", func(t *testing.T) {
		var err error
		if conn, err = pgx.Connect(t.Context(), pgtest.NewURL(t)); err != nil {
			t.Fatal(err)
		}
	})
	_, err := pgx.ConnectConfig(context.Background(), conn.Config())
	if err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("connecting to the database of a passed test: %v", err)
	}
	_ = conn.Close(t.Context())
}

func TestServerOfItsOwnSurvivesACrashWithItsPool(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, pgserver.Config{})
	pool := pgtest.Pool(t, server.URL())
	var fsync string
	if err := pool.QueryRow(t.Context(), `SHOW fsync`).Scan(&fsync); err != nil || fsync != "on" {
		t.Errorf("fsync %q, error %v", fsync, err)
	}
	if _, err := pool.Exec(t.Context(), `CREATE TABLE kept (n int)`); err != nil {
		t.Fatal(err)
	}
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	pool.Reset()
	if _, err := pool.Exec(t.Context(), `INSERT INTO kept VALUES (1)`); err != nil {
		t.Error(err)
	}
}

func TestFailedTestLeavesItsDatabaseAndSaysHowToLook(t *testing.T) {
	t.Parallel()
	out, err := runChild(t, childEnv+"=fail")
	if err == nil {
		t.Fatalf("the child did not fail:\n%s", out)
	}
	command := regexp.MustCompile(`psql '(postgres://[^']+)'`).FindStringSubmatch(out)
	if command == nil {
		t.Fatalf("no psql command:\n%s", out)
	}
	conn, err := pgx.Connect(t.Context(), command[1])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), `SELECT FROM evidence`); err != nil {
		t.Error(err)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Error(err)
	}
	// The next run of the same package's tests removes it.
	if out, err := runChild(t, childEnv+"=pass"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if _, err := pgx.Connect(t.Context(), command[1]); err == nil {
		t.Error("the kept server is still there after the next run")
	}
}

func TestWithoutPostgresTestsFail(t *testing.T) {
	t.Parallel()
	out, err := runChild(t, childEnv+"=pass", "KEYTILL_PG_BIN=/nowhere")
	if err == nil || !strings.Contains(out, "no PostgreSQL 15 or newer") || strings.Contains(out, "SKIP") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestServerOfTheEnvironmentIsUsed(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, pgserver.Config{Fast: true})
	out, err := runChild(t, childEnv+"=pass", "KEYTILL_TEST_DATABASE_URL="+server.URL(), "KEYTILL_PG_BIN=/nowhere")
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	pool := pgtest.Pool(t, server.URL())
	var templates int
	err = pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_database WHERE datname LIKE 'testdb_tpl_%'`).Scan(&templates)
	if err != nil || templates != 1 {
		t.Errorf("%d databases on the server, error %v, want the template alone", templates, err)
	}
}

// TestChild is nothing by itself: see runChild.
func TestChild(t *testing.T) {
	mode := os.Getenv(childEnv)
	if mode == "" {
		return
	}
	pool := pgtest.New(t)
	if _, err := pool.Exec(t.Context(), `CREATE TABLE evidence (n int)`); err != nil {
		t.Fatal(err)
	}
	if mode == "fail" {
		t.Error("failing, as asked")
	}
}

// runChild runs TestChild in a process of its own, which has a server of its own, and as a package of its own.
func runChild(t *testing.T, env ...string) (string, error) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run", "^TestChild$", "-test.v")
	cmd.Env = append(os.Environ(), env...)
	cmd.Dir = os.TempDir()
	out, err := cmd.CombinedOutput()
	return string(out), err
}
