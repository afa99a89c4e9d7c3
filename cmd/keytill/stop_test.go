package main_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keytill/keytill/internal/pgtest"
	"github.com/keytill/keytill/internal/stripefake"
)

// stopWithin is how long a daemon may take to end once it is told to.
const stopWithin = 10 * time.Second

// sale is a shop that sells price_game from a pool with keys, and what its daemon needs.
type sale struct {
	stripe *stripefake.Server
	db     *pgxpool.Pool
	env    environment
	dir    string
}

func newSale(t *testing.T, keys int) *sale {
	t.Helper()
	stripe := stripefake.Start(stripefake.Config{})
	t.Cleanup(stripe.Close)
	address := pgtest.NewURL(t)
	s := &sale{stripe: stripe, db: pgtest.Pool(t, address), dir: t.TempDir()}
	s.env = working(address, newKeyset(t)).with(environment{
		"STRIPE_API_KEY":         stripe.APIKey(),
		"STRIPE_WEBHOOK_SECRETS": strings.Join(stripe.Secrets(), ","),
		"STRIPE_API_URL":         stripe.URL(),
	})
	var file strings.Builder
	for i := range keys {
		fmt.Fprintf(&file, "GAME-%04d\n", i+1)
	}
	writeFile(t, filepath.Join(s.dir, "keys.txt"), file.String())
	s.keytill(t, "pool", "create", "game")
	s.keytill(t, "pool", "map", "game", "--price", "price_game")
	s.keytill(t, "import", "game", "keys.txt")
	return s
}

// keytill runs a command that must do.
func (s *sale) keytill(t *testing.T, args ...string) string {
	t.Helper()
	got := run(t.Context(), s.env, s.dir, args...)
	if got.code != 0 {
		t.Fatalf("keytill %s: exit code %d\n%s%s", strings.Join(args, " "), got.code, got.stdout, got.stderr)
	}
	return got.stdout
}

