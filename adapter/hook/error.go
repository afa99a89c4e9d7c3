package hook

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Error says why a notice was not taken. It may be logged: nothing of the body is in it, and of the URL only
// the host.
type Error struct {
	ID string // of the Notice; empty if it is malformed
	// Permanent: the receiver will never take it (410 Gone: it asks for no more notices), or the notice is malformed.
	// Everything else is temporary, 4xx too, since receivers are mended while notices wait.
	Permanent bool
	// Status is the last answer's: 503. 0 if there was none, and then the receiver may still have got the notice.
	Status int
	// RetryAfter is how long the receiver asks to be left alone, up to a day; 0 if it does not.
	RetryAfter time.Duration
	Attempts   int
	Reason     string

	cause error // the caller's ended context, or nil
}

func (e *Error) Error() string {
	kind := "temporary"
	if e.Permanent {
		kind = "permanent"
	}
	tries := ""
	if e.Attempts > 1 {
		tries = fmt.Sprintf(" after %d attempts", e.Attempts)
	}
	return fmt.Sprintf("hook %q not taken (%s): %s%s", e.ID, kind, e.Reason, tries)
}

// Unwrap is the error of the caller's context if that ended the sending, else nil: what net/http returns holds the URL.
func (e *Error) Unwrap() error { return e.cause }

// maxRetryAfter keeps a receiver from putting its notices off for ever.
const maxRetryAfter = 24 * time.Hour

func failure(ctx context.Context, id string, attempts int, resp *http.Response, err error, now time.Time) *Error {
	e := &Error{ID: id, Attempts: attempts}
	switch {
	case ctx.Err() != nil:
		e.cause = ctx.Err()
		e.Reason = "given up: " + ctx.Err().Error()
	case err != nil && isTimeout(err):
		e.Reason = "no answer in time"
	case err != nil:
		var withURL *url.Error
		if errors.As(err, &withURL) {
			err = withURL.Err
		}
		// What is no HTTP is quoted by net/http.
		e.Reason = fmt.Sprintf("%.200s", err)
	default:
		e.Status = resp.StatusCode
		e.Permanent = resp.StatusCode == http.StatusGone
		e.RetryAfter = retryAfter(resp.Header.Get("Retry-After"), now)
		e.Reason = "the receiver answered " + status(resp.StatusCode)
		if resp.StatusCode >= 300 && resp.StatusCode < 400 {
			e.Reason += ": redirects are not followed, set the URL to where it leads"
		}
	}
	return e
}

// retryAfter reads seconds or a date (RFC 9110, 10.2.3).
func retryAfter(value string, now time.Time) time.Duration {
	var wait time.Duration
	if seconds, err := strconv.ParseInt(value, 10, 32); err == nil {
		wait = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(value); err == nil {
		wait = at.Sub(now)
	}
	return max(0, min(wait, maxRetryAfter))
}

func isTimeout(err error) bool {
	var netErr net.Error
	return errors.As(err, &netErr) && netErr.Timeout()
}
