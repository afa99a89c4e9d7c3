package pgserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// stopLeftover ends a postmaster that runs on a data directory after its owner is gone. The caller holds the
// directory's lock, so it cannot be anybody's.
func stopLeftover(ctx context.Context, data string, immediate bool, log *slog.Logger) error {
	pid, _ := readPidFile(data)
	if pid <= 1 || !isPostmaster(ctx, pid, data) {
		return nil
	}
	log.InfoContext(ctx, "stopping a PostgreSQL that was left running", "pid", pid, "data", data)
	sig := syscall.SIGINT
	if immediate {
		sig = syscall.SIGQUIT
	}
	for _, step := range escalation(sig) {
		if err := syscall.Kill(pid, step.signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("stop the PostgreSQL left running in %s (process %d): %w", data, pid, err)
		}
		for deadline := time.Now().Add(step.patience); time.Now().Before(deadline); {
			if !isPostmaster(ctx, pid, data) {
				return nil
			}
			select {
			case <-time.After(pollEvery):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return fmt.Errorf("the PostgreSQL left running in %s (process %d) does not end", data, pid)
}

// isPostmaster tells the postmaster that this package started on a data directory from a stranger that has its process
// id by now, and from one that a person started by hand. A postmaster keeps the command line it was started with.
func isPostmaster(ctx context.Context, pid int, data string) bool {
	args := commandLine(ctx, pid)
	return strings.Contains(args, "postgres") && strings.Contains(args, " -D "+data+" -c ")
}

// commandLine is "" for a process that is gone, a zombie included. Linux has it in a file, and ps may not be there;
// macOS has ps alone.
func commandLine(ctx context.Context, pid int) string {
	if _, err := os.Stat("/proc/self/cmdline"); err == nil {
		args, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		if err != nil {
			return ""
		}
		return string(bytes.ReplaceAll(args, []byte{0}, []byte(" ")))
	}
	args, err := exec.CommandContext(ctx, "ps", "-ww", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return ""
	}
	return string(args)
}
