package security

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Shapes of a request of which two programs could see two ends. Behind each stands a whole request, signed as Stripe would:
// what a proxy takes for the rest of a body. The daemon must not take it for a request, and says so by closing.
func TestNoRequestHidesInAnother(t *testing.T) {
	t.Parallel()
	d := newTown(t).serve()
	const head = "POST /webhooks/stripe HTTP/1.1\r\nHost: keys.example.com\r\n"
	for n, c := range []struct{ name, front string }{
		{"length beside chunks", head + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
		{"chunks before length", head + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"},
		{"chunks alone", head + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
		{"two lengths", head + "Content-Length: 0\r\nContent-Length: 44\r\n\r\n"},
		{"two lengths in one", head + "Content-Length: 0, 44\r\n\r\n"},
		{"a length with a sign", head + "Content-Length: +0\r\n\r\n"},
		{"a length below zero", head + "Content-Length: -1\r\n\r\n"},
		{"a length in another base", head + "Content-Length: 0x0\r\n\r\n"},
		{"a folded length", head + "Content-Length: 0\r\n 4\r\n\r\n"},
		{"folded chunks", head + "Content-Length: 5\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n"},
		{"a space before the colon", head + "Transfer-Encoding : chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"},
		{"another encoding", head + "Transfer-Encoding: xchunked\r\nContent-Length: 0\r\n\r\n"},
		{"two encodings", head + "Transfer-Encoding: chunked, identity\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"},
		{"chunks twice", head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
		{"a tab before chunks", head + "Transfer-Encoding:\x0bchunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"},
		{"a chunk without a size", head + "Transfer-Encoding: chunked\r\n\r\n\r\n\r\n"},
		{"a chunk of a size below zero", head + "Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n"},
		{"a chunk too large to count", head + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n\r\n"},
		{"a chunk that is longer than it says", head + "Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n"},
		{"a bare line end after a chunk's size", head + "Transfer-Encoding: chunked\r\n\r\n0\n\r\n"},
		{"a bare carriage return in a header", head + "X: a\rTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n"},
		{"a NUL in a header", head + "X: a\x00\r\nContent-Length: 0\r\n\r\n"},
		{"a header without a name", head + ": x\r\nContent-Length: 0\r\n\r\n"},
		{"a header without a colon", head + "Content-Length 0\r\n\r\n"},
		{"two hosts", head + "Host: other.example.com\r\nContent-Length: 0\r\n\r\n"},
		{"a request line with too much", "POST /webhooks/stripe HTTP/1.1 HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"},
		{"a version that there is not", "POST /webhooks/stripe HTTP/3.7\r\nHost: x\r\nContent-Length: 0\r\n\r\n"},
		{"the old version with chunks", "POST /webhooks/stripe HTTP/1.0\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			id := fmt.Sprintf("evt_hidden%d", n)
			body := event(id)
			hidden := fmt.Sprintf("%sStripe-Signature: %s\r\nContent-Length: %d\r\n\r\n%s", head, d.signature(body, 0), len(body), body)
			answer, err := d.raw(c.front + hidden)
			if err != nil {
				t.Errorf("the connection stays open: %v", err)
			}
			if n := strings.Count(answer, "HTTP/1."); n > 1 || d.recorded(id) > 0 {
				t.Errorf("%d answers, and %d events:\n%s", n, d.recorded(id), answer)
			}
		})
	}
}

// The control of the test above: what is hidden there is a request that counts where it is not hidden.
func TestTwoRequestsOneAfterTheOtherAreTwo(t *testing.T) {
	t.Parallel()
	d := newTown(t).serve()
	conn := d.dial()
	reader := bufio.NewReader(conn)
	for _, id := range []string{"evt_1", "evt_2"} {
		body := event(id)
		fmt.Fprintf(conn, "POST /webhooks/stripe HTTP/1.1\r\nHost: x\r\nStripe-Signature: %s\r\nContent-Length: %d\r\n\r\n%s",
			d.signature(body, 0), len(body), body)
		resp, err := http.ReadResponse(reader, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		if resp.StatusCode != http.StatusOK || d.recorded(id) != 1 {
			t.Errorf("%s: status %d, recorded %d", id, resp.StatusCode, d.recorded(id))
		}
	}
}

func TestLargeHeadersAreRefused(t *testing.T) {
	t.Parallel()
	d := newTown(t).serve()
	for name, headers := range map[string]string{
		"one that is long": "X: " + strings.Repeat("a", 80<<10) + "\r\n",
		"many":             strings.Repeat("X: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n", 2500),
		"a long cookie":    "Cookie: keytill_console=" + strings.Repeat("a", 80<<10) + "\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer, err := d.raw("GET /healthz HTTP/1.1\r\nHost: x\r\n" + headers + "\r\n")
			if err != nil || !strings.HasPrefix(answer, "HTTP/1.1 431 ") {
				t.Errorf("%v, %.60q", err, answer)
			}
		})
	}
	if answer, err := d.raw("GET /" + strings.Repeat("a", 80<<10) + " HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil || !strings.HasPrefix(answer, "HTTP/1.1 431 ") {
		t.Errorf("a long address: %v, %.60q", err, answer)
	}
	if answer, err := d.raw("GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("a", 16<<10) + "\r\nConnection: close\r\n\r\n"); err != nil ||
		!strings.HasPrefix(answer, "HTTP/1.1 200 ") {
		t.Errorf("one that a proxy may add: %v, %.60q", err, answer)
	}
}

// Clients that send a byte now and then, to hold what a request takes: they are cut off, and meanwhile others are served.
func TestSlowClientsAreCutOffAndKeepNobodyWaiting(t *testing.T) {
	t.Parallel()
	d := newTown(t).serve()
	const each = 60
	body := event("evt_slow")
	ended := make(chan string, 2*each)
	for range each {
		go d.trickle("GET /healthz HTTP/1.1\r\nX: ", "a", ended)
		go d.trickle(fmt.Sprintf("POST /webhooks/stripe HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", len(body)), " ", ended)
	}
	for n := range 10 {
		id := fmt.Sprintf("evt_%d", n)
		body := event(id)
		if status := d.post(body, d.signature(body, 0)); status != http.StatusOK || d.recorded(id) != 1 {
			t.Errorf("beside slow clients an event is answered with %d", status)
		}
	}
	for range 2 * each {
		if problem := <-ended; problem != "" {
			t.Error(problem)
		}
	}
	if d.recorded("evt_slow") != 0 {
		t.Error("half an event was recorded")
	}
}

// trickle begins a request and goes on with a byte now and then, until the daemon has had enough.
func (d *daemon) trickle(begin, more string, ended chan<- string) {
	conn, err := net.Dial("tcp", d.addr)
	if err != nil {
		ended <- err.Error()
		return
	}
	defer conn.Close()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_, _ = io.Copy(io.Discard, conn)
	}()
	_, err = io.WriteString(conn, begin)
	deadline := time.After(patience)
	for err == nil {
		select {
		case <-closed:
			ended <- ""
			return
		case <-deadline:
			ended <- "a slow client still has its connection after " + patience.String()
			return
		case <-time.After(500 * time.Millisecond):
			_, err = io.WriteString(conn, more)
		}
	}
	ended <- "" // it was cut off while it wrote
}

func TestReplays(t *testing.T) {
	t.Parallel()
	d := newTown(t).serve()
	body := event("evt_1")
	fresh := d.signature(body, 0)
	for range 3 {
		if status := d.post(body, fresh); status != http.StatusOK {
			t.Errorf("the same request again is answered with %d", status)
		}
	}
	if n := d.recorded("evt_1"); n != 1 {
		t.Errorf("it is recorded %d times", n)
	}
	var settles int
	if err := d.db.QueryRow(t.Context(), `SELECT count(*) FROM keytill.river_job WHERE kind = 'settle'`).Scan(&settles); err != nil || settles != 1 {
		t.Errorf("it has %d settles; %v", settles, err)
	}
	late := event("evt_2")
	for name, signature := range map[string]string{
		"six minutes old":   d.signature(late, 6*time.Minute),
		"a year ahead":      d.signature(late, -365*24*time.Hour),
		"of another body":   fresh,
		"none":              "",
		"of another secret": "t=1,v1=" + strings.Repeat("0", 64),
	} {
		if status := d.post(late, signature); status != http.StatusBadRequest || d.recorded("evt_2") != 0 {
			t.Errorf("a signature that is %s: %d", name, status)
		}
	}
}
