package pgserver

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestTemporaryClustersRunSideBySide(t *testing.T) {
	t.Parallel()
	servers := make([]*Server, 3)
	var wait sync.WaitGroup
	for i := range servers {
		wait.Go(func() {
			s, err := Start(t.Context(), Config{Fast: true})
			if err != nil {
				t.Error(err)
				return
			}
			servers[i] = s
		})
	}
	wait.Wait()
	for _, s := range servers {
		if s == nil {
			continue
		}
		if got := query(t, s.URL(), `SHOW data_directory`); got != dataDir(s.Dir()) {
			t.Errorf("%s leads to the cluster in %s", s.URL(), got)
		}
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}
}

func TestDirectoryInUseIsRefusedAndItsOwnerNamed(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(openTempDir(t), "data")
	owner, child := startChild(t, Config{Dir: dir})
	_, err := Start(t.Context(), Config{Dir: dir})
	if !errors.Is(err, ErrInUse) {
		t.Fatalf("got %v, want ErrInUse", err)
	}
	wantInMessage(t, err, dir, "process "+strconv.Itoa(owner.Process.Pid), "--data-dir")
	if query(t, child.URL, `SELECT 'up'`) != "up" {
		t.Error("the owner's server was disturbed")
	}
}

func TestSameProcessCannotOwnADirectoryTwice(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(openTempDir(t), "data")
	start(t, Config{Dir: dir})
	if _, err := Start(t.Context(), Config{Dir: dir}); !errors.Is(err, ErrInUse) {
		t.Errorf("got %v, want ErrInUse", err)
	}
}

func TestPostgresEndsWithAKilledOwner(t *testing.T) {
	t.Parallel()
	owner, child := startChild(t, Config{Fast: true})
	kill(t, owner)
	eventually(t, "PostgreSQL has ended", func() bool { return !isAlive(child.Pid) })
}

func TestNextStartRemovesWhatAKilledOwnerLeft(t *testing.T) {
	t.Parallel()
	child := orphan(t, Config{Fast: true})
	start(t, Config{Fast: true})
	if isAlive(child.Pid) || exists(child.Dir) {
		t.Errorf("left over: process %t, directory %t", isAlive(child.Pid), exists(child.Dir))
	}
}

func TestNextStartTakesOverTheDataOfAKilledOwner(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(openTempDir(t), "data")
	child := orphan(t, Config{Dir: dir})
	exec1(t, child.URL, `CREATE TABLE kept AS SELECT 'still here' AS text`)
	s := start(t, Config{Dir: dir})
	if isAlive(child.Pid) {
		t.Error("the old server still runs")
	}
	if got := query(t, s.URL(), `SELECT text FROM kept`); got != "still here" {
		t.Errorf("got %q", got)
	}
}

// orphan starts a cluster in another process, and kills that process and the watchdog with it.
func orphan(t *testing.T, cfg Config) started {
	t.Helper()
	owner, child := startChild(t, cfg)
	if err := syscall.Kill(child.Watchdog, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	kill(t, owner)
	return child
}

func TestKeptClusterGoesWithItsTimeOrWithTheNextOfItsLabel(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		until time.Duration
		label string
		stays bool
	}{
		"other label":          {time.Hour, "other", true},
		"same label":           {time.Hour, "mine", false},
		"other label, expired": {-time.Second, "other", false},
	} {
		t.Run(name, func(t *testing.T) {
			label := t.Name() + test.label
			s, err := Start(t.Context(), Config{Fast: true, Label: t.Name() + "mine"})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.KeepRunning(time.Now().Add(test.until)); err != nil {
				t.Fatal(err)
			}
			pid, done := s.Pid(), s.Done()
			if err := s.Stop(); err != nil {
				t.Fatal(err)
			}
			if test.until > 0 && !isAlive(pid) {
				t.Fatal("it ended with its owner")
			}
			start(t, Config{Fast: true, Label: label})
			if isAlive(pid) != test.stays || exists(s.Dir()) != test.stays {
				t.Errorf("process there %t, directory there %t, want %t", isAlive(pid), exists(s.Dir()), test.stays)
			}
			_ = syscall.Kill(pid, syscall.SIGQUIT)
			<-done
		})
	}
}

func TestSomebodyElsesTemporaryDirectoryIsRefused(t *testing.T) {
	dir := openTempDir(t)
	t.Setenv("TMPDIR", dir)
	elsewhere := openTempDir(t)
	if err := os.Symlink(elsewhere, filepath.Join(dir, "keytill-pg-"+strconv.Itoa(os.Geteuid()))); err != nil {
		t.Fatal(err)
	}
	_, err := Start(t.Context(), Config{Fast: true})
	wantInMessage(t, err, "is not ours", "TMPDIR")
}
