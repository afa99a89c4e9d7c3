package pgproxy_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/goleak"

	"github.com/keytill/keytill/internal/pgproxy"
	"github.com/keytill/keytill/internal/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Suite{M: m}) }

// A watch remembers what passed, and does to the first message that it is set on what it is told.
type watch struct {
	mu     sync.Mutex
	passed []pgproxy.Message
	on     func(pgproxy.Message) bool
	action pgproxy.Action
}

func (w *watch) see(m pgproxy.Message) pgproxy.Action {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.passed = append(w.passed, m)
	if w.on != nil && w.on(m) {
		w.on = nil
		return w.action
	}
	return pgproxy.Forward
}

func (w *watch) set(action pgproxy.Action, from pgproxy.Side, typ, sql string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.action = action
	w.on = func(m pgproxy.Message) bool {
		return m.From == from && m.Type == typ && strings.Contains(m.SQL, sql)
	}
}

func (w *watch) saw(from pgproxy.Side, typ, sql string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.passed, func(m pgproxy.Message) bool {
		return m.From == from && m.Type == typ && strings.Contains(m.SQL, sql)
	})
}

// open connects through a proxy; direct is a connection beside it.
func open(t *testing.T, change ...func(*pgx.ConnConfig)) (w *watch, proxied, direct *pgx.Conn) {
	t.Helper()
	url := pgtest.NewURL(t)
	config, err := pgx.ParseConfig(url)
	must(t, err)
	w = &watch{}
	proxy := pgproxy.Start(config, w.see)
	t.Cleanup(proxy.Close)
	proxy.Redirect(config)
	for _, c := range change {
		c(config)
	}
	proxied, err = pgx.ConnectConfig(t.Context(), config)
	must(t, err)
	direct, err = pgx.Connect(t.Context(), url)
	must(t, err)
	t.Cleanup(func() {
		_ = proxied.Close(context.Background()) // a test may have broken it
		_ = direct.Close(context.Background())
	})
	exec(t, direct, `CREATE TABLE n (id int)`)
	return w, proxied, direct
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func exec(t *testing.T, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	_, err := conn.Exec(t.Context(), sql, args...)
	must(t, err)
}

func count(t *testing.T, conn *pgx.Conn) (n int) {
	t.Helper()
	must(t, conn.QueryRow(t.Context(), `SELECT count(*) FROM n`).Scan(&n))
	return n
}

func TestWhatPassesIsWhatWasSaid(t *testing.T) {
	t.Parallel()
	w, conn, direct := open(t)
	exec(t, conn, `INSERT INTO n SELECT generate_series(1, $1::int)`, 3000)
	rows, err := conn.Query(t.Context(), `SELECT id FROM n ORDER BY id`)
	must(t, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil || len(ids) != 3000 || ids[2999] != 3000 {
		t.Errorf("%d rows, %v", len(ids), err)
	}

	batch := &pgx.Batch{}
	for range 3 {
		batch.Queue(`UPDATE n SET id = id + $1`, 1)
	}
	batch.Queue(`SELECT min(id) FROM n`).QueryRow(func(row pgx.Row) error {
		var lowest int
		if err := row.Scan(&lowest); err != nil || lowest != 4 {
			t.Errorf("lowest %d, %v", lowest, err)
		}
		return nil
	})
	must(t, conn.SendBatch(t.Context(), batch).Close())

	copied, err := conn.CopyFrom(t.Context(), pgx.Identifier{"n"}, []string{"id"},
		pgx.CopyFromSlice(50_000, func(i int) ([]any, error) { return []any{i}, nil }))
	if err != nil || copied != 50_000 || count(t, direct) != 53_000 {
		t.Errorf("%d rows copied in, %v", copied, err)
	}
	var out strings.Builder
	_, err = conn.PgConn().CopyTo(t.Context(), &out, `COPY n TO STDOUT`)
	if lines := strings.Count(out.String(), "\n"); err != nil || lines != 53_000 {
		t.Errorf("%d rows copied out, %v", lines, err)
	}

	exec(t, conn, `LISTEN news`)
	exec(t, direct, `SELECT pg_notify('news', 'hello')`)
	news, err := conn.WaitForNotification(t.Context())
	if err != nil || news.Payload != "hello" {
		t.Errorf("heard %v, %v", news, err)
	}

	var pgErr *pgconn.PgError
	if _, err := conn.Exec(t.Context(), `SELECT 1 / $1::int`, 0); !errors.As(err, &pgErr) || pgErr.Code != "22012" {
		t.Errorf("an error is passed on as %v", err)
	}
	if got := count(t, conn); got != 53_000 {
		t.Errorf("after the error it counts %d", got)
	}

	for _, want := range []struct {
		from     pgproxy.Side
		typ, sql string
	}{
		{pgproxy.Client, "StartupMessage", ""}, {pgproxy.Client, "SASLInitialResponse", ""}, {pgproxy.Client, "SASLResponse", ""},
		{pgproxy.Server, "AuthenticationOk", ""}, {pgproxy.Server, "BackendKeyData", ""},
		{pgproxy.Client, "Parse", "UPDATE n"}, {pgproxy.Client, "Execute", "UPDATE n"}, {pgproxy.Server, "CommandComplete", "UPDATE n"},
		{pgproxy.Server, "DataRow", "SELECT min(id)"}, {pgproxy.Server, "CopyInResponse", "copy"}, {pgproxy.Client, "CopyData", "copy"},
		{pgproxy.Server, "CopyData", "TO STDOUT"}, {pgproxy.Server, "NotificationResponse", ""},
		{pgproxy.Server, "ErrorResponse", "SELECT 1 /"}, {pgproxy.Server, "ReadyForQuery", "SELECT count"},
	} {
		if !w.saw(want.from, want.typ, want.sql) {
			t.Errorf("no %s's %s about %q was seen", want.from, want.typ, want.sql)
		}
	}
}

func TestTheLogInIsTheServers(t *testing.T) {
	t.Parallel()
	_, conn, _ := open(t)
	config := conn.Config().Copy()
	config.Password = "wrong"
	var pgErr *pgconn.PgError
	if _, err := pgx.ConnectConfig(t.Context(), config); !errors.As(err, &pgErr) || pgErr.Code != "28P01" {
		t.Errorf("a wrong password: %v", err)
	}
}

func TestAClientThatWouldRatherEncryptIsTalkedOutOfIt(t *testing.T) {
	t.Parallel()
	_, conn, _ := open(t, func(c *pgx.ConnConfig) {
		prefer, err := pgx.ParseConfig("postgres://127.0.0.1/?sslmode=prefer")
		must(t, err)
		fallback := &pgconn.FallbackConfig{Host: c.Host, Port: c.Port}
		c.TLSConfig, c.Fallbacks = prefer.TLSConfig, []*pgconn.FallbackConfig{fallback}
	})
	if got := count(t, conn); got != 0 {
		t.Errorf("it counts %d", got)
	}
}

func TestARequestToCancelReachesTheServer(t *testing.T) {
	t.Parallel()
	w, conn, direct := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	pid := conn.PgConn().PID()
	done := make(chan error, 1)
	go func() {
		_, err := conn.Exec(ctx, `SELECT pg_sleep($1)`, 600)
		done <- err
	}()
	awaitNone(t, direct, `SELECT 1 - count(*) FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'PgSleep'`, pid)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the statement ended with %v", err)
	}
	awaitNone(t, direct, `SELECT count(*) FROM pg_stat_activity WHERE pid = $1`, pid)
	if !w.saw(pgproxy.Client, "CancelRequest", "") {
		t.Error("no request was seen")
	}
}

// awaitNone waits until a count is zero.
func awaitNone(t *testing.T, direct *pgx.Conn, sql string, args ...any) {
	t.Helper()
	for range 2000 {
		var n int
		must(t, direct.QueryRow(t.Context(), sql, args...).Scan(&n))
		if n == 0 {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("not none: %s", sql)
}

// At each message of a transaction's end, what the action promises about the commit is so.
func TestWhatBecomesOfACommit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		action    pgproxy.Action
		from      pgproxy.Side
		typ, sql  string
		committed bool
	}{
		"cut before the insert":                {pgproxy.Cut, pgproxy.Client, "Execute", "INSERT", false},
		"cut before the commit":                {pgproxy.Cut, pgproxy.Client, "Query", "commit", false},
		"cut before the commit's answer":       {pgproxy.Cut, pgproxy.Server, "CommandComplete", "commit", true},
		"cut before the server is ready again": {pgproxy.Cut, pgproxy.Server, "ReadyForQuery", "commit", true},
		"the insert unheard":                   {pgproxy.Unheard, pgproxy.Client, "Bind", "INSERT", false},
		"the commit unheard":                   {pgproxy.Unheard, pgproxy.Client, "Query", "commit", true},
		"the commit's answer unheard":          {pgproxy.Unheard, pgproxy.Server, "CommandComplete", "commit", true},
		"shut before the commit":               {pgproxy.Shut, pgproxy.Client, "Query", "commit", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, conn, direct := open(t)
			w.set(c.action, c.from, c.typ, c.sql)
			err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
				_, err := tx.Exec(t.Context(), `INSERT INTO n VALUES ($1)`, 1)
				return err
			})
			var pgErr *pgconn.PgError
			if err == nil || errors.As(err, &pgErr) != (c.action == pgproxy.Shut) {
				t.Errorf("the client was told: %v", err)
			}
			// Whoever had a transaction open is gone, with all that it will ever do.
			awaitNone(t, direct, `SELECT count(*) FROM pg_stat_activity WHERE pid = $1`, conn.PgConn().PID())
			if got := count(t, direct) == 1; got != c.committed {
				t.Errorf("committed %t, want %t", got, c.committed)
			}
		})
	}
}

