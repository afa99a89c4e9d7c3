// Package hooktest is a storefront's receiver of signed notices, on the loopback, for tests and for the demo. It
// takes what Standard Webhooks (https://www.standardwebhooks.com) says a receiver must take, refuses the rest with
// 401, and misbehaves on request.
//
//	srv := hooktest.Start(hooktest.NewSecret())
//	defer srv.Close()
//	… send to srv.URL() signed with srv.Secret() …
//	srv.Count("fulfillment.completed")
package hooktest

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// Notice is one authentic notice that was answered with 204.
type Notice struct {
	ID   string // header webhook-id, the same for every attempt
	Type string
	At   time.Time // the body's timestamp: when it happened, not when it was sent
	Data json.RawMessage
	// Attempt counts the authentic requests with this ID, failed ones too: 3 came through the third time, and a
	// second notice with the same ID is one that was sent again although it had come through.
	Attempt int
}

// Server is one running receiver.
type Server struct {
	secret  string
	webhook *standardwebhooks.Webhook
	now     func() time.Time
	http    *httptest.Server
	done    chan struct{}
	once    sync.Once

	mu       sync.Mutex
	failures int // requests still to fail
	status   int // with this
	slow     time.Duration
	attempts map[string]int
	notices  []Notice
	refused  int
}

// Start runs a receiver that checks signatures with this secret, as made by NewSecret. It panics when the secret is
// none or the loopback cannot be listened on.
func Start(secret string) *Server { return StartAt(secret, time.Now) }

// StartAt is Start for a receiver whose time is another's: a signature counts when it was made within five minutes of now.
func StartAt(secret string, now func() time.Time) *Server {
	webhook, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		panic("hooktest: the secret is not whsec_ and base64, make one with NewSecret")
	}
	s := &Server{
		secret: secret, webhook: webhook, now: now,
		done: make(chan struct{}), attempts: make(map[string]int),
	}
	s.http = httptest.NewServer(http.HandlerFunc(s.receive))
	return s
}

// NewSecret makes a random signing secret: whsec_ and 32 bytes in base64.
func NewSecret() string {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails, says its documentation
	return "whsec_" + base64.StdEncoding.EncodeToString(key)
}

// URL is where notices are to be posted.
func (s *Server) URL() string { return s.http.URL + "/hooks" }

// Secret is the one given to Start.
func (s *Server) Secret() string { return s.secret }

// Close ends the receiver, slow answers included. It may be called twice.
func (s *Server) Close() {
	s.once.Do(func() {
		close(s.done)
		s.http.Close()
	})
}

// Fail answers the next n authentic requests with this status.
func (s *Server) Fail(n, status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures, s.status = n, status
}

// Slow lets every answer wait this long; 0 ends it.
func (s *Server) Slow(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slow = d
}

// Count is the number of notices of a type, each ID counted once; "" counts every type.
func (s *Server) Count(typ string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := make(map[string]bool)
	for _, n := range s.notices {
		if typ == "" || n.Type == typ {
			ids[n.ID] = true
		}
	}
	return len(ids)
}

// Notices are all notices answered with 204, in that order, an ID as often as it came through.
func (s *Server) Notices() []Notice {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Notice(nil), s.notices...)
}

// Attempts is the number of authentic requests with this ID, failed ones too.
func (s *Server) Attempts(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attempts[id]
}

// Refused is the number of requests that were not authentic, or not readable.
func (s *Server) Refused() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}

// bodyLimit is far above any notice; a larger one is a fault of the sender.
const bodyLimit = 1 << 20

func (s *Server) receive(w http.ResponseWriter, r *http.Request) {
	notice, status, err := s.read(w, r)
	if err != nil {
		s.mu.Lock()
		s.refused++
		s.mu.Unlock()
		http.Error(w, err.Error(), status)
		return
	}

	s.mu.Lock()
	s.attempts[notice.ID]++
	notice.Attempt = s.attempts[notice.ID]
	slow, failure := s.slow, 0
	if s.failures > 0 {
		s.failures--
		failure = s.status
	}
	s.mu.Unlock()

	if !s.pause(r, slow) {
		return // nobody is there to hear the answer
	}
	if failure != 0 {
		if failure >= 300 && failure < 400 {
			w.Header().Set("Location", s.http.URL+"/elsewhere")
		}
		w.WriteHeader(failure)
		return
	}
	s.mu.Lock()
	s.notices = append(s.notices, notice)
	s.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) read(w http.ResponseWriter, r *http.Request) (Notice, int, error) {
	if r.Method != http.MethodPost || r.URL.Path != "/hooks" {
		return Notice{}, http.StatusNotFound, fmt.Errorf("only POST /hooks is here")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyLimit))
	if err != nil {
		return Notice{}, http.StatusRequestEntityTooLarge, fmt.Errorf("body: %w", err)
	}
	if err := s.webhook.VerifyIgnoringTimestamp(body, r.Header); err != nil {
		return Notice{}, http.StatusUnauthorized, err
	}
	if err := s.checkTime(r.Header.Get(standardwebhooks.HeaderWebhookTimestamp)); err != nil {
		return Notice{}, http.StatusUnauthorized, err
	}
	var content struct {
		Type      string          `json:"type"`
		Timestamp time.Time       `json:"timestamp"`
		Data      json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(body, &content); err != nil {
		return Notice{}, http.StatusBadRequest, fmt.Errorf("body: %w", err)
	}
	if content.Type == "" || content.Timestamp.IsZero() || content.Data == nil {
		return Notice{}, http.StatusBadRequest, fmt.Errorf("body: type, timestamp or data is missing")
	}
	return Notice{
		ID: r.Header.Get(standardwebhooks.HeaderWebhookID), Type: content.Type, At: content.Timestamp,
		Data: content.Data,
	}, 0, nil
}

// pause waits, but not beyond Close or the sender's patience; false says that it ended early.
func (s *Server) pause(r *http.Request, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.Context().Done():
	case <-s.done:
	}
	return false
}

// tolerance is what Standard Webhooks' own libraries allow between sending and receiving.
const tolerance = 5 * time.Minute

func (s *Server) checkTime(stamp string) error {
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return fmt.Errorf("webhook-timestamp: %w", err)
	}
	if off := s.now().Sub(time.Unix(seconds, 0)); off.Abs() > tolerance {
		return fmt.Errorf("webhook-timestamp is %s off", off)
	}
	return nil
}
