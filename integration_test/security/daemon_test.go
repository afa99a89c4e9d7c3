// Package security attacks the daemon as it is, over TCP, and holds the list of what OWASP's ASVS 5.0 asks for (ASVS.md)
// against the tests and the lines that it names.
package security

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keytill/keytill/adapter/access"
	"github.com/keytill/keytill/cmd/keytill/cli"
	"github.com/keytill/keytill/internal/pgtest"
	"github.com/keytill/keytill/internal/stripefake"
	"github.com/keytill/keytill/inventory"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// A town is a database, its keyset, and a Stripe, with as many daemons as a test starts.
type town struct {
	t      *testing.T
	url    string
	db     *pgxpool.Pool
	keyset string
	stripe *stripefake.Server
}

func newTown(t *testing.T) *town {
	t.Helper()
	url := pgtest.NewURL(t)
	keyset, err := inventory.NewKeyset()
	if err != nil {
		t.Fatal(err)
	}
	text, err := keyset.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	stripe := stripefake.Start(stripefake.Config{})
	t.Cleanup(stripe.Close)
	return &town{t: t, url: url, db: pgtest.Pool(t, url), keyset: string(text), stripe: stripe}
}

// A daemon is `keytill serve`, with the very server that it has for everybody.
type daemon struct {
	*town
	addr string
	log  *logLines
}

// serve starts a daemon that lets these tokens in, and ends it with the test.
func (w *town) serve(tokenLines ...string) *daemon {
	w.t.Helper()
	dir := w.t.TempDir()
	file := filepath.Join(dir, "tokens")
	if err := os.WriteFile(file, []byte(strings.Join(tokenLines, "\n")), 0o600); err != nil {
		w.t.Fatal(err)
	}
	env := map[string]string{
		"KEYTILL_DATABASE_URL": w.url + "&pool_max_conns=8", "KEYTILL_STRIPE_API_KEY": w.stripe.APIKey(),
		"KEYTILL_STRIPE_WEBHOOK_SECRETS": strings.Join(w.stripe.Secrets(), ","), "KEYTILL_STRIPE_API_URL": w.stripe.URL(),
		"KEYTILL_KEYSET": w.keyset, "KEYTILL_LISTEN": "127.0.0.1:0", "KEYTILL_TOKENS_FILE": file,
		"KEYTILL_PUBLIC_URL": "https://keys.example.com", "KEYTILL_LOG": "debug", "KEYTILL_RECONCILE_EVERY": "off",
	}
	d := &daemon{town: w, log: &logLines{up: make(chan string, 1)}}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	go func() {
		ended <- cli.Run(ctx, cli.Process{Args: []string{"serve"}, Getenv: func(name string) string { return env[name] },
			Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: d.log, Now: time.Now, Dir: dir})
	}()
	w.t.Cleanup(func() {
		stop()
		if code := <-ended; code != 0 {
			w.t.Errorf("the daemon ended with %d:\n%s", code, d.log.text())
		}
	})
	select {
	case webhook := <-d.log.up:
		u, err := url.Parse(webhook)
		if err != nil {
			w.t.Fatal(err)
		}
		d.addr = u.Host
	case code := <-ended:
		ended <- code
		w.t.Fatalf("the daemon did not start:\n%s", d.log.text())
	}
	return d
}

// token makes a token of a role, with its line for the file.
func token(t *testing.T, role access.Role) (text, line string) {
	t.Helper()
	text, line, err := access.New(access.Token{Name: "the-" + string(role), Role: role})
	if err != nil {
		t.Fatal(err)
	}
	return text, line
}

// logLines keeps what the daemon logs.
type logLines struct {
	mu    sync.Mutex
	all   bytes.Buffer
	up    chan string
	heard bool
}

// Write takes a line.
func (l *logLines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var entry struct{ Msg, Webhook string }
	if !l.heard && json.Unmarshal(line, &entry) == nil && entry.Msg == "keytill is up" {
		l.heard = true
		l.up <- entry.Webhook
	}
	return l.all.Write(line)
}

func (l *logLines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// event is a body that Stripe could send.
func event(id string) []byte {
	return fmt.Appendf(nil, `{"id":%q,"object":"event","type":"charge.refunded","created":%d,"livemode":false,"data":{"object":{"id":"ch_1","object":"charge","payment_intent":"pi_1"}}}`,
		id, time.Now().Unix())
}

// signature is the header with which Stripe signs a body, made so long ago.
func (w *town) signature(body []byte, ago time.Duration) string {
	at := time.Now().Add(-ago).Unix()
	mac := hmac.New(sha256.New, []byte(w.stripe.Secrets()[0]))
	fmt.Fprintf(mac, "%d.%s", at, body)
	return fmt.Sprintf("t=%d,v1=%s", at, hex.EncodeToString(mac.Sum(nil)))
}

// post sends an event as Stripe does, and returns the status.
func (d *daemon) post(body []byte, signature string) int {
	d.t.Helper()
	req, err := http.NewRequestWithContext(d.t.Context(), http.MethodPost, "http://"+d.addr+"/webhooks/stripe", bytes.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	req.Header.Set("Stripe-Signature", signature)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// recorded reports whether an event is in the inbox.
func (w *town) recorded(id string) (n int) {
	w.t.Helper()
	if err := w.db.QueryRow(w.t.Context(), `SELECT count(*) FROM keytill.events WHERE event_id = $1`, id).Scan(&n); err != nil {
		w.t.Fatal(err)
	}
	return n
}

// patience is much longer than anything here may take.
const patience = time.Minute

// dial opens a connection to the daemon.
func (d *daemon) dial() net.Conn {
	d.t.Helper()
	conn, err := new(net.Dialer).DialContext(d.t.Context(), "tcp", d.addr)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		d.t.Fatal(err)
	}
	return conn
}

// raw sends bytes and returns all that comes back until the daemon closes the connection; an error says that it did not.
func (d *daemon) raw(text string) (string, error) {
	d.t.Helper()
	conn := d.dial()
	if err := conn.SetReadDeadline(time.Now().Add(patience / 2)); err != nil { // less than an idle connection is kept
		return "", err
	}
	if _, err := io.WriteString(conn, text); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	if err != nil && !isTimeout(err) {
		err = nil // it closed while we still had something to say
	}
	return string(answer), err
}

func isTimeout(err error) bool {
	timeout, ok := err.(net.Error)
	return ok && timeout.Timeout()
}
