package hooktest

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const body = `{"type":"stock.low","timestamp":"2026-01-02T15:04:05Z","data":{"sku":"A"}}`

// post sends body signed with secret, as sent at that time, and returns the status.
func post(t *testing.T, s *Server, secret, id string, sent time.Time, body string) int {
	t.Helper()
	webhook, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	signature, err := webhook.Sign(id, sent, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL(), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("webhook-id", id)
	req.Header.Set("webhook-timestamp", strconv.FormatInt(sent.Unix(), 10))
	req.Header.Set("webhook-signature", signature)
	resp, err := s.http.Client().Do(req)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

func TestOnlyAuthenticAndFreshNoticesAreTaken(t *testing.T) {
	s := Start(NewSecret())
	defer s.Close()
	now := time.Now()
	for name, tc := range map[string]struct {
		secret, body string
		sent         time.Time
		want         int
	}{
		"authentic":      {s.Secret(), body, now, http.StatusNoContent},
		"another secret": {NewSecret(), body, now, http.StatusUnauthorized},
		"old":            {s.Secret(), body, now.Add(-10 * time.Minute), http.StatusUnauthorized},
		"of the future":  {s.Secret(), body, now.Add(10 * time.Minute), http.StatusUnauthorized},
		"not JSON":       {s.Secret(), "x", now, http.StatusBadRequest},
		"no data":        {s.Secret(), `{"type":"a","timestamp":"2026-01-02T15:04:05Z"}`, now, http.StatusBadRequest},
		"too large":      {s.Secret(), strings.Repeat("x", bodyLimit+1), now, http.StatusRequestEntityTooLarge},
	} {
		if got := post(t, s, tc.secret, "n-1", tc.sent, tc.body); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
	if s.Refused() != 6 || s.Count("") != 1 {
		t.Errorf("%d refused and %d counted, want 6 and 1", s.Refused(), s.Count(""))
	}
}

func TestEachIDIsCountedOnceAndEveryAttemptIsSeen(t *testing.T) {
	s := Start(NewSecret())
	defer s.Close()
	s.Fail(1, http.StatusInternalServerError)
	for i, want := range []int{500, 204, 204} {
		if got := post(t, s, s.Secret(), "n-1", time.Now(), body); got != want {
			t.Errorf("request %d: %d, want %d", i+1, got, want)
		}
	}
	post(t, s, s.Secret(), "n-2", time.Now(), body)
	if got := s.Count("stock.low"); got != 2 {
		t.Errorf("%d counted, want 2", got)
	}
	if got := s.Count("stock.out"); got != 0 {
		t.Errorf("%d of another type", got)
	}
	got := s.Notices()
	if len(got) != 3 || got[0].Attempt != 2 || got[1].Attempt != 3 || got[2].Attempt != 1 ||
		string(got[2].Data) != `{"sku":"A"}` || got[2].ID != "n-2" {
		t.Errorf("notices %+v", got)
	}
	if n := s.Attempts("n-1"); n != 3 {
		t.Errorf("%d attempts, want 3", n)
	}
}

func TestCloseEndsSlowAnswers(t *testing.T) {
	s := Start(NewSecret())
	s.Slow(time.Minute)
	time.AfterFunc(50*time.Millisecond, s.Close)
	began := time.Now()
	post(t, s, s.Secret(), "n-1", time.Now(), body)
	s.Close()
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("took %s", took)
	}
	if n := s.Count(""); n != 0 {
		t.Errorf("%d counted of a notice nobody was told about", n)
	}
}
