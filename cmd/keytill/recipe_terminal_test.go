package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A terminal runs blocks of commands one after the other, as somebody does who copies them into a terminal.
type terminal struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin *os.File
	dir   string // of what the commands do not see
	steps int
	ended chan struct{}
}

const (
	stepPatience = 5 * time.Minute // on a machine that has much else to do
	// Commands read nothing of what comes after them, what they print is kept, and each that fails is noted.
	runStep = `source %[1]s/step </dev/null >%[1]s/printed 2>&1; : >%[1]s/done-%[2]d` + "\n"
	prepare = `set -o pipefail -o errtrace; trap 'echo "$BASH_COMMAND (exit code $?)" >>%s/failures' ERR` + "\n"
)

func openTerminal(t *testing.T, dir string, env []string) *terminal {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	term := &terminal{t: t, stdin: write, dir: t.TempDir(), ended: make(chan struct{})}
	term.cmd = exec.Command("bash", "--noprofile", "--norc")
	term.cmd.Dir, term.cmd.Env, term.cmd.Stdin = dir, env, read
	term.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := term.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = read.Close()
	go func() {
		_ = term.cmd.Wait()
		close(term.ended)
	}()
	t.Cleanup(func() {
		_ = write.Close()
		_ = syscall.Kill(-term.cmd.Process.Pid, syscall.SIGKILL) // with the daemons that a failed recipe left
		<-term.ended
	})
	term.tell(fmt.Sprintf(prepare, term.dir))
	return term
}

func (term *terminal) tell(text string) {
	term.t.Helper()
	if _, err := term.stdin.WriteString(text); err != nil {
		term.t.Fatalf("tell the shell: %v", err)
	}
}

// run runs a block and returns what it printed, and which commands failed.
func (term *terminal) run(script string) (printed, failures string) {
	term.t.Helper()
	term.steps++
	writeFile(term.t, filepath.Join(term.dir, "step"), script)
	writeFile(term.t, filepath.Join(term.dir, "failures"), "")
	term.tell(fmt.Sprintf(runStep, term.dir, term.steps))
	done := filepath.Join(term.dir, fmt.Sprintf("done-%d", term.steps))
	for deadline := time.Now().Add(stepPatience); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(done); err == nil {
			break
		}
		select {
		case <-term.ended:
			term.t.Fatalf("the shell ended in\n%s\nIt printed:\n%s", script, term.read("printed"))
		default:
		}
		if time.Now().After(deadline) {
			term.t.Fatalf("after %v still at\n%s\nIt printed:\n%s", stepPatience, script, term.read("printed"))
		}
	}
	return term.read("printed"), strings.TrimSpace(term.read("failures"))
}

func (term *terminal) read(name string) string {
	text, err := os.ReadFile(filepath.Join(term.dir, name))
	if err != nil {
		return err.Error()
	}
	return string(text)
}
