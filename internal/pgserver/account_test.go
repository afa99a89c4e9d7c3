package pgserver

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// As root, the other tests run PostgreSQL as another account. Here they run again as a plain user; where they run as one
// already, they are this test.
func TestEverythingWorksForAPlainUser(t *testing.T) {
	t.Parallel()
	if !isRoot() {
		return
	}
	a, err := accountFor(filepath.Join(t.TempDir(), "none"))
	if err != nil {
		t.Fatal(err)
	}
	home := openTempDir(t)
	if err := a.give(home); err != nil {
		t.Fatal(err)
	}
	// `go test` puts the binary where nobody else can enter.
	exe := filepath.Join(programDir(t), "pgserver.test")
	copyProgram(t, exe)
	cmd := a.command(exec.Command(exe, "-test.v", "-test.run",
		"^Test(TemporaryClusterServes|DataAndPassword|KillLoses|DirectoryInUse|NextStart|PostgresEnds)"), home)
	cmd.Env = append(cmd.Env, "TMPDIR="+home, "HOME="+home)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func copyProgram(t *testing.T, to string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	in, err := os.Open(exe)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestRootIsToldWhichDirectoryIsClosedToPostgres(t *testing.T) {
	t.Parallel()
	closed := filepath.Join(openTempDir(t), "closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	if !isRoot() { // PostgreSQL runs as who made the directory, to whom it is open
		a, err := accountFor(closed)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.canReach(closed, "none needed"); err != nil {
			t.Error(err)
		}
		return
	}
	_, err := Start(t.Context(), Config{Dir: filepath.Join(closed, "data")})
	if !errors.Is(err, ErrNoAccess) {
		t.Fatalf("got %v, want ErrNoAccess", err)
	}
	wantInMessage(t, err, closed+" is closed", "--data-dir", "chmod o+x "+closed)
}

// A umask of 077 must not close the directory that root makes to PostgreSQL's account. Not parallel: the umask is the
// process's.
func TestRootsUmaskDoesNotLockPostgresOut(t *testing.T) {
	if !isRoot() {
		t.Skip("only root runs PostgreSQL as another account")
	}
	dir := filepath.Join(openTempDir(t), "data")
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	s := start(t, Config{Dir: dir})
	query(t, s.URL(), `SELECT 'up'`)
}

// A cluster that was restored by root, file by file, belongs to root.
func TestRootsCopyOfAClusterIsGivenToPostgres(t *testing.T) {
	t.Parallel()
	if !isRoot() {
		t.Skip("only root can give files away")
	}
	dir := filepath.Join(openTempDir(t), "data")
	s := start(t, Config{Dir: dir})
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := (account{uid: 0, gid: 0, change: true}).own(dataDir(dir)); err != nil {
		t.Fatal(err)
	}
	s = start(t, Config{Dir: dir})
	query(t, s.URL(), `SELECT 'up'`)
}
