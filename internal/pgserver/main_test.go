package pgserver

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// childEnv turns this test binary into a program that starts a cluster and waits: a JSON Config.
const childEnv = "PGSERVER_TEST_CHILD"

// diskDir is for programs: systems like to forbid their execution from memory.
var diskDir = os.TempDir()

func TestMain(m *testing.M) {
	if config := os.Getenv(childEnv); config != "" {
		os.Exit(childMain(config))
	}
	os.Exit(inTempDirOfItsOwn(m.Run))
}

// inTempDirOfItsOwn keeps the tests' sweeps away from the temporary clusters of others.
func inTempDirOfItsOwn(run func() int) int {
	dir, err := os.MkdirTemp(MemoryDir(), "pgserver-test-")
	if err == nil {
		err = os.Chmod(dir, 0o755) // PostgreSQL's account passes through it
	}
	if err == nil {
		err = os.Setenv("TMPDIR", dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer removeAll(dir)
	return run()
}

// started is what the child tells about its cluster.
type started struct {
	Pid, Watchdog int
	Dir, URL      string
}

func childMain(config string) int {
	var cfg Config
	if err := json.Unmarshal([]byte(config), &cfg); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	s, err := Start(context.Background(), cfg)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	_ = json.NewEncoder(os.Stdout).Encode(started{
		Pid: s.Pid(), Watchdog: s.post.dog.cmd.Process.Pid, Dir: s.Dir(), URL: s.URL(),
	})
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test lets go
	if err := s.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// startChild starts a cluster that another process owns, and returns that process.
func startChild(t *testing.T, cfg Config) (*exec.Cmd, started) {
	t.Helper()
	config, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childEnv+"="+string(config))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err != nil {
		t.Fatalf("the child started no cluster: %v", err)
	}
	var child started
	if err := json.Unmarshal(line, &child); err != nil {
		t.Fatal(err)
	}
	return cmd, child
}

// kill ends a process as kill -9 does, and returns when it is gone.
func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
}

// start starts a cluster that is stopped with the test, if the test did not.
func start(t *testing.T, cfg Config) *Server {
	t.Helper()
	s, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// openTempDir is like t.TempDir, but other accounts can enter it.
func openTempDir(t *testing.T) string {
	t.Helper()
	return openDirIn(t, os.TempDir())
}

func programDir(t *testing.T) string {
	t.Helper()
	return openDirIn(t, diskDir)
}

func openDirIn(t *testing.T, parent string) string {
	t.Helper()
	dir, err := os.MkdirTemp(parent, "pgserver-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = removeAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func query(t *testing.T, url, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var text string
	if err := conn.QueryRow(t.Context(), sql).Scan(&text); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return text
}

func exec1(t *testing.T, url, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func isAlive(pid int) bool {
	return syscall.Kill(pid, 0) == nil && commandLine(context.Background(), pid) != ""
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

// wantInMessage checks that an error tells a person what they need.
func wantInMessage(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not mention %q: %v", part, err)
		}
	}
}
