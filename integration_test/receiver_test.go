package integration_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/keytill/keytill/adapter"
	"github.com/keytill/keytill/internal/hooktest"
)

const (
	hookPath      = "/hooks"
	hookTolerance = 5 * time.Minute
)

// A receiver stands before the storefront's and turns the scenario's time into real time: keytill signs by the scenario's
// clock, and who checks signatures goes by the real one. It lets nothing through that was not signed well, or is not as
// keytill's schema has it.
type receiver struct {
	next *hooktest.Server
	key  *standardwebhooks.Webhook
	now  func() time.Time
	http *httptest.Server

	schema schema // of what comes in
}

func newReceiver(next *hooktest.Server, now func() time.Time) *receiver {
	key, err := standardwebhooks.NewWebhook(next.Secret())
	if err != nil {
		panic(err) // hooktest has taken it
	}
	r := &receiver{next: next, key: key, now: now, schema: readSchema(adapter.NoticeSchema())}
	r.http = httptest.NewServer(http.HandlerFunc(r.receive))
	return r
}

func (r *receiver) addr() string { return strings.TrimPrefix(r.http.URL, "http://") }

func (r *receiver) close() { r.http.Close() }

func (r *receiver) receive(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return // the sender is gone
	}
	if err := r.check(body, req.Header); err != nil {
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}
	status, err := r.forward(req, body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	w.WriteHeader(status)
}

func (r *receiver) check(body []byte, header http.Header) error {
	if err := r.key.VerifyIgnoringTimestamp(body, header); err != nil {
		return err
	}
	seconds, err := strconv.ParseInt(header.Get(standardwebhooks.HeaderWebhookTimestamp), 10, 64)
	if err != nil {
		return err
	}
	if err := r.schema.check(body); err != nil {
		return err
	}
	if age := r.now().Sub(time.Unix(seconds, 0)); age.Abs() > hookTolerance {
		return fmt.Errorf("signed %s ago", age)
	}
	return nil
}

func (r *receiver) forward(req *http.Request, body []byte) (int, error) {
	id, at := req.Header.Get(standardwebhooks.HeaderWebhookID), time.Now()
	signature, err := r.key.Sign(id, at, body)
	if err != nil {
		return 0, err
	}
	out, err := http.NewRequestWithContext(req.Context(), req.Method, r.next.URL(), bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	out.Header = req.Header.Clone()
	out.Header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(at.Unix(), 10))
	out.Header.Set(standardwebhooks.HeaderWebhookSignature, signature)
	resp, err := http.DefaultTransport.RoundTrip(out)
	if err != nil {
		return 0, err
	}
	_ = resp.Body.Close() // its answers have none
	return resp.StatusCode, nil
}
