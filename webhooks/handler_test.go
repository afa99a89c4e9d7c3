package webhooks

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const body1 = `{"id":"evt_1","type":"payment_intent.succeeded","data":{"object":{"id":"pi_1","object":"payment_intent"}}}`

var event1 = Event{ID: "evt_1", Type: "payment_intent.succeeded", ObjectID: "pi_1", Object: "payment_intent", Payment: "pi_1"}

func TestHandlerAnswers(t *testing.T) {
	signed := func(body string) http.Header {
		return http.Header{"Stripe-Signature": {signature(body, "whsec_a", noon)}}
	}
	sized := func(n int) string { // an event of exactly n bytes
		const frame = `{"id":"evt_1","type":"a.b","x":""}`
		return strings.Replace(frame, `""`, `"`+strings.Repeat("x", n-len(frame))+`"`, 1)
	}
	old := http.Header{"Stripe-Signature": {signature(body1, "whsec_a", noon.Add(-10*time.Minute))}}
	future := http.Header{"Stripe-Signature": {signature(body1, "whsec_a", noon.Add(20*time.Minute))}}
	tests := []struct {
		name, method, body string
		header             http.Header
		chunked            bool
		failure            error // of the inbox
		status             int
		text, outcome      string
		recorded           []Event
	}{
		{name: "an event", body: body1, header: signed(body1),
			status: 200, text: "ok", outcome: OutcomeRecorded, recorded: []Event{event1}},
		{name: "an event in chunks", body: body1, header: signed(body1), chunked: true,
			status: 200, text: "ok", outcome: OutcomeRecorded, recorded: []Event{event1}},
		{name: "any content type", body: body1, header: http.Header{"Stripe-Signature": signed(body1)["Stripe-Signature"], "Content-Type": {"image/png"}},
			status: 200, text: "ok", outcome: OutcomeRecorded, recorded: []Event{event1}},
		{name: "a body of exactly the limit", body: sized(4096), header: signed(sized(4096)),
			status: 200, text: "ok", outcome: OutcomeRecorded, recorded: []Event{{ID: "evt_1", Type: "a.b"}}},
		{name: "a byte more", body: sized(4097), header: signed(sized(4097)),
			status: 413, text: "too large", outcome: OutcomeTooLarge},
		{name: "a byte more in chunks", body: sized(4097), header: signed(sized(4097)), chunked: true,
			status: 413, text: "too large", outcome: OutcomeTooLarge},
		{name: "GET", method: "GET", header: signed(""), status: 405, text: "only POST", outcome: OutcomeWrongMethod},
		{name: "PUT", method: "PUT", body: body1, header: signed(body1), status: 405, text: "only POST", outcome: OutcomeWrongMethod},
		{name: "no signature", body: body1, status: 400, text: "header is missing", outcome: OutcomeNotAuthentic},
		{name: "signature of another body", body: body1 + " ", header: signed(body1),
			status: 400, text: "does not match", outcome: OutcomeNotAuthentic},
		{name: "two signature headers", body: body1, header: http.Header{"Stripe-Signature": {signature(body1, "whsec_a", noon), "v1=00"}},
			status: 400, text: "does not match", outcome: OutcomeNotAuthentic},
		{name: "old signature", body: body1, header: old, status: 400, text: "too old", outcome: OutcomeNotAuthentic},
		{name: "signature from the future", body: body1, header: future, status: 400, text: "from the future", outcome: OutcomeNotAuthentic},
		{name: "signed and no event", body: `{"id":`, header: signed(`{"id":`),
			status: 400, text: "not a Stripe event", outcome: OutcomeUnreadable},
		{name: "signed and empty", body: ``, header: signed(``), status: 400, text: "not a Stripe event", outcome: OutcomeUnreadable},
		{name: "inbox fails", body: body1, header: signed(body1), failure: errors.New("dial tcp 10.0.0.1: no route"),
			status: 503, text: "send it again", outcome: OutcomeNotRecorded, recorded: []Event{event1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := &inbox{failure: tt.failure}
			var log bytes.Buffer
			var outcomes []string
			url := serve(t, Config{
				Inbox: in, MaxBody: 4096, Logger: slog.New(slog.NewTextHandler(&log, nil)),
				OnOutcome: func(o string) { outcomes = append(outcomes, o) },
			})
			status, header, text := send(t, url, tt.method, tt.body, tt.header, tt.chunked)
			if status != tt.status || !strings.Contains(text, tt.text) {
				t.Errorf("answer is %d %q, want %d with %q", status, text, tt.status, tt.text)
			}
			if len(text) > 60 || strings.Contains(text, "10.0.0.1") {
				t.Errorf("answer says too much: %q", text)
			}
			if got := header.Get("Allow"); (got == "POST") != (status == 405) {
				t.Errorf("Allow is %q on %d", got, status)
			}
			if got := header.Get("Retry-After"); (got != "") != (status == 503) {
				t.Errorf("Retry-After is %q on %d", got, status)
			}
			if diff := cmp.Diff(tt.recorded, in.recorded()); diff != "" {
				t.Errorf("recorded: %s", diff)
			}
			if diff := cmp.Diff([]string{tt.outcome}, outcomes); diff != "" {
				t.Errorf("outcomes: %s", diff)
			}
			if status == 503 && !(strings.Contains(log.String(), "evt_1") && strings.Contains(log.String(), "no route")) {
				t.Errorf("the log does not say which event failed and why: %s", &log)
			}
			if strings.Contains(log.String(), "whsec_") {
				t.Errorf("the log shows a secret: %s", &log)
			}
		})
	}
}

