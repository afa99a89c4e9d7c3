package main_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keytill/keytill/cmd/keytill/cli"
	"github.com/keytill/keytill/internal/pgtest"
)

// shop is a database with a pool of three keys, and how commands are run on it.
type shop struct {
	t   *testing.T
	env environment
	dir string
}

func newShop(t *testing.T, env environment) *shop {
	t.Helper()
	s := &shop{t: t, env: env, dir: openDir(t)}
	writeFile(t, filepath.Join(s.dir, "keys.txt"), "KEY-1\nKEY-2\nKEY-3\n")
	s.must("pool", "create", "game")
	s.must("import", "game", "keys.txt")
	return s
}

// openDir is a directory that the account of an embedded PostgreSQL can get through.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "keytill-shop")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return dir
}

// must runs a command that must do.
func (s *shop) must(args ...string) string {
	s.t.Helper()
	got := run(s.t.Context(), s.env, s.dir, args...)
	if got.code != 0 {
		s.t.Fatalf("keytill %s: exit %d\n%s%s", strings.Join(args, " "), got.code, got.stdout, got.stderr)
	}
	return got.stdout
}

// mustNot runs a command that must end with a code and one line that says something.
func (s *shop) mustNot(code int, says string, args ...string) {
	s.t.Helper()
	got := run(s.t.Context(), s.env, s.dir, args...)
	if got.code != code || !strings.Contains(got.stderr, says) || strings.Count(got.stderr, "\n") != 1 {
		s.t.Errorf("keytill %s: exit %d, want %d and %q:\n%s", strings.Join(args, " "), got.code, code, says, got.stderr)
	}
}

func TestAKeysetRotatesInSteps(t *testing.T) {
	t.Parallel()
	s := newShop(t, environment{"DATABASE_URL": pgtest.NewURL(t), "KEYSET": newKeyset(t)})
	before := s.env
	s.mustNot(2, "one step at a time", "keyset", "rotate", "--add", "--drop")
	s.mustNot(1, "begin a rotation with", "keyset", "rotate")
	s.mustNot(1, "begin a rotation with", "keyset", "rotate", "--promote")
	s.env = before.with(environment{"KEYSET": s.must("keyset", "rotate", "--add")})
	s.must("doctor")
	s.mustNot(1, "--promote", "keyset", "rotate")
	s.mustNot(1, "--promote", "keyset", "rotate", "--drop")
	s.env = before.with(environment{"KEYSET": s.must("keyset", "rotate", "--promote")})
	s.mustNot(1, "still used", "keyset", "rotate", "--drop")
	if got := s.must("keyset", "rotate"); !strings.Contains(got, "3 keys encrypted anew") {
		t.Errorf("rotate: %s", got)
	}
	s.env = before.with(environment{"KEYSET": s.must("keyset", "rotate", "--drop")})
	s.must("doctor")
	if got := s.must("import", "game", "keys.txt", "--force"); !strings.Contains(got, "duplicate in stock:  3") {
		t.Errorf("the same keys again: %s", got)
	}
	s.env = before
	s.mustNot(1, "this keyset did not encrypt this database", "stock")
}

func TestTheEmbeddedDatabasesKeysetRotatesByItself(t *testing.T) {
	t.Parallel()
	s := newShop(t, environment{})
	name := filepath.Join(s.dir, "keytill-data", "keyset.json")
	before := readAll(t, name)
	if got := s.must("keyset", "rotate"); !strings.Contains(got, "3 keys encrypted anew") || !strings.Contains(got, "dropped") {
		t.Errorf("rotate: %s", got)
	}
	after := readAll(t, name)
	if before == after || strings.Count(after, "keyId") != strings.Count(before, "keyId") {
		t.Error("the keyset is the old one, or has more keys than that")
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the keyset's file: %v, %v", info.Mode(), err)
	}
	if got := s.must("import", "game", "keys.txt", "--force"); !strings.Contains(got, "duplicate in stock:  3") {
		t.Errorf("the same keys again: %s", got)
	}
}

func readAll(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestStockIsRebuiltAndSaysWhatDiffered(t *testing.T) {
	t.Parallel()
	address := pgtest.NewURL(t)
	s := newShop(t, environment{"DATABASE_URL": address, "KEYSET": newKeyset(t)})
	if got := s.must("stock", "rebuild"); !strings.Contains(got, "nothing differed") {
		t.Errorf("%s", got)
	}
	if _, err := pgtest.Pool(t, address).Exec(t.Context(), `UPDATE keytill.stock SET counts = '{"revoked": 4}'`); err != nil {
		t.Fatal(err)
	}
	var rows []struct {
		SKU         string
		Differences []struct {
			State         string
			Counted, Rows int64
		}
	}
	if err := json.Unmarshal([]byte(s.must("stock", "rebuild", "game", "--json")), &rows); err != nil {
		t.Fatal(err)
	}
	found := false
	for _, d := range rows[0].Differences {
		found = found || d.State == "revoked" && d.Counted == 4 && d.Rows == 0
	}
	if !found {
		t.Errorf("%+v", rows)
	}
	s.must("doctor")
	s.mustNot(1, "no pool", "stock", "rebuild", "nosuch")
}

func TestImportsFromTheCommandLine(t *testing.T) {
	t.Parallel()
	s := newShop(t, environment{"DATABASE_URL": pgtest.NewURL(t), "KEYSET": newKeyset(t)})
	writeFile(t, filepath.Join(s.dir, "more.csv"), "Product Key;until\nKEY-3;\nKEY-4;2030-01-01\nKEY-4;\n")
	s.mustNot(1, "--separator ';'", "import", "game", "more.csv")
	s.mustNot(1, "rows, of which the first are 2, 4", "import", "game", "more.csv", "--separator", ";", "--duplicates", "refuse")
	got := s.must("import", "game", "more.csv", "--separator", ";", "--use-by-column", "until")
	for _, want := range []string{"new:                 1", "Rows in the file before: 4 (as 3)", "Rows in stock: 2"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
	for _, args := range [][]string{{"--format", "xml"}, {"--separator", "#"}, {"--duplicates", "keep"}, {"--no-header", "--column", "code"},
		{"--format", "lines", "--column", "1"}} {
		s.mustNot(2, args[0], append([]string{"import", "game", "more.csv"}, args...)...)
	}
	s.mustNot(1, "open the file of keys", "import", "game", "nosuch.txt")

	var stdout, stderr bytes.Buffer
	code := cli.Run(t.Context(), cli.Process{Args: []string{"import", "game", "-", "--json"}, Getenv: s.env.get, Stdin: strings.NewReader("KEY-5\nKEY-1\n"),
		Stdout: &stdout, Stderr: &stderr, Now: time.Now, Dir: s.dir})
	var report struct {
		New        int64
		Duplicates []struct{ Row int64 }
	}
	if err := json.Unmarshal(stdout.Bytes(), &report); err != nil || code != 0 || report.New != 1 || len(report.Duplicates) != 1 || report.Duplicates[0].Row != 2 {
		t.Errorf("from standard input: exit %d, %+v, %v\n%s%s", code, report, err, &stdout, &stderr)
	}
}
