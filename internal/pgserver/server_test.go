package pgserver

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestTemporaryClusterServesUntilStopRemovesIt(t *testing.T) {
	t.Parallel()
	s := start(t, Config{Fast: true})
	if got := query(t, s.URL(), `SELECT current_database()`); got != "keytill" {
		t.Errorf("database %q", got)
	}
	if got := query(t, s.URL(), `SELECT current_setting('fsync') || current_setting('listen_addresses')`); got != "off127.0.0.1" {
		t.Errorf("fsync and address %q", got)
	}
	pid, done := s.Pid(), s.Done()
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	<-done
	if isAlive(pid) || exists(s.Dir()) || s.Pid() != 0 {
		t.Errorf("after Stop: alive %t, directory there %t, pid %d", isAlive(pid), exists(s.Dir()), s.Pid())
	}
	if err := s.Stop(); err != nil {
		t.Errorf("second Stop: %v", err)
	}
}

func TestDataAndPasswordStayOverARestart(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(openTempDir(t), "data")
	first := start(t, Config{Dir: dir})
	exec1(t, first.URL(), `CREATE TABLE kept AS SELECT 'still here' AS text`)
	if got := query(t, first.URL(), `SELECT current_setting('fsync') || current_setting('data_checksums')`); got != "onon" {
		t.Errorf("fsync and data_checksums are %q", got)
	}
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	second := start(t, Config{Dir: dir})
	t.Logf("an existing cluster started in %v", time.Since(began).Round(time.Millisecond))
	if got := query(t, second.URL(), `SELECT text FROM kept`); got != "still here" {
		t.Errorf("got %q", got)
	}
	if password(t, first.URL()) != password(t, second.URL()) {
		t.Error("the password changed")
	}
}

func TestKillLosesNothingCommittedAndRestartKeepsTheURL(t *testing.T) {
	t.Parallel()
	s := start(t, Config{})
	url := s.URL()
	exec1(t, url, `CREATE TABLE kept AS SELECT 'still here' AS text`)
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.URL() != url {
		t.Errorf("URL changed from %s to %s", url, s.URL())
	}
	if got := query(t, url, `SELECT text FROM kept`); got != "still here" {
		t.Errorf("got %q", got)
	}
	text, err := os.ReadFile(logFile(s.Dir()))
	if err != nil || !strings.Contains(string(text), "not properly shut down") {
		t.Errorf("no recovery in the log (%v): Kill was no crash", err)
	}
	if err := s.Restart(t.Context()); err == nil {
		t.Error("Restart of a running server succeeded")
	}
}

func TestRestartAfterPostmasterAloneWasKilled(t *testing.T) {
	t.Parallel()
	s := start(t, Config{})
	if err := syscall.Kill(s.Pid(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	query(t, s.URL(), `SELECT 'up'`)
}

func TestPasswordIsNeeded(t *testing.T) {
	t.Parallel()
	s := start(t, Config{Fast: true})
	wrong := Server{password: "wrong", port: s.port}
	err := wrong.check(t.Context(), s.port)
	wantInMessage(t, err, "password authentication failed")
}

func TestSettingsWinAndAWrongOneShowsTheLog(t *testing.T) {
	t.Parallel()
	s := start(t, Config{Fast: true, Settings: map[string]string{"max_connections": "17"}})
	if got := query(t, s.URL(), `SHOW max_connections`); got != "17" {
		t.Errorf("max_connections %q", got)
	}
	_, err := Start(t.Context(), Config{Settings: map[string]string{"no_such_setting": "1"}})
	wantInMessage(t, err, "no_such_setting", "postgres.log")
}

// Ctrl-C at a terminal goes to the whole process group of what runs there.
func TestPostgresIsNotInOurProcessGroup(t *testing.T) {
	t.Parallel()
	s := start(t, Config{Fast: true})
	for name, pid := range map[string]int{"postmaster": s.Pid(), "watchdog": s.post.dog.cmd.Process.Pid} {
		group, err := syscall.Getpgid(pid)
		if err != nil || group != pid {
			t.Errorf("%s: process group %d of process %d, error %v", name, group, pid, err)
		}
	}
}

func TestForeignDirectoryIsNotOverwritten(t *testing.T) {
	t.Parallel()
	dir := openTempDir(t)
	if err := os.MkdirAll(dataDir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dataDir(dir), "precious"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Start(t.Context(), Config{Dir: dir})
	wantInMessage(t, err, dataDir(dir), "neither empty nor a PostgreSQL cluster", "--data-dir")
}

func password(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	return password
}
