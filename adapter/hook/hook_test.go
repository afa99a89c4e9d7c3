package hook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"go.uber.org/goleak"

	"github.com/keytill/keytill/internal/hooktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T) *hooktest.Server {
	t.Helper()
	srv := hooktest.Start(hooktest.NewSecret())
	t.Cleanup(srv.Close)
	return srv
}

func newSender(t *testing.T, srv *hooktest.Server, change func(*Config)) *Sender {
	t.Helper()
	cfg := Config{URL: srv.URL(), Secrets: []string{srv.Secret()}}
	if change != nil {
		change(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	// As quick as a test wants it; what the times are is not what is tested.
	s.client.RetryWaitMin, s.client.RetryWaitMax = time.Millisecond, 2*time.Millisecond
	return s
}

var happened = time.Date(2026, 1, 2, 16, 4, 5, 0, time.FixedZone("CET", 3600))

func notice(id string) Notice {
	return Notice{ID: id, Type: "key.revoked", At: happened, Data: json.RawMessage(`{"key": "SECRET<&>-1"}`)}
}

// sendError is the *Error that Send must return.
func sendError(t *testing.T, s *Sender, n Notice) *Error {
	t.Helper()
	answer, err := s.Send(t.Context(), n)
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("Send = %q, %v; want an *Error", answer, err)
	}
	if strings.Contains(e.Error(), "SECRET") || strings.Contains(e.Error(), "/hooks") {
		t.Errorf("body or URL is in the error: %v", e)
	}
	return e
}

func TestNoticeArrivesSigned(t *testing.T) {
	srv := start(t)
	answer, err := newSender(t, srv, nil).Send(t.Context(), notice("n-1"))
	if err != nil || answer != "204 No Content" {
		t.Fatalf("Send = %q, %v", answer, err)
	}
	want := []hooktest.Notice{{
		ID: "n-1", Type: "key.revoked", At: happened.UTC(), Data: json.RawMessage(`{"key":"SECRET<&>-1"}`), Attempt: 1,
	}}
	if diff := cmp.Diff(want, srv.Notices()); diff != "" {
		t.Errorf("notices (-want +got):\n%s", diff)
	}
}

func TestRequestIsWhatStandardWebhooksDescribes(t *testing.T) {
	var header http.Header
	var body bytes.Buffer
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		header = r.Header
		_, _ = body.ReadFrom(r.Body)
	}))
	defer receiver.Close()
	next, old := hooktest.NewSecret(), hooktest.NewSecret()
	sent := time.Date(2026, 1, 3, 0, 0, 0, 0, time.UTC)
	s, err := New(Config{
		URL: receiver.URL, Secrets: []string{next, old}, Now: func() time.Time { return sent },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	n := notice("n-1")
	n.Data = nil
	if answer, err := s.Send(t.Context(), n); err != nil || answer != "200 OK" {
		t.Fatalf("Send = %q, %v", answer, err)
	}

	if want := `{"type":"key.revoked","timestamp":"2026-01-02T15:04:05Z","data":{}}`; body.String() != want {
		t.Errorf("body %s, want %s", body.String(), want)
	}
	for name, want := range map[string]string{
		"webhook-id": "n-1", "webhook-timestamp": "1767398400", "Content-Type": "application/json",
	} {
		if got := header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	signatures := strings.Split(header.Get("webhook-signature"), " ")
	if len(signatures) != 2 {
		t.Fatalf("%d signatures, want one for each of 2 secrets", len(signatures))
	}
	for i, secret := range []string{next, old} {
		verifier, err := standardwebhooks.NewWebhook(secret)
		if err != nil {
			t.Fatal(err)
		}
		want, err := verifier.Sign("n-1", sent, body.Bytes())
		if err != nil || signatures[i] != want {
			t.Errorf("signature %d is %s, want %s, %v", i+1, signatures[i], want, err)
		}
	}
}

func TestReceiverWithTheOldOrTheNewSecretTakesNoticesDuringARotation(t *testing.T) {
	srv := start(t)
	for _, secrets := range [][]string{{hooktest.NewSecret(), srv.Secret()}, {srv.Secret(), hooktest.NewSecret()}} {
		s := newSender(t, srv, func(c *Config) { c.Secrets = secrets })
		if _, err := s.Send(t.Context(), notice("n-1")); err != nil {
			t.Error(err)
		}
	}
	s := newSender(t, srv, func(c *Config) { c.Secrets = []string{hooktest.NewSecret()} })
	if e := sendError(t, s, notice("n-2")); e.Status != http.StatusUnauthorized || e.Permanent {
		t.Errorf("with another secret: %v, want a temporary 401", e)
	}
}

func TestReceiverThatRestartsIsTriedAgainAtOnce(t *testing.T) {
	srv := start(t)
	s := newSender(t, srv, nil)
	srv.Fail(2, http.StatusBadGateway)
	if _, err := s.Send(t.Context(), notice("n-1")); err != nil {
		t.Fatal(err)
	}
	got := srv.Notices()
	if len(got) != 1 || got[0].Attempt != 3 {
		t.Errorf("notices %+v, want one, at the third attempt", got)
	}
}

func TestAnswersDecideBetweenPermanentAndTemporary(t *testing.T) {
	for status, want := range map[int]struct {
		permanent bool
		attempts  int
	}{
		http.StatusGone:                {true, 1},
		http.StatusBadRequest:          {false, 1},
		http.StatusNotFound:            {false, 1},
		http.StatusNotImplemented:      {false, 1},
		http.StatusFound:               {false, 1},
		http.StatusPermanentRedirect:   {false, 1},
		http.StatusRequestTimeout:      {false, 3},
		http.StatusTooManyRequests:     {false, 3},
		http.StatusInternalServerError: {false, 3},
		599:                            {false, 3},
	} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			srv := start(t)
			s := newSender(t, srv, nil)
			srv.Fail(10, status)
			e := sendError(t, s, notice("n-1"))
			if e.Permanent != want.permanent || e.Status != status || e.Attempts != want.attempts {
				t.Errorf("%#v, want %+v", e, want)
			}
			if n := srv.Attempts("n-1"); n != want.attempts {
				t.Errorf("%d attempts arrived, want %d", n, want.attempts)
			}
			if status/100 == 3 && !strings.Contains(e.Error(), "redirects are not followed") {
				t.Errorf("the error does not say what to do: %v", e)
			}
		})
	}
}

