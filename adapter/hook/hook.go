// Package hook sends signed notices to the storefront as Standard Webhooks (https://www.standardwebhooks.com) has
// them:
//
//	POST <URL>
//	webhook-id: <Notice.ID, the same for every attempt>
//	webhook-timestamp: <seconds, when this was sent>
//	webhook-signature: v1,<base64> [v1,<base64>]        one for each secret
//
//	{"type":"fulfillment.completed","timestamp":"2026-01-02T15:04:05Z","data":{…}}
//
// Send tries three times within seconds, for a receiver that just restarts. Trying for hours is the work of the job
// that calls it, which hears from *Error whether that can help. No body is in errors or logs, and of the URL no more
// than the host: keys may be in the one, a token in the other.
package hook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// DefaultTimeout of one attempt, if Config does not set it.
const DefaultTimeout = 10 * time.Second

// Config of a Sender.
type Config struct {
	// URL receives the notices: https://…, or http://… in a network you trust.
	URL string
	// Secrets sign every notice, each with its own signature: one, or during a rotation the new and the old. Each is
	// whsec_ and the base64 of 24 to 64 random bytes.
	Secrets []string
	// HTTPClient may bring its own transport; it is copied, and never follows redirects.
	HTTPClient *http.Client
	// Timeout of one attempt, of which there are up to three; DefaultTimeout if 0.
	Timeout time.Duration
	// Logger hears of failed attempts at debug level; nobody if nil.
	Logger *slog.Logger
	// Now is the clock of webhook-timestamp; time.Now if nil.
	Now func() time.Time
}

// Notice is one thing that happened.
type Notice struct {
	// ID is what the receiver knows a repetition by: up to 200 letters, digits, _, - and colons.
	ID string
	// Type is what happened, in words with dots between: key.revoked.
	Type string
	// At is when it happened.
	At time.Time
	// Data is a JSON object; {} if empty.
	Data json.RawMessage
}

// Sender sends notices to one receiver. It is safe for concurrent use.
type Sender struct {
	url     string
	signers []*standardwebhooks.Webhook
	client  *retryablehttp.Client
	log     *slog.Logger
	now     func() time.Time
}

// New validates the configuration; it sends nothing.
func New(cfg Config) (*Sender, error) {
	if err := checkURL(cfg.URL); err != nil {
		return nil, err
	}
	signers, err := newSigners(cfg.Secrets)
	if err != nil {
		return nil, err
	}
	if cfg.Timeout < 0 {
		return nil, fmt.Errorf("hook: the timeout is negative: leave it 0 for %s", DefaultTimeout)
	}
	s := &Sender{url: cfg.URL, signers: signers, log: cfg.Logger, now: cfg.Now}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.now == nil {
		s.now = time.Now
	}
	s.client = s.newClient(cfg)
	return s, nil
}

func checkURL(raw string) error {
	if raw == "" {
		return errors.New("hook: no URL: set it to the https:// address that receives the notices")
	}
	u, err := url.Parse(raw)
	// Nothing of the URL is repeated: a token may be in it.
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Hostname() == "" {
		return errors.New("hook: the URL cannot be read: write https://shop.example.com/hooks/keytill")
	}
	if u.Fragment != "" {
		return errors.New("hook: the URL has a # in it, which is never sent: remove it, or write it %23")
	}
	return nil
}

// Close closes connections that are kept for the next notice.
func (s *Sender) Close() error {
	s.client.HTTPClient.CloseIdleConnections()
	return nil
}

var (
	idForm   = regexp.MustCompile(`^[A-Za-z0-9_:-]{1,200}$`) // no dot: it divides what is signed
	typeForm = regexp.MustCompile(`^[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*$`)
)

// Send sends one notice and returns the receiver's status, such as "204 No Content". Its error is always an *Error.
// When ctx ends, so does Send, with a temporary error that wraps ctx's.
func (s *Sender) Send(ctx context.Context, n Notice) (answer string, err error) {
	body, err := encode(n)
	if err != nil {
		e := &Error{Permanent: true, Reason: err.Error()}
		if idForm.MatchString(n.ID) {
			e.ID = n.ID // one that is malformed is not repeated: anything may be in it
		}
		return "", e
	}
	counted := new(calls)
	req, err := retryablehttp.NewRequestWithContext(withCalls(ctx, counted), http.MethodPost, s.url, body)
	if err != nil {
		return "", &Error{ID: n.ID, Permanent: true, Reason: "the request cannot be made"}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "keytill-hook/1")
	if err := s.sign(req.Header, n.ID, body); err != nil {
		return "", &Error{ID: n.ID, Permanent: true, Reason: "the notice cannot be signed"}
	}

	resp, err := s.client.Do(req)
	if resp != nil {
		defer func() { _ = resp.Body.Close() }()
	}
	if err == nil && resp.StatusCode >= 200 && resp.StatusCode < 300 {
		// Read, so that the connection can be used again; no further than a receiver that has nothing to say goes.
		_, _ = io.CopyN(io.Discard, resp.Body, maxResponse)
		return status(resp.StatusCode), nil
	}
	return "", failure(ctx, n.ID, counted.made, resp, err, s.now())
}

// maxResponse is how much of an answer is read, and thrown away.
const maxResponse = 16 << 10

// encode checks a notice and writes its body. Its errors hold nothing of the data.
func encode(n Notice) ([]byte, error) {
	switch {
	case !idForm.MatchString(n.ID):
		return nil, errors.New("the notice's ID must be 1 to 200 letters, digits, _, - and colons")
	case !typeForm.MatchString(n.Type):
		return nil, errors.New("the notice's type must be words of letters, digits and _ with dots between")
	case n.At.IsZero():
		return nil, errors.New("the notice has no time")
	}
	data := n.Data
	if len(data) == 0 {
		data = json.RawMessage("{}")
	}
	var buf strings.Builder
	enc := json.NewEncoder(&buf)
	// Keys are opaque: a < in one goes out as it is, for receivers that look at the bytes.
	enc.SetEscapeHTML(false)
	if err := enc.Encode(struct {
		Type      string          `json:"type"`
		Timestamp time.Time       `json:"timestamp"`
		Data      json.RawMessage `json:"data"`
	}{n.Type, n.At.UTC(), data}); err != nil {
		return nil, errors.New("the notice's data is not JSON")
	}
	return []byte(strings.TrimSuffix(buf.String(), "\n")), nil
}

func status(code int) string {
	// The standard text, not the receiver's: anything may be in that.
	if text := http.StatusText(code); text != "" {
		return fmt.Sprintf("%d %s", code, text)
	}
	return fmt.Sprint(code)
}