func TestHandlerRecordsTheSameEventAgain(t *testing.T) {
	in := &inbox{}
	url := serve(t, Config{Inbox: in})
	header := http.Header{"Stripe-Signature": {signature(body1, "whsec_a", noon)}}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if status, _, text := send(t, url, "POST", body1, header, false); status != 200 {
				t.Errorf("answer is %d %q", status, text)
			}
		})
	}
	wg.Wait()
	if n := len(in.recorded()); n != 20 {
		t.Errorf("recorded %d times, want 20: it is the inbox that knows duplicates", n)
	}
}

func TestHandlerTakesUpToOneMiBByDefault(t *testing.T) {
	frame := `{"id":"evt_1","type":"a.b"}`
	url := serve(t, Config{Inbox: &inbox{}})
	for extra, want := range map[int]int{0: 200, 1: 413} {
		body := frame + strings.Repeat(" ", 1<<20-len(frame)+extra)
		status, _, _ := send(t, url, "POST", body, http.Header{"Stripe-Signature": {signature(body, "whsec_a", noon)}}, false)
		if status != want {
			t.Errorf("1 MiB + %d: answer is %d, want %d", extra, status, want)
		}
	}
}

func TestHandlerGoesOnRecordingWhenTheSenderHangsUp(t *testing.T) {
	in := &inbox{entered: make(chan struct{}), leave: make(chan struct{})}
	hungUp, finished := make(chan struct{}), make(chan string, 1)
	h := handlerOf(t, Config{Inbox: in, OnOutcome: func(o string) { finished <- o }})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		context.AfterFunc(r.Context(), func() { close(hungUp) })
		h.ServeHTTP(w, r)
	}))
	defer server.Close()

	conn := dial(t, server)
	fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nStripe-Signature: %s\r\nContent-Length: %d\r\n\r\n%s",
		signature(body1, "whsec_a", noon), len(body1), body1)
	<-in.entered
	conn.Close()
	<-hungUp // the server has noticed
	close(in.leave)
	if o := <-finished; o != OutcomeRecorded {
		t.Errorf("outcome is %s, want %s", o, OutcomeRecorded)
	}
	if d := in.deadline; d <= 0 || d > recordTimeout {
		t.Errorf("time to record is %v, want up to %v", d, recordTimeout)
	}
}