func TestReceiverThatAsksForAPauseIsNotTriedAgainAtOnce(t *testing.T) {
	now := time.Date(2026, 1, 3, 0, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"120": 2 * time.Minute, "Sat, 03 Jan 2026 01:00:00 GMT": time.Hour, "9999999": 24 * time.Hour,
		"-5": 0, "soon": 0, "Fri, 02 Jan 2026 00:00:00 GMT": 0, "99999999999999999999": 0,
	} {
		attempts := 0
		receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			attempts++
			w.Header().Set("Retry-After", value)
			w.WriteHeader(http.StatusServiceUnavailable)
		}))
		s, err := New(Config{
			URL: receiver.URL, Secrets: []string{hooktest.NewSecret()}, Now: func() time.Time { return now },
		})
		if err != nil {
			t.Fatal(err)
		}
		if e := sendError(t, s, notice("n-1")); e.RetryAfter != want || e.Permanent || attempts != 1 {
			t.Errorf("Retry-After %q: %s after %d attempts, want %s after 1", value, e.RetryAfter, attempts, want)
		}
		_ = s.Close()
		receiver.Close()
	}
}

func TestDeadReceiverIsTemporary(t *testing.T) {
	srv := start(t)
	s := newSender(t, srv, nil)
	srv.Close()
	if e := sendError(t, s, notice("n-1")); e.Permanent || e.Status != 0 || e.Attempts != 3 {
		t.Errorf("%#v, want temporary, after 3 attempts", e)
	}
}

func TestSlowReceiverIsGivenUpAfterTheTimeout(t *testing.T) {
	srv := start(t)
	s := newSender(t, srv, func(c *Config) { c.Timeout = 30 * time.Millisecond })
	srv.Slow(time.Minute)
	e := sendError(t, s, notice("n-1"))
	if e.Permanent || e.Reason != "no answer in time" {
		t.Errorf("%v, want temporary, no answer in time", e)
	}
	if errors.Is(e, context.DeadlineExceeded) {
		t.Error("the sender's own timeout looks like the caller's context")
	}
}

func TestEndedContextEndsSending(t *testing.T) {
	for name, misbehave := range map[string]func(*hooktest.Server){
		"while the receiver thinks": func(s *hooktest.Server) { s.Slow(time.Minute) },
		"between attempts":          func(s *hooktest.Server) { s.Fail(10, 500) },
	} {
		t.Run(name, func(t *testing.T) {
			srv := start(t)
			s := newSender(t, srv, nil)
			s.client.RetryWaitMin, s.client.RetryWaitMax = time.Minute, time.Minute
			misbehave(srv)
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(50*time.Millisecond, cancel)
			_, err := s.Send(ctx, notice("n-1"))
			var e *Error
			if !errors.As(err, &e) || e.Permanent || !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want a temporary *Error that wraps context.Canceled", err)
			}
		})
	}
}