// A client that has given up and gone does not take back what it said before.
func TestWhatWasHeldIsStillDoneWhenItsClientIsGone(t *testing.T) {
	t.Parallel()
	w, conn, direct := open(t)
	held, release := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	hold := func(m pgproxy.Message) bool {
		if m.Type == "Query" && m.SQL == "commit" {
			close(held)
			<-release
			return true
		}
		return false
	}
	w.mu.Lock()
	w.on, w.action = hold, pgproxy.Forward
	w.mu.Unlock()
	done := make(chan error, 1)
	go func() {
		done <- pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `INSERT INTO n VALUES (1)`)
			return err
		})
	}()
	<-held
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("it gave up with %v", err)
	}
	if got := count(t, direct); got != 0 {
		t.Errorf("%d rows before the commit has come", got)
	}
	close(release)
	awaitNone(t, direct, `SELECT 1 - count(*) FROM n`)
}

func TestCloseCutsEveryConnection(t *testing.T) {
	t.Parallel()
	url := pgtest.NewURL(t)
	config, err := pgx.ParseConfig(url)
	must(t, err)
	proxy := pgproxy.Start(config, func(pgproxy.Message) pgproxy.Action { return pgproxy.Forward })
	proxy.Redirect(config)
	conn, err := pgx.ConnectConfig(t.Context(), config)
	must(t, err)
	if n := proxy.Open(); n != 1 {
		t.Errorf("%d connections are open", n)
	}
	proxy.Close()
	if n := proxy.Open(); n != 0 {
		t.Errorf("%d connections are open after the end", n)
	}
	if err := conn.Ping(t.Context()); err == nil {
		t.Error("the connection lives on")
	}
	if _, err := pgx.ConnectConfig(t.Context(), config); err == nil {
		t.Error("a new connection was let in")
	}
}
