package main_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/keytill/keytill/internal/pgtest"
)

func TestMain(m *testing.M) {
	code := pgtest.Run(m)
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

// built is the program, built once for all tests.
var built struct {
	once sync.Once
	dir  string
	err  error
}

// program builds keytill and returns its path.
func program(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "keytill-test-"); built.err != nil {
			return
		}
		out, err := exec.Command("go", "build", "-o", built.dir, ".").CombinedOutput()
		if err != nil {
			built.err = fmt.Errorf("go build: %w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return filepath.Join(built.dir, "keytill")
}

// daemon is a `keytill serve` in a process of its own.
type daemon struct {
	cmd   *exec.Cmd
	url   string        // of its webhook
	ended chan struct{} // closed once it has ended and its log is read
	err   error         // how it ended

	mu  sync.Mutex
	log strings.Builder
}

const startPatience = 30 * time.Second

// serve starts a daemon and returns once it is up. It is killed at the test's end if it still runs then.
func serve(t *testing.T, env environment) *daemon {
	t.Helper()
	cmd := exec.Command(program(t), "serve")
	cmd.Dir = t.TempDir()
	for name, value := range env {
		cmd.Env = append(cmd.Env, "KEYTILL_"+name+"="+value)
	}
	return startDaemon(t, cmd)
}

// startDaemon starts a command that becomes a daemon.
func startDaemon(t *testing.T, cmd *exec.Cmd) *daemon {
	t.Helper()
	d := &daemon{cmd: cmd, ended: make(chan struct{})}
	stderr, err := d.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	up := make(chan string, 1)
	go d.read(stderr, up)
	t.Cleanup(func() {
		_ = d.cmd.Process.Kill() // it has ended already unless the test failed
		<-d.ended
		if t.Failed() {
			t.Logf("the daemon %d said:\n%s", d.cmd.Process.Pid, d.said())
		}
	})
	select {
	case d.url = <-up:
	case <-d.ended:
		t.Fatalf("the daemon ended at its start: %v", d.err)
	case <-time.After(startPatience):
		t.Fatalf("the daemon is not up after %v", startPatience)
	}
	return d
}

// read keeps what the daemon logs, looks for its address in it, and waits for its end.
func (d *daemon) read(stderr io.Reader, up chan<- string) {
	defer close(d.ended)
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		d.mu.Lock()
		d.log.WriteString(lines.Text() + "\n")
		d.mu.Unlock()
		var entry struct{ Msg, Webhook string }
		if json.Unmarshal(lines.Bytes(), &entry) == nil && entry.Msg == "keytill is up" {
			up <- entry.Webhook
		}
	}
	d.err = d.cmd.Wait()
}

func (d *daemon) said() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.log.String()
}

func (d *daemon) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := d.cmd.Process.Signal(s); err != nil {
		t.Fatalf("signal %v: %v", s, err)
	}
}

// mustEnd waits for the daemon's end and returns its exit code, -1 if a signal ended it.
func (d *daemon) mustEnd(t *testing.T, within time.Duration) int {
	t.Helper()
	select {
	case <-d.ended:
	case <-time.After(within):
		t.Fatalf("the daemon has not ended after %v", within)
	}
	return d.cmd.ProcessState.ExitCode()
}
