package pgserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// pollEvery is how often a starting or ending postmaster is looked at. A start takes about 50 ms.
const pollEvery = 5 * time.Millisecond

// postmaster is PostgreSQL's main process, our child.
type postmaster struct {
	cmd  *exec.Cmd
	dog  *watchdog
	done chan struct{} // closed when it has ended and was waited for
}

var errEnded = errors.New("it ended at once")

// startPostmaster starts PostgreSQL and waits until it takes connections. There is no limit to that wait but ctx:
// recovery after a crash takes as long as it takes.
func startPostmaster(ctx context.Context, s *Server, port int) (*postmaster, error) {
	out, err := openLog(logFile(s.dir))
	if err != nil {
		return nil, err
	}
	defer out.Close()
	data := dataDir(s.dir)
	// Not CommandContext: ctx bounds the start, not the server's life.
	cmd := s.account.command(exec.Command(s.bin.path("postgres"), serverArgs(s.cfg, data, port, s.temp)...), s.dir)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start PostgreSQL in %s: %w", s.dir, err)
	}
	p := &postmaster{cmd: cmd, done: make(chan struct{})}
	p.dog, err = watch(s.account, s.dir, p.pid(), s.temp)
	if err != nil {
		// Only its end after a SIGKILL of ours depends on it, and the next start sees to that too.
		s.log.WarnContext(ctx, "nobody watches over PostgreSQL", "error", err)
	}
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		p.disarm()
		close(p.done)
	}()
	err = p.waitReady(ctx, data)
	if err == nil {
		err = s.check(ctx, port)
	}
	if err != nil {
		_ = p.stop(syscall.SIGQUIT)
		return nil, fmt.Errorf("start PostgreSQL in %s: %w", s.dir, err)
	}
	return p, nil
}

func serverArgs(cfg Config, data string, port int, temp bool) []string {
	settings := map[string]string{
		"listen_addresses":        "127.0.0.1",
		"port":                    strconv.Itoa(port),
		"unix_socket_directories": "", // its default place may not exist or not be writable, and paths are limited
		"max_connections":         "300",
		"shared_buffers":          "128MB",
		"logging_collector":       "off",
		"log_checkpoints":         "off",
		"log_line_prefix":         "%m [%p] ",
		"log_timezone":            "UTC",
		"timezone":                "UTC",
		"max_wal_size":            "1GB",
	}
	if cfg.Fast {
		for _, name := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
			settings[name] = "off"
		}
	}
	if temp {
		settings["dynamic_shared_memory_type"] = "mmap" // in the directory, and removed with it after any end
	}
	maps.Copy(settings, cfg.Settings)
	args := []string{"-D", data} // isPostmaster looks for this, and a -c after it
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	return args
}

// openLog opens PostgreSQL's log to append, and puts a large one aside first.
func openLog(path string) (*os.File, error) {
	const large = 16 << 20
	if info, err := os.Stat(path); err == nil && info.Size() > large {
		if err := os.Rename(path, path+".old"); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
}

// logTail is the end of PostgreSQL's log, for an error.
func logTail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-8):], "\n")
}

func (p *postmaster) pid() int { return p.cmd.Process.Pid }

func (p *postmaster) disarm() {
	if p.dog != nil {
		p.dog.dismiss()
	}
}

// waitReady waits for "ready" in postmaster.pid, or "standby", as pg_ctl does: unlike a connection, that cannot be
// somebody else's server on the same port.
func (p *postmaster) waitReady(ctx context.Context, data string) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if pid, status := readPidFile(data); pid == p.pid() && (status == "ready" || status == "standby") {
			return nil
		}
		select {
		case <-p.done:
			path := logFile(filepath.Dir(data))
			return fmt.Errorf("%w; the end of %s:\n%s", errEnded, path, logTail(path))
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// check connects once, so that a password that does not fit shows here.
func (s *Server) check(ctx context.Context, port int) error {
	probe := Server{password: s.password, port: port}
	conn, err := pgx.Connect(ctx, probe.URL())
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// stop sends a signal and waits for the end, with harder signals if it does not come.
func (p *postmaster) stop(sig syscall.Signal) error {
	p.disarm()
	for _, step := range escalation(sig) {
		select {
		case <-p.done:
			return nil
		default:
		}
		if err := p.cmd.Process.Signal(step.signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("stop PostgreSQL (process %d): %w", p.pid(), err)
		}
		select {
		case <-p.done:
			return nil
		case <-time.After(step.patience):
		}
	}
	return fmt.Errorf("stop PostgreSQL (process %d): it does not end", p.pid())
}

type step struct {
	signal   syscall.Signal
	patience time.Duration
}

// escalation begins with a signal: SIGINT is PostgreSQL's fast shutdown, SIGQUIT its immediate one, which makes the
// next start recover.
func escalation(from syscall.Signal) []step {
	steps := []step{{syscall.SIGINT, 60 * time.Second}, {syscall.SIGQUIT, 10 * time.Second}, {syscall.SIGKILL, 5 * time.Second}}
	i := slices.IndexFunc(steps, func(s step) bool { return s.signal == from })
	return steps[i:]
}

// readPidFile returns the first line of postmaster.pid, the process id, and its eighth, the status. Zero values: no
// file, or one that is being written.
func readPidFile(data string) (pid int, status string) {
	text, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if err != nil {
		return 0, ""
	}
	lines := bytes.Split(text, []byte("\n"))
	pid, _ = strconv.Atoi(string(bytes.TrimSpace(lines[0])))
	if len(lines) >= 8 {
		status = string(bytes.TrimSpace(lines[7]))
	}
	return pid, status
}
