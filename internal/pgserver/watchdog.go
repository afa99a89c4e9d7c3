package pgserver

import (
	"io"
	"os/exec"
	"strconv"
	"sync"
)

// watchdog ends the postmaster when this process ends without doing so, SIGKILL included: a shell that waits for the
// end of a pipe whose other side only this process has. The kernel's parent-death signal would be no match: it is
// Linux's alone and goes by the thread, not the process. Should the watchdog die as well, the next start cleans up.
type watchdog struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
	once sync.Once
}

// watch starts a watchdog over a process, as the account the process runs as.
func watch(a account, dir string, pid int, immediate bool) (*watchdog, error) {
	signal := "INT"
	if immediate {
		signal = "QUIT"
	}
	script := `read -r _; kill -s "$1" "$2"`
	cmd := a.command(exec.Command("/bin/sh", "-c", script, "keytill-watchdog", signal, strconv.Itoa(pid)), dir)
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &watchdog{cmd: cmd, pipe: pipe}, nil
}

// dismiss ends the watchdog and leaves the postmaster alone. The shell goes first: closing the pipe would wake it.
func (w *watchdog) dismiss() {
	w.once.Do(func() {
		_ = w.cmd.Process.Kill()
		_ = w.cmd.Wait()
		_ = w.pipe.Close()
	})
}
