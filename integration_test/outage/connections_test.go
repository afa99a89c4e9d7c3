package outage_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/internal/pgserver"
	"github.com/keytill/keytill/internal/pgtest"
)

// hog takes every connection that the server gives, and each that gets free.
func hog(t testing.TB, url string) (letGo func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var (
		mu    sync.Mutex
		taken []*pgx.Conn
		wg    sync.WaitGroup
	)
	for range 8 {
		wg.Go(func() {
			for ctx.Err() == nil {
				conn, err := pgx.Connect(ctx, url)
				if err != nil {
					pause(ctx, time.Millisecond)
					continue
				}
				mu.Lock()
				taken = append(taken, conn)
				mu.Unlock()
			}
		})
	}
	letGo = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
		for _, conn := range taken {
			_ = conn.Close(context.Background())
		}
	})
	t.Cleanup(letGo)
	return letGo
}

// Somebody else has all connections that the server gives, and the daemon gets none: it refuses what it cannot record,
// commands say why they do not run, and all goes on by itself afterwards.
func TestServerWithoutAConnectionLeftLosesNothing(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, pgserver.Config{Settings: map[string]string{"max_connections": "50"}})
	s := open(t, server.URL(), firstKeys)
	c := s.gather(firstKeys, 12)
	d := s.serve(s.url)
	c.visit(d)
	again := 0
	for range length(1, 20) {
		c.work(20, judgePatience)
		// One connection remains the test's own, to end the daemon's.
		conn, err := pgx.Connect(t.Context(), s.url)
		s.must(err)
		letGo := hog(t, s.url+"&application_name=hog")
		again += c.endConnections(conn)
		c.refusals(20)
		out, err := s.command(t.Context(), s.url, "", "stock")
		if err == nil || !strings.Contains(out, "too many clients") && !strings.Contains(out, "remaining connection slots") {
			t.Errorf("a command without a connection says %q (%v)", out, err)
		}
		letGo()
		s.must(conn.Close(t.Context()))
		c.work(10, judgePatience)
		s.db.Reset()
		c.hold(time.Minute)
	}
	c.goHome()
	d.stop(t)
	c.judge(s.url, again)
}

// endConnections ends all but the hog's and this one, until the hog has every place, and says how often it had to.
func (c *crowd) endConnections(conn *pgx.Conn) (times int) {
	c.t.Helper()
	c.await(judgePatience, "all connections are the hog's", func(ctx context.Context) (bool, error) {
		var free, ended int
		err := conn.QueryRow(ctx, `
SELECT current_setting('max_connections')::int - 1 - count(*) FILTER (WHERE application_name = 'hog'),
       count(CASE WHEN application_name <> 'hog' THEN pg_terminate_backend(pid) END)
  FROM pg_stat_activity
 WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`).Scan(&free, &ended)
		if ended > 0 {
			times++
		}
		if err == nil && free > 0 {
			err = fmt.Errorf("%d places are not the hog's, %d connections were ended", free, ended)
		}
		return free == 0, err
	})
	return times
}
