package hook

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// Two more attempts within a second or two: enough for a receiver that restarts, and a worker is not held for long.
const (
	retryMax     = 2
	retryWaitMin = 200 * time.Millisecond
	retryWaitMax = 2 * time.Second
)

func (s *Sender) newClient(cfg Config) *retryablehttp.Client {
	client := retryablehttp.NewClient()
	if cfg.HTTPClient != nil {
		copied := *cfg.HTTPClient
		client.HTTPClient = &copied
	}
	client.HTTPClient.Timeout = cfg.Timeout
	if cfg.Timeout == 0 {
		client.HTTPClient.Timeout = DefaultTimeout
	}
	// A redirect would carry a signed body to an address nobody configured.
	client.HTTPClient.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

	// Its own log lines hold the URL.
	client.Logger = nil
	client.RetryMax, client.RetryWaitMin, client.RetryWaitMax = retryMax, retryWaitMin, retryWaitMax
	client.CheckRetry = checkRetry
	client.Backoff = backoff
	client.ErrorHandler = retryablehttp.PassthroughErrorHandler
	client.RequestLogHook = func(_ retryablehttp.Logger, req *http.Request, retry int) {
		if c := callsOf(req.Context()); c != nil {
			c.made = retry + 1
		}
		if retry > 0 {
			s.log.DebugContext(req.Context(), "hook: trying again",
				"id", req.Header.Get(standardwebhooks.HeaderWebhookID), "attempt", retry+1)
		}
	}
	return client
}

// checkRetry says whether a second look within seconds can help; whether one within hours can is for failure to say.
func checkRetry(ctx context.Context, resp *http.Response, err error) (bool, error) {
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if err != nil {
		var certificate *tls.CertificateVerificationError
		return !errors.As(err, &certificate), nil
	}
	switch code := resp.StatusCode; {
	case resp.Header.Get("Retry-After") != "":
		return false, nil // a while is asked for, and workers do not wait: the job does
	case code == http.StatusTooManyRequests, code == http.StatusRequestTimeout:
		return true, nil
	default:
		return code >= 500 && code != http.StatusNotImplemented, nil
	}
}

// backoff doubles, with half of it random so that many notices do not come back at once. Unlike the library's it does
// not follow Retry-After, which may say hours.
func backoff(low, high time.Duration, attempt int, _ *http.Response) time.Duration {
	wait := min(low<<min(attempt, 10), high)
	return wait/2 + rand.N(wait/2+1)
}

// calls counts the attempts of one Send; the library tells nobody else.
type calls struct{ made int }

type callsKey struct{}

func withCalls(ctx context.Context, c *calls) context.Context {
	return context.WithValue(ctx, callsKey{}, c)
}

func callsOf(ctx context.Context) *calls {
	c, _ := ctx.Value(callsKey{}).(*calls)
	return c
}