func TestHandlerRefusesABodyThatIsCutOff(t *testing.T) {
	in := &inbox{}
	finished := make(chan string, 1)
	server := httptest.NewServer(handlerOf(t, Config{Inbox: in, OnOutcome: func(o string) { finished <- o }}))
	defer server.Close()

	conn := dial(t, server)
	fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nStripe-Signature: %s\r\nContent-Length: %d\r\n\r\n%s",
		signature(body1, "whsec_a", noon), len(body1)+1, body1)
	conn.(*net.TCPConn).CloseWrite()
	if o := <-finished; o != OutcomeCutOff {
		t.Errorf("outcome is %s, want %s", o, OutcomeCutOff)
	}
	if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != 400 {
		t.Errorf("answer is %v, %v, want 400", resp, err)
	}
	if got := in.recorded(); got != nil {
		t.Errorf("recorded %v", got)
	}
}

func TestHandlerSetsADeadlineForTheBodyAndLiftsIt(t *testing.T) {
	w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body1))
	r.Header.Set("Stripe-Signature", signature(body1, "whsec_a", noon))
	before := time.Now()
	handlerOf(t, Config{Inbox: &inbox{}}).ServeHTTP(w, r)
	if w.Code != 200 || len(w.set) != 2 {
		t.Fatalf("answer is %d, deadlines are %v", w.Code, w.set)
	}
	if d := w.set[0].Sub(before); d < readTimeout || d > readTimeout+5*time.Second {
		t.Errorf("deadline is in %v, want %v", d, readTimeout)
	}
	if !w.set[1].IsZero() {
		t.Errorf("deadline ends as %v, want none", w.set[1])
	}
}

func TestNewHandlerRefusesAWrongConfiguration(t *testing.T) {
	v, in := verifier(t, "whsec_a"), &inbox{}
	for want, c := range map[string]Config{
		"Verifier": {Inbox: in},
		"Inbox":    {Verifier: v},
		"MaxBody":  {Verifier: v, Inbox: in, MaxBody: -1},
	} {
		if h, err := NewHandler(c); h != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("without a right %s: %v, %v", want, h, err)
		}
	}
}

// inbox is one in memory. With entered and leave set, a record says that it began and waits to be let go.
type inbox struct {
	failure        error
	entered, leave chan struct{}

	mu       sync.Mutex
	events   []Event
	deadline time.Duration
}

func (in *inbox) Record(ctx context.Context, ev Event) error {
	if in.entered != nil {
		close(in.entered)
		<-in.leave
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if d, ok := ctx.Deadline(); ok {
		in.deadline = time.Until(d)
	}
	in.events = append(in.events, ev)
	return errors.Join(in.failure, ctx.Err())
}

func (in *inbox) recorded() []Event {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.events
}

// deadlines is a ResponseWriter that notes the read deadlines it is given.
type deadlines struct {
	*httptest.ResponseRecorder
	set []time.Time
}

func (w *deadlines) SetReadDeadline(d time.Time) error {
	w.set = append(w.set, d)
	return nil
}

func handlerOf(t *testing.T, c Config) http.Handler {
	t.Helper()
	c.Verifier = verifier(t, "whsec_a", "whsec_b")
	h, err := NewHandler(c)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func serve(t *testing.T, c Config) (url string) {
	t.Helper()
	server := httptest.NewServer(handlerOf(t, c))
	t.Cleanup(server.Close)
	return server.URL
}

func dial(t *testing.T, server *httptest.Server) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func send(t *testing.T, url, method, body string, header http.Header, chunked bool) (int, http.Header, string) {
	t.Helper()
	var from io.Reader = strings.NewReader(body)
	if chunked {
		from = io.MultiReader(from) // hides the length
	}
	r, err := http.NewRequest(method, url, from)
	if err != nil {
		t.Fatal(err)
	}
	if method == "" {
		r.Method = http.MethodPost
	}
	if header != nil {
		r.Header = header.Clone()
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Error(err)
		return 0, nil, ""
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, resp.Header, string(text)
}