func TestEndlessAnswerIsNotReadToItsEnd(t *testing.T) {
	written := make(chan int, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := 0
		for n < 1<<30 {
			m, err := w.Write(make([]byte, 64<<10))
			if err != nil {
				break
			}
			n += m
		}
		written <- n
	}))
	defer receiver.Close()
	s, err := New(Config{URL: receiver.URL, Secrets: []string{hooktest.NewSecret()}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if _, err := s.Send(t.Context(), notice("n-1")); err != nil {
		t.Fatal(err)
	}
	if n := <-written; n > 64<<20 {
		t.Errorf("%d bytes were taken", n)
	}
}

func TestMalformedNoticesArePermanentAndNeverSent(t *testing.T) {
	srv := start(t)
	s := newSender(t, srv, nil)
	for name, change := range map[string]func(*Notice){
		"no ID":           func(n *Notice) { n.ID = "" },
		"dot in ID":       func(n *Notice) { n.ID = "a.b" },
		"line end in ID":  func(n *Notice) { n.ID = "a\nb" },
		"address as ID":   func(n *Notice) { n.ID = "SECRET@example" },
		"no type":         func(n *Notice) { n.Type = "" },
		"type with space": func(n *Notice) { n.Type = "key revoked" },
		"no time":         func(n *Notice) { n.At = time.Time{} },
		"not JSON":        func(n *Notice) { n.Data = json.RawMessage("{SECRET") },
	} {
		t.Run(name, func(t *testing.T) {
			n := notice("n-1")
			change(&n)
			if e := sendError(t, s, n); !e.Permanent || e.Attempts != 0 {
				t.Errorf("%#v, want permanent, without an attempt", e)
			}
		})
	}
	if n := len(srv.Notices()) + srv.Refused(); n != 0 {
		t.Errorf("%d requests were made", n)
	}
}

func TestConfigErrorsSayWhatToDoAndNeverTheSecret(t *testing.T) {
	good := hooktest.NewSecret()
	const address = "https://shop.example/hooks"
	for _, tc := range []struct {
		url     string
		secrets []string
		want    string
	}{
		{address, nil, "openssl rand -base64 32"},
		{address, []string{"hunter2"}, "secret 1"},
		{address, []string{good, "hunter2"}, "secret 2"},
		{address, []string{"whsec_"}, "openssl"},
		{address, []string{"whsec_aHVudGVyMg=="}, "24 to 64"},
		{address, []string{"whsec_" + strings.Repeat("A", 100)}, "24 to 64"},
		{address, []string{strings.TrimPrefix(good, "whsec_")}, "whsec_"},
		{address, []string{"whsec_not base64 hunter2"}, "openssl"},
		{"", []string{good}, "https://"},
		{"shop.example/hunter2", []string{good}, "https://"},
		{"ftp://shop.example/hunter2", []string{good}, "https://"},
		{"https:///hunter2", []string{good}, "https://"},
		{"https://shop.example/%zzhunter2", []string{good}, "https://"},
		{"https://shop.example/#hunter2", []string{good}, "%23"},
	} {
		s, err := New(Config{URL: tc.url, Secrets: tc.secrets})
		if err == nil {
			t.Errorf("New(%q, %q) = %v, want an error", tc.url, tc.secrets, s)
			continue
		}
		if !strings.Contains(err.Error(), tc.want) {
			t.Errorf("New(%q, %q): %v\nwant it to say %q", tc.url, tc.secrets, err, tc.want)
		}
		if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), good[6:]) {
			t.Errorf("the error gives it away: %v", err)
		}
	}
	if _, err := New(Config{URL: address, Secrets: []string{good}, Timeout: -1}); err == nil {
		t.Error("a negative timeout was taken")
	}
}

func TestLogHoldsNeitherBodyNorURL(t *testing.T) {
	srv := start(t)
	var log bytes.Buffer
	s := newSender(t, srv, func(c *Config) {
		c.URL += "?token=hunter2"
		c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	srv.Fail(10, 500)
	e := sendError(t, s, notice("n-1"))
	srv.Close()
	gone := sendError(t, s, notice("n-2"))
	text := log.String() + e.Error() + gone.Error()
	for _, secret := range []string{"hunter2", "SECRET", srv.URL(), srv.Secret()[6:]} {
		if strings.Contains(text, secret) {
			t.Errorf("%q is in the log or the errors:\n%s", secret, text)
		}
	}
	if !strings.Contains(log.String(), "id=n-1 attempt=3") {
		t.Errorf("the third attempt is not in the log:\n%s", log.String())
	}
}

func TestCallersHTTPClientIsNotChanged(t *testing.T) {
	srv := start(t)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	own := &http.Client{Transport: transport}
	s := newSender(t, srv, func(c *Config) { c.HTTPClient = own })
	if _, err := s.Send(t.Context(), notice("n-1")); err != nil {
		t.Fatal(err)
	}
	if own.Timeout != 0 || own.CheckRedirect != nil {
		t.Error("the caller's client was changed")
	}
}
