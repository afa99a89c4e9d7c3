package outage_test

import (
	"context"
	"testing"
	"time"

	"github.com/keytill/keytill/internal/pgserver"
	"github.com/keytill/keytill/internal/pgtest"
)

const restartPatience = 2 * time.Minute

// PostgreSQL ends in the midst of the work, with nothing written out, is away for a moment and comes back. The daemons
// stay, refuse what they cannot record, and go on by themselves.
func TestPostgresThatCrashesLosesNothing(t *testing.T) {
	t.Parallel()
	crashes := length(2, 50)
	server := pgtest.Server(t, pgserver.Config{})
	s := open(t, server.URL(), firstKeys)
	c := s.gather(firstKeys, 3)
	d := s.serve(s.url)
	c.visit(d)
	for crash := range crashes {
		c.work(10+c.intN(40), judgePatience)
		s.must(server.Kill())
		time.Sleep(time.Duration(c.intN(1000)) * time.Millisecond)
		restart(t, server)
		s.db.Reset()
		c.hold(time.Minute)
		back := time.Now()
		c.work(10, judgePatience)
		t.Logf("crash %d: work goes on %v after the restart", crash+1, time.Since(back).Round(time.Millisecond))
		if t.Failed() {
			t.Fatalf("after crash %d of %d", crash+1, crashes)
		}
	}
	c.goHome()
	d.stop(t)
	c.judge(s.url, crashes)
	if c.refused == 0 {
		t.Error("no event was answered 503, so no outage was felt")
	}
}

// A server that answers before anything is written out loses what it has confirmed, and the checks of these tests see it.
func TestControlPostgresThatConfirmsTooEarlyLoses(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, pgserver.Config{Settings: map[string]string{
		"synchronous_commit": "off", "wal_writer_delay": "10s", "wal_writer_flush_after": "1GB",
		"wal_buffers": "64MB", "full_page_writes": "off"}})
	s := open(t, server.URL(), firstKeys)
	c := s.gather(firstKeys, 4)
	d := s.serve(s.url)
	c.visit(d)
	// Now and then something has just waited for the disk, and all is there.
	for range 10 {
		c.work(20, judgePatience)
		s.must(server.Kill())
		restart(t, server)
		s.db.Reset()
		if len(c.lost()) > 0 {
			return
		}
	}
	t.Errorf("of %d events nothing is lost: these tests would notice nothing", c.acknowledged())
}

func restart(t testing.TB, server *pgserver.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), restartPatience)
	defer cancel()
	if err := server.Restart(ctx); err != nil {
		t.Fatal(err)
	}
}
