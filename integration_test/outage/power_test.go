package outage_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keytill/keytill/internal/pgserver"
	"github.com/keytill/keytill/internal/pgtest"
)

// A machine is a PostgreSQL on a disk of its own whose power can fail.
type machine struct {
	t      testing.TB
	disk   *disk
	config pgserver.Config
	server *pgserver.Server
}

func newMachine(t testing.TB, settings map[string]string) *machine {
	t.Helper()
	m := &machine{t: t, disk: newDisk(t, 512)}
	m.config = pgserver.Config{Dir: filepath.Join(m.disk.dir, "cluster"), Port: freePort(t), Settings: map[string]string{
		"shared_buffers": "32MB", "max_wal_size": "128MB", "dynamic_shared_memory_type": "mmap"}}
	for name, value := range settings {
		m.config.Settings[name] = value
	}
	m.server = pgtest.Server(t, m.config)
	t.Cleanup(func() { // before the disk goes
		if err := m.server.Stop(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// failPower takes the power away and brings it back: what the disk has at that moment is all there is. The error is that
// of a PostgreSQL that cannot make anything of it.
func (m *machine) failPower() error {
	m.t.Helper()
	processes := m.freeze()
	picture := m.disk.photograph()
	for _, pid := range processes {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	<-m.server.Done()
	if err := m.server.Stop(); err != nil {
		m.t.Fatal(err)
	}
	m.gone(processes)
	m.disk.replace(picture)
	ctx, cancel := context.WithTimeout(context.Background(), restartPatience)
	defer cancel()
	server, err := pgserver.Start(ctx, m.config)
	if err == nil {
		m.server = server
	}
	return err
}

// freeze stops the postmaster and then its children, so that none of them writes, and lists them.
func (m *machine) freeze() []int {
	m.t.Helper()
	postmaster := m.server.Pid()
	if err := syscall.Kill(postmaster, syscall.SIGSTOP); err != nil {
		m.t.Fatal(err)
	}
	m.stands(postmaster)
	processes := []int{postmaster}
	for _, pid := range children(m.t, postmaster) {
		if syscall.Kill(pid, syscall.SIGSTOP) == nil {
			processes = append(processes, pid)
		}
	}
	for _, pid := range processes {
		m.stands(pid)
	}
	return processes
}

// stands waits until a process has stopped, or is gone.
func (m *machine) stands(pid int) {
	m.t.Helper()
	m.wait(func() bool { state, _ := stat(pid); return state == "T" || state == "Z" || state == "" })
}

// gone waits for the end of processes, which keep the file system busy until then.
func (m *machine) gone(processes []int) {
	m.t.Helper()
	for _, pid := range processes {
		m.wait(func() bool { state, _ := stat(pid); return state == "Z" || state == "" })
	}
}

func (m *machine) wait(so func() bool) {
	m.t.Helper()
	for deadline := time.Now().Add(restartPatience); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			m.t.Fatal("a process of PostgreSQL neither stops nor ends")
		}
	}
}

// stat is a process's state and parent; "" if it is gone.
func stat(pid int) (state string, parent int) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0
	}
	// The name, in parentheses, may hold anything.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	parent, _ = strconv.Atoi(fields[1])
	return fields[0], parent
}

func children(t testing.TB, of int) (pids []int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if _, parent := stat(pid); parent == of {
			pids = append(pids, pid)
		}
	}
	return pids
}

// The power of PostgreSQL's machine fails in the midst of the work.
func TestPowerCutLosesNothing(t *testing.T) {
	t.Parallel()
	if !mayMount(t, "mkfs.ext4", "cp", "sync") {
		return
	}
	cuts := length(2, 30)
	m := newMachine(t, nil)
	s := open(t, m.server.URL(), firstKeys)
	c := s.gather(firstKeys, 8)
	d := s.serve(s.url)
	c.visit(d)
	for cut := range cuts {
		c.work(10+c.intN(60), judgePatience)
		s.must(m.failPower())
		s.db.Reset()
		c.hold(time.Minute)
		c.work(10, judgePatience)
		if t.Failed() {
			t.Fatalf("after power cut %d of %d", cut+1, cuts)
		}
	}
	c.goHome()
	d.stop(t)
	c.judge(s.url, cuts)
}

// A PostgreSQL that does not wait for the disk loses what it has confirmed, and the checks of these tests see it.
func TestControlPowerCutLosesWhatNobodyWaitedFor(t *testing.T) {
	t.Parallel()
	if !mayMount(t, "mkfs.ext4", "cp", "sync") {
		return
	}
	m := newMachine(t, map[string]string{"fsync": "off"})
	s := open(t, m.server.URL(), firstKeys)
	m.disk.sync()
	c := s.gather(firstKeys, 9)
	d := s.serve(s.url)
	c.visit(d)
	c.work(20, judgePatience)
	err := m.failPower()
	c.goHome()
	d.kill(t)
	if err != nil {
		t.Logf("PostgreSQL does not even start: %v", err)
		return
	}
	s.db.Reset()
	if lost := c.lost(); len(lost) == 0 {
		t.Errorf("of %d events nothing is lost: these tests would notice nothing", c.acknowledged())
	}
}
