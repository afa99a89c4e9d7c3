package outage_test

import (
	"bufio"
	"context"
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
)

// built is the program, built once for all tests.
var built struct {
	once sync.Once
	dir  string
	err  error
}

// program builds keytill and returns its path.
func program(t testing.TB) string {
	t.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "keytill-outage-"); built.err != nil {
			return
		}
		out, err := exec.Command("go", "build", "-o", built.dir, "github.com/keytill/keytill/cmd/keytill").CombinedOutput()
		if err != nil {
			built.err = fmt.Errorf("go build: %w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return filepath.Join(built.dir, "keytill")
}

const (
	startPatience = 30 * time.Second
	stopPatience  = 15 * time.Second
)

// daemon is a `keytill serve` in a process of its own.
type daemon struct {
	cmd   *exec.Cmd
	url   string        // of everything HTTP
	ended chan struct{} // closed once it has ended and its log is read

	mu  sync.Mutex
	log strings.Builder
}

// serve starts a daemon on a database and returns once it is up. It is killed at the test's end if it still runs then.
func (s *shop) serve(url string) *daemon {
	s.t.Helper()
	cmd := exec.Command(program(s.t), "serve")
	cmd.Dir = s.t.TempDir()
	cmd.Env = s.environment(url)
	d := &daemon{cmd: cmd, ended: make(chan struct{})}
	stderr, err := cmd.StderrPipe()
	s.must(err)
	s.must(cmd.Start())
	up := make(chan string, 1)
	go d.read(stderr, up)
	s.t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has ended already, as a rule
		<-d.ended
		if s.t.Failed() {
			s.t.Logf("the end of what daemon %d said:\n%s", cmd.Process.Pid, d.tail())
		}
	})
	select {
	case d.url = <-up:
	case <-d.ended:
		s.t.Fatalf("the daemon ended at its start:\n%s", d.tail())
	case <-time.After(startPatience):
		s.t.Fatalf("the daemon is not up after %v:\n%s", startPatience, d.tail())
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
			up <- strings.TrimSuffix(entry.Webhook, webhookPath)
		}
	}
	_ = d.cmd.Wait()
}

// tail is the end of the log.
func (d *daemon) tail() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(d.log.String()), "\n")
	return strings.Join(lines[max(0, len(lines)-8):], "\n")
}

// said reports whether the daemon has logged some words.
func (d *daemon) said(words string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Contains(d.log.String(), words)
}

// kill ends the daemon as no handler of its own can notice.
func (d *daemon) kill(t testing.TB) {
	t.Helper()
	if err := d.cmd.Process.Kill(); err != nil {
		t.Fatalf("kill the daemon: %v; it said:\n%s", err, d.tail())
	}
	<-d.ended
}

// stop tells the daemon to end, which it must do in good order.
func (d *daemon) stop(t testing.TB) {
	t.Helper()
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatalf("stop the daemon: %v; it said:\n%s", err, d.tail())
	}
	select {
	case <-d.ended:
	case <-time.After(stopPatience):
		t.Fatalf("the daemon has not ended after %v", stopPatience)
	}
	if code := d.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("the daemon's exit code is %d:\n%s", code, d.tail())
	}
}

// command runs one command of an operator and returns what it printed.
func (s *shop) command(ctx context.Context, url string, stdin string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program(s.t), args...)
	cmd.Dir = s.t.TempDir()
	cmd.Env = s.environment(url)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("keytill %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}
