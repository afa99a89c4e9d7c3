package stripeapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// whole hands on only answers that came whole and that Stripe can have given. stripe-go takes what it can of any other:
// half an answer is an error that no retry sees, and an object of nothing but zeros is none. Read here, an answer that was
// cut counts as one that did not come, and is asked for again.
type whole struct{ next http.RoundTripper }

// maxAnswer is far above a page of a hundred sessions with all that is expanded in them.
const maxAnswer = 16 << 20

var (
	errTooLarge   = errors.New("the answer is larger than any of Stripe's")
	errUnreadable = errors.New("the answer is not Stripe's: if it stays so, see whether a proxy stands between, and whether KEYTILL_STRIPE_API_URL is right")
)

// RoundTrip makes a call and reads its answer.
func (w whole) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := w.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if resp.ContentLength > maxAnswer {
		_ = resp.Body.Close() // nobody reads it
		return nil, errTooLarge
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	_ = resp.Body.Close() // it is read, or of no use
	switch {
	case err != nil:
		return nil, fmt.Errorf("the answer broke off: %w", err)
	case len(body) > maxAnswer:
		return nil, errTooLarge
	case resp.StatusCode >= http.StatusBadRequest && !tellsError(body):
		body = []byte(`{"error": {"type": "` + foreignError + `"}}`)
	case resp.StatusCode < http.StatusBadRequest && !isObject(body):
		return nil, errUnreadable
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return resp, nil
}

// foreignError is the type of an error that something else than Stripe's API answered, such as a gateway with a page for
// people. Its status still says what to do.
const foreignError = "error that is not in the words of Stripe's API"

func isObject(body []byte) bool {
	return json.Valid(body) && bytes.HasPrefix(bytes.TrimSpace(body), []byte("{"))
}

func tellsError(body []byte) bool {
	var answer struct {
		Error *struct {
			Type string `json:"type"`
		} `json:"error"`
	}
	return json.Unmarshal(body, &answer) == nil && answer.Error != nil && answer.Error.Type != ""
}
