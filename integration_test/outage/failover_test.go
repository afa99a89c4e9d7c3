package outage_test

import (
	"context"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/internal/pgserver"
	"github.com/keytill/keytill/internal/pgtest"
)

// A pair of servers of which one is the primary and the other, at times, its standby.
type pair struct {
	t       testing.TB
	ports   [2]int
	primary *pgserver.Server
	standby *pgserver.Server
	at      int // which port is the primary's
}

func newPair(t testing.TB) *pair {
	t.Helper()
	p := &pair{t: t, ports: [2]int{freePort(t), freePort(t)}}
	p.primary = pgtest.Server(t, pgserver.Config{Port: p.ports[0]})
	return p
}

// url names both servers, of which keytill uses the one that takes writes.
func (p *pair) url() string {
	p.t.Helper()
	one, err := url.Parse(p.primary.URL())
	if err != nil {
		p.t.Fatal(err)
	}
	one.Host = fmt.Sprintf("127.0.0.1:%d,127.0.0.1:%d", p.ports[0], p.ports[1])
	one.RawQuery += "&target_session_attrs=read-write"
	return one.String()
}

// follow makes a standby of the primary. A synchronous one has, from then on, every commit before it is confirmed.
func (p *pair) follow(synchronous bool) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), restartPatience)
	defer cancel()
	var err error
	p.standby, err = pgserver.Start(ctx, pgserver.Config{TempDir: pgserver.MemoryDir(), Primary: p.primary, Port: p.ports[1-p.at]})
	if err != nil {
		p.t.Fatal(err)
	}
	standby := p.standby
	p.t.Cleanup(func() { _ = standby.Stop() })
	if synchronous {
		p.sql(p.primary, `ALTER SYSTEM SET synchronous_standby_names = '*'`)
		p.sql(p.primary, `SELECT pg_reload_conf()`)
		p.until(`SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync'`)
	} else {
		p.until(`SELECT count(*) = 1 FROM pg_stat_replication WHERE state = 'streaming'`)
	}
}

// failOver kills the primary, of which nothing is left, and has the standby take its place.
func (p *pair) failOver() {
	p.t.Helper()
	if err := p.primary.Kill(); err != nil {
		p.t.Fatal(err)
	}
	if err := p.primary.Stop(); err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), restartPatience)
	defer cancel()
	if err := p.standby.Promote(ctx); err != nil {
		p.t.Fatal(err)
	}
	p.primary, p.standby, p.at = p.standby, nil, 1-p.at
}

func (p *pair) sql(server *pgserver.Server, statement string) {
	p.t.Helper()
	conn, err := pgx.Connect(p.t.Context(), server.URL())
	if err != nil {
		p.t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(p.t.Context(), statement); err != nil {
		p.t.Fatal(err)
	}
}

// until waits for the primary to say so.
func (p *pair) until(question string) {
	p.t.Helper()
	conn, err := pgx.Connect(p.t.Context(), p.primary.URL())
	if err != nil {
		p.t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for deadline := time.Now().Add(judgePatience); ; time.Sleep(10 * time.Millisecond) {
		var so bool
		if err := conn.QueryRow(p.t.Context(), question).Scan(&so); err != nil {
			p.t.Fatal(err)
		}
		if so {
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("not after %v: %s", judgePatience, question)
		}
	}
}

// The primary is killed and gone for good, its synchronous standby takes over, and the daemon finds it.
func TestSynchronousStandbyThatTakesOverHasEverything(t *testing.T) {
	t.Parallel()
	failovers := length(2, 20)
	p := newPair(t)
	s := open(t, p.url(), firstKeys)
	c := s.gather(firstKeys, 5)
	d := s.serve(s.url)
	c.visit(d)
	for n := range failovers {
		p.follow(true)
		c.work(20+c.intN(40), judgePatience)
		p.failOver()
		s.db.Reset()
		c.hold(time.Minute)
		back := time.Now()
		c.work(10, judgePatience)
		t.Logf("failover %d: work goes on %v after the promotion", n+1, time.Since(back).Round(time.Millisecond))
		if t.Failed() {
			t.Fatalf("after failover %d of %d", n+1, failovers)
		}
	}
	c.goHome()
	d.stop(t)
	c.judge(s.url, failovers)
}

// A standby that follows as it can, and just now cannot, lacks what was confirmed since, and the checks of these tests see it.
func TestControlAsynchronousStandbyThatTakesOverLoses(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	s := open(t, p.url(), firstKeys)
	c := s.gather(firstKeys, 6)
	d := s.serve(s.url)
	c.visit(d)
	c.work(10, judgePatience)
	p.follow(false)
	p.sql(p.standby, `ALTER SYSTEM SET primary_conninfo = 'host=127.0.0.1 port=1'`)
	p.sql(p.standby, `SELECT pg_reload_conf()`)
	p.until(`SELECT count(*) = 0 FROM pg_stat_replication`)
	c.work(20, judgePatience)
	p.failOver()
	c.goHome()
	d.kill(t)
	s.db.Reset()
	if lost := c.lost(); len(lost) == 0 {
		t.Errorf("of %d events nothing is lost: these tests would notice nothing", c.acknowledged())
	}
}
