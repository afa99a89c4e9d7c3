package outage_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/keytill/keytill/internal/pgserver"
	"github.com/keytill/keytill/internal/pgtest"
)

// fill takes all the room that a file system has left, and returns how to give it back.
func fill(t testing.TB, dir string) (giveBack func()) {
	t.Helper()
	name := filepath.Join(dir, "somebody-elses")
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	block := make([]byte, 1<<20)
	for size := len(block); size >= 4096; {
		if _, err := file.Write(block[:size]); errors.Is(err, syscall.ENOSPC) {
			size /= 2
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
}

// refusals waits until so many more events were answered 503. A full disk fills again as soon as something is removed from
// it, so more is taken each time.
func (c *crowd) refusals(more int) {
	c.t.Helper()
	refused := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.refused
	}
	from := refused()
	c.await(judgePatience, fmt.Sprintf("%d more events are answered 503", more), func(context.Context) (bool, error) {
		return refused()-from >= more, nil
	})
}

// The disk with PostgreSQL's log is full, so PostgreSQL itself gives up. Once there is room and it runs again, nothing is
// missing.
func TestFullDiskLosesNothing(t *testing.T) {
	t.Parallel()
	if !mayMount(t) {
		return
	}
	dir := smallDisk(t, 250)
	server := pgtest.Server(t, pgserver.Config{TempDir: dir})
	s := open(t, server.URL(), firstKeys)
	c := s.gather(firstKeys, 10)
	d := s.serve(s.url)
	c.visit(d)
	rounds := length(1, 10)
	for range rounds {
		c.work(20, judgePatience)
		giveBack := fill(t, dir)
		c.refusals(20)
		giveBack()
		select {
		case <-server.Done():
			s.must(server.Kill())
			restart(t, server)
		case <-time.After(time.Second): // it has started again by itself
		}
		c.work(10, judgePatience)
		s.db.Reset()
		c.hold(time.Minute)
	}
	c.goHome()
	d.stop(t)
	c.judge(s.url, 2*rounds)
}

// The disk with keytill's tables is full, and PostgreSQL goes on: it refuses what would need more room.
func TestFullTablespaceLosesNothing(t *testing.T) {
	t.Parallel()
	if !mayMount(t) {
		return
	}
	dir := smallDisk(t, 60)
	server := pgtest.Server(t, pgserver.Config{})
	s := open(t, server.URL(), firstKeys)
	s.moveTo(dir, server)
	c := s.gather(firstKeys, 11)
	d := s.serve(s.url)
	c.visit(d)
	rounds := length(1, 10)
	for range rounds {
		c.work(20, judgePatience)
		giveBack := fill(t, dir)
		c.refusals(20)
		c.hold(time.Minute)
		giveBack()
		c.work(10, judgePatience)
		c.hold(time.Minute)
	}
	if !d.said("53100") {
		t.Error("the daemon has not said that the disk is full")
	}
	c.goHome()
	d.stop(t)
	c.judge(s.url, rounds)
}

// moveTo moves all tables and their indexes to another disk.
func (s *shop) moveTo(dir string, server *pgserver.Server) {
	s.t.Helper()
	space := filepath.Join(dir, "tables")
	s.must(os.Mkdir(space, 0o700))
	info, err := os.Stat(filepath.Join(server.Dir(), "postgres"))
	s.must(err)
	owner := info.Sys().(*syscall.Stat_t)
	s.must(os.Chown(space, int(owner.Uid), int(owner.Gid)))
	for _, statement := range []string{
		fmt.Sprintf(`CREATE TABLESPACE small LOCATION '%s'`, space),
		`ALTER TABLE ALL IN TABLESPACE pg_default SET TABLESPACE small`,
		`ALTER INDEX ALL IN TABLESPACE pg_default SET TABLESPACE small`,
	} {
		_, err := s.db.Exec(s.t.Context(), statement)
		s.must(err)
	}
}