// pay makes a session with one paid key and the event that tells of it.
func (s *sale) pay(t *testing.T, session string) stripefake.Event {
	t.Helper()
	items, err := stripefake.ParseItems("price_game*1@1000")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.stripe.Session(session, items, nil); err != nil {
		t.Fatal(err)
	}
	event, err := s.stripe.Event("checkout.session.completed", session, stripefake.EventOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return event
}

func (s *sale) post(t *testing.T, d *daemon, event stripefake.Event) {
	t.Helper()
	status, body, err := s.stripe.Deliver(t.Context(), d.url, event)
	if err != nil || status != http.StatusOK {
		t.Fatalf("%s is answered %d %q (%v), want 200", event.ID, status, body, err)
	}
}

// await waits until a query returns a number.
func (s *sale) await(t *testing.T, want int, within time.Duration, query string, args ...any) {
	t.Helper()
	var got int
	for deadline := time.Now().Add(within); ; time.Sleep(20 * time.Millisecond) {
		if err := s.db.QueryRow(t.Context(), query, args...).Scan(&got); err != nil {
			t.Fatal(err)
		}
		if got >= want {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d after %v, want %d: %s", got, within, want, query)
		}
	}
	if got > want {
		t.Fatalf("%d, want %d: %s", got, want, query)
	}
}

const (
	countFulfilled = `SELECT count(*) FROM keytill.fulfilments WHERE state = 'fulfilled'`
	countKeysOut   = `SELECT count(*) FROM keytill.keys WHERE state = 'allocated'`
	countPending   = `SELECT count(*) FROM keytill.events WHERE state = 'pending'`
)

// TestStopEndsWhatIsOpen tells a daemon to stop that has a request half read and a job in the middle of its work.
func TestStopEndsWhatIsOpen(t *testing.T) {
	t.Parallel()
	s := newSale(t, 5)
	d := serve(t, s.env)
	held := s.stripe.Hold("/v1/checkout/sessions/cs_1")
	s.post(t, d, s.pay(t, "cs_1"))
	waitFor(t, held)
	open := beginPost(t, d.url, s.pay(t, "cs_2"))

	d.signal(t, syscall.SIGTERM)
	told := time.Now()
	awaitRefusal(t, d.url)
	if status := open.finish(t); status != http.StatusOK {
		t.Errorf("the open request is answered %d, want 200", status)
	}
	held.LetGo()
	if code := d.mustEnd(t, stopWithin-time.Since(told)); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	if n := s.count(t, countFulfilled); n < 1 {
		t.Error("the running job has not ended its work")
	}
	if n := s.count(t, `SELECT count(*) FROM keytill.events`); n != 2 {
		t.Errorf("%d events are recorded, want 2", n)
	}

	second := serve(t, s.env)
	s.await(t, 2, 30*time.Second, countFulfilled)
	s.await(t, 2, 0, countKeysOut)
	second.signal(t, syscall.SIGTERM)
	if code := second.mustEnd(t, stopWithin); code != 0 {
		t.Errorf("exit code of the second daemon %d, want 0", code)
	}
	s.keytill(t, "doctor")
}

// TestStopReturnsWhatDoesNotEnd tells a daemon to stop whose job hangs at Stripe.
func TestStopReturnsWhatDoesNotEnd(t *testing.T) {
	t.Parallel()
	s := newSale(t, 5)
	d := serve(t, s.env)
	held := s.stripe.Hold("/v1/checkout/sessions/cs_1")
	s.post(t, d, s.pay(t, "cs_1"))
	waitFor(t, held)

	d.signal(t, syscall.SIGTERM)
	if code := d.mustEnd(t, stopWithin); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	held.LetGo()
	s.await(t, 1, 0, countPending)
	if running := s.count(t, `SELECT count(*) FROM keytill.river_job WHERE kind = 'settle' AND state = 'running'`); running != 0 {
		t.Errorf("%d jobs are left running, want none", running)
	}

	serve(t, s.env)
	s.await(t, 1, 30*time.Second, countFulfilled)
	s.await(t, 1, 0, countKeysOut)
	s.keytill(t, "doctor")
}

// TestKillLosesNothing kills a daemon that has answered for all its events and settled only some of them.
func TestKillLosesNothing(t *testing.T) {
	t.Parallel()
	const orders, hanging = 40, 8
	s := newSale(t, orders+5)
	d := serve(t, s.env)
	var holds []*stripefake.Hold
	for i := range hanging {
		holds = append(holds, s.stripe.Hold(fmt.Sprintf("/v1/checkout/sessions/cs_%d_", orders-i)))
	}
	for i := range orders {
		s.post(t, d, s.pay(t, fmt.Sprintf("cs_%d_", i+1)))
	}
	for _, h := range holds {
		waitFor(t, h)
	}
	d.signal(t, syscall.SIGKILL)
	if code := d.mustEnd(t, stopWithin); code != -1 {
		t.Fatalf("exit code %d: it was to be killed", code)
	}
	for _, h := range holds {
		h.LetGo()
	}
	if n := s.count(t, countPending); n < hanging {
		t.Fatalf("%d events are pending after the kill, want %d or more", n, hanging)
	}

	// Two minutes pass: a lost job's event is picked up then, by whoever is elected once the dead one's term is over.
	s.exec(t, `UPDATE keytill.events SET next_try_at = next_try_at - interval '3 minutes' WHERE state = 'pending'`)
	s.exec(t, `UPDATE keytill.river_leader SET expires_at = now() - interval '1 second'`)
	serve(t, s.env)
	s.await(t, orders, 30*time.Second, countFulfilled)
	s.await(t, orders, 0, countKeysOut)
	s.await(t, 0, 0, countPending)
	s.keytill(t, "doctor")
}

func (s *sale) count(t *testing.T, query string) (n int) {
	t.Helper()
	if err := s.db.QueryRow(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func (s *sale) exec(t *testing.T, statement string) {
	t.Helper()
	if _, err := s.db.Exec(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

func waitFor(t *testing.T, held *stripefake.Hold) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := held.Held(ctx); err != nil {
		t.Fatalf("no job has called Stripe: %v", err)
	}
}

// openPost is a request of which the daemon has only a part.
type openPost struct {
	conn    net.Conn
	answers *bufio.Reader
	rest    []byte
}

// beginPost sends an event up to the middle of its body. By the answer that it may go on (100 Continue), the daemon says that
// it is at work on the request: one that it has not begun when it is told to stop, it drops.
func beginPost(t *testing.T, address string, event stripefake.Event) openPost {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nStripe-Signature: %s\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n",
		u.Path, u.Host, event.Header, len(event.Payload))
	if err != nil {
		t.Fatal(err)
	}
	p := openPost{conn: conn, answers: bufio.NewReader(conn)}
	if status := p.answer(t); status != http.StatusContinue {
		t.Fatalf("the request's head is answered %d, want 100", status)
	}
	half := len(event.Payload) / 2
	if _, err := conn.Write(event.Payload[:half]); err != nil {
		t.Fatal(err)
	}
	p.rest = event.Payload[half:]
	return p
}

// finish sends the rest and returns the answer's status.
func (p openPost) finish(t *testing.T) int {
	t.Helper()
	if _, err := p.conn.Write(p.rest); err != nil {
		t.Fatal(err)
	}
	return p.answer(t)
}

func (p openPost) answer(t *testing.T) int {
	t.Helper()
	_ = p.conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	resp, err := http.ReadResponse(p.answers, nil)
	if err != nil {
		t.Fatalf("no answer to the open request: %v", err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// awaitRefusal waits until the daemon takes no connections any more.
func awaitRefusal(t *testing.T, address string) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		conn, err := net.Dial("tcp", u.Host)
		if errors.Is(err, syscall.ECONNREFUSED) {
			return
		}
		if err == nil {
			conn.Close()
		}
	}
	t.Fatal("it still takes connections 5 s after it was told to stop")
}
