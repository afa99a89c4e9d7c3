package soak_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/keytill/keytill/cmd/keytill/cli"
)

// daemonEnv makes this test binary be `keytill serve`, with a second listener that tells how the process is.
const daemonEnv = "KEYTILL_SOAK_DAEMON"

// A health is what a daemon's process holds at a moment, after garbage was collected.
type health struct {
	Heap       uint64 // bytes in live objects
	Goroutines int
	Files      int // open descriptors, where the system tells
}

// ahead is by how much a daemon's clock is before the machine's.
type ahead struct{ atomic.Int64 }

func (a *ahead) now() time.Time { return time.Now().Add(time.Duration(a.Load())) }

// beDaemon runs `keytill serve` until it is told to stop. Beside it, GET /health tells how the process is, and
// POST /ahead?by=1h sets its clock.
func beDaemon() int {
	var clock ahead
	if by, err := time.ParseDuration(os.Getenv(daemonEnv)); err == nil {
		clock.Store(int64(by))
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(ownHealth()) // who asks notices
	})
	mux.HandleFunc("POST /ahead", func(w http.ResponseWriter, r *http.Request) {
		by, err := time.ParseDuration(r.URL.Query().Get("by"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		clock.Store(int64(by))
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	go func() { _ = http.Serve(listener, mux) }() // ends with the process
	slog.New(slog.NewJSONHandler(os.Stderr, nil)).Info("health", "webhook", "http://"+listener.Addr().String())

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return cli.Run(ctx, cli.Process{Args: []string{"serve", "--no-migrate"}, Getenv: os.Getenv, Stdin: strings.NewReader(""),
		Stdout: io.Discard, Stderr: os.Stderr, Now: clock.now})
}

func ownHealth() health {
	runtime.GC()
	runtime.GC() // what finalizers of the first let go
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	files, _ := os.ReadDir("/proc/self/fd") // only Linux has it
	return health{Heap: m.HeapAlloc, Goroutines: runtime.NumGoroutine(), Files: len(files)}
}

// A daemon is one of the two, across its restarts.
type daemon struct {
	t    *testing.T
	name string
	env  []string

	mu     sync.Mutex
	life   *life
	lives  int
	killed int
}

// A life is a daemon's from start to end.
type life struct {
	cmd            *exec.Cmd
	webhook, probe string
	ended          chan struct{}

	mu   sync.Mutex
	said []string // the end of its log
}

const (
	startPatience = time.Minute
	stopPatience  = time.Minute
	keptLines     = 40
)

// start starts the daemon and returns once it is up.
func (d *daemon) start(ahead time.Duration) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	l := &life{cmd: exec.Command(exe), ended: make(chan struct{})}
	l.cmd.Env = append(append(os.Environ(), d.env...), daemonEnv+"="+ahead.String())
	stderr, err := l.cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := l.cmd.Start(); err != nil {
		return err
	}
	up := make(chan struct{})
	go l.read(stderr, up)
	select {
	case <-up:
	case <-l.ended:
		return fmt.Errorf("daemon %s ended at its start:\n%s", d.name, l.tail())
	case <-time.After(startPatience):
		_ = l.cmd.Process.Kill()
		return fmt.Errorf("daemon %s is not up after %v:\n%s", d.name, startPatience, l.tail())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.life = l
	d.lives++
	return nil
}

// read keeps the end of the log, finds the addresses in it, and waits for the end.
func (l *life) read(stderr io.Reader, up chan<- struct{}) {
	defer close(l.ended)
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		l.mu.Lock()
		l.said = append(l.said, lines.Text())
		l.said = l.said[max(0, len(l.said)-keptLines):]
		l.mu.Unlock()
		var entry struct{ Msg, Webhook string }
		if json.Unmarshal(lines.Bytes(), &entry) != nil {
			continue
		}
		switch entry.Msg {
		case "health":
			l.probe = entry.Webhook
		case "keytill is up":
			l.webhook = entry.Webhook
			close(up)
		}
	}
	_ = l.cmd.Wait() // how it ended is in its state
}

func (l *life) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.said, "\n")
}

// now is the life that the daemon has at present, which may have ended.
func (d *daemon) now() *life {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.life
}

// end ends the present life: gently, or as a power cut would.
func (d *daemon) end(kill bool) error {
	l := d.now()
	signal := syscall.SIGTERM
	if kill {
		signal = syscall.SIGKILL
		d.mu.Lock()
		d.killed++
		d.mu.Unlock()
	}
	if err := l.cmd.Process.Signal(signal); err != nil {
		return fmt.Errorf("end daemon %s: %w", d.name, err)
	}
	select {
	case <-l.ended:
	case <-time.After(stopPatience):
		_ = l.cmd.Process.Kill()
		return fmt.Errorf("daemon %s has not ended after %v:\n%s", d.name, stopPatience, l.tail())
	}
	if code := l.cmd.ProcessState.ExitCode(); !kill && code != 0 {
		return fmt.Errorf("daemon %s ended with code %d:\n%s", d.name, code, l.tail())
	}
	return nil
}

// health asks the process how it is.
func (d *daemon) health(ctx context.Context) (h health, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.now().probe+"/health", nil)
	if err != nil {
		return h, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return h, err
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	return h, json.NewDecoder(resp.Body).Decode(&h)
}

// setAhead moves the process's clock.
func (d *daemon) setAhead(ctx context.Context, by time.Duration) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.now().probe+"/ahead?by="+by.String(), nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("daemon %s answers %s", d.name, resp.Status)
	}
	_ = resp.Body.Close()
	return err
}
