// Package stripeapi reads Stripe. It is the only place, beside the check of a webhook's signature, that knows
// stripe-go, and it turns what it reads into fulfillment's own types.
//
//	Payment(ref) ──▶ resolve ref ──▶ session, intent, charge ─┐
//	                                 line items, all pages   ─┼──▶ fulfillment.Payment
//	                                 refunds, disputes, …    ─┘
//
// There is one layer of retries, go-retryablehttp's: stripe-go's own would multiply with it, sleeps without looking at
// the context, and does not retry a 429.
package stripeapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/stripe/stripe-go/v76"
	"github.com/stripe/stripe-go/v76/client"
	"golang.org/x/time/rate"
)

// Config is what a Client needs.
type Config struct {
	Key    string // sk_… or rk_…
	URL    string // another base URL than Stripe's, for a fake
	Logger *slog.Logger

	// Account finds the Connect account of a merchant, empty for the platform's own.
	Account func(ctx context.Context, merchant string) (string, error)

	// PerSecond bounds the calls for each account. Zero is somewhat below Stripe's limit of the key's mode, which other
	// programs of the account share.
	PerSecond float64

	// RetryWait is about the first pause before another attempt; 200 ms unless set.
	RetryWait time.Duration

	// CallTimeout bounds an attempt, with its wait for its turn and the whole of its answer; a minute unless set.
	CallTimeout time.Duration

	// Transport makes the calls; NewTransport unless set.
	Transport http.RoundTripper
}

// Stripe allows 100 reads a second in live mode and 25 in test mode (docs.stripe.com/rate-limits).
const (
	livePerSecond = 80
	testPerSecond = 20

	attempts      = 5
	minWait       = 200 * time.Millisecond
	maxWait       = 5 * time.Second
	answerTimeout = 10 * time.Second // until an attempt is answered, from when it has its turn below the rate limit
	callTimeout   = time.Minute      // an attempt with its wait for its turn and the whole of its answer
)

// Client reads Stripe for all merchants.
type Client struct {
	api     *client.API
	account func(ctx context.Context, merchant string) (string, error)
}

// Livemode reports whether a key is of live mode; an error says that it is no API key.
func Livemode(key string) (bool, error) {
	for _, kind := range []string{"sk", "rk"} {
		if rest, ok := strings.CutPrefix(key, kind+"_live_"); ok && rest != "" {
			return true, nil
		}
		if rest, ok := strings.CutPrefix(key, kind+"_test_"); ok && rest != "" {
			return false, nil
		}
	}
	if strings.HasPrefix(key, "pk_") {
		return false, errors.New("the Stripe API key is a publishable one (pk_…): give a secret key (sk_…) or a restricted one (rk_…)")
	}
	return false, errors.New("the Stripe API key must begin with sk_live_, sk_test_, rk_live_ or rk_test_: copy it from the Stripe dashboard, Developers → API keys")
}

// New makes a Client. It makes no call.
func New(c Config) (*Client, error) {
	live, err := Livemode(c.Key)
	if err != nil {
		return nil, err
	}
	if err := checkURL(c.URL); err != nil {
		return nil, err
	}
	if c.Account == nil {
		return nil, errors.New("stripeapi: Config needs Account")
	}
	if c.PerSecond == 0 {
		c.PerSecond = testPerSecond
		if live || c.URL != "" {
			c.PerSecond = livePerSecond
		}
	}
	if c.Transport == nil {
		c.Transport = NewTransport()
	}
	if c.CallTimeout == 0 {
		c.CallTimeout = callTimeout
	}
	retrying := retryablehttp.NewClient()
	retrying.HTTPClient = &http.Client{
		Transport: whole{&limited{next: c.Transport, perSecond: rate.Limit(c.PerSecond)}},
		Timeout:   c.CallTimeout,

		// Stripe's API redirects nobody. Who stands in its place must not send what comes with the key elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	retrying.RetryMax = attempts - 1
	if c.RetryWait == 0 {
		c.RetryWait = minWait
	}
	retrying.RetryWaitMin, retrying.RetryWaitMax = c.RetryWait, maxWait
	retrying.CheckRetry = checkRetry
	retrying.Backoff = backoff
	retrying.ErrorHandler = lastAnswer
	retrying.Logger = nil

	standard := retrying.StandardClient()
	standard.CheckRedirect = retrying.HTTPClient.CheckRedirect // each of the two would follow one

	backend := &stripe.BackendConfig{
		HTTPClient:        standard,
		MaxNetworkRetries: stripe.Int64(0),
		EnableTelemetry:   stripe.Bool(false),
		LeveledLogger:     &stripe.LeveledLogger{Level: stripe.LevelNull}, // its debug level holds whole bodies
	}
	if c.URL != "" {
		backend.URL = stripe.String(strings.TrimSuffix(c.URL, "/"))
	}
	api := client.New(c.Key, &stripe.Backends{API: stripe.GetBackendWithConfig(stripe.APIBackend, backend)})
	return &Client{api: api, account: c.Account}, nil
}

// checkURL finds a base URL that no call could go to. stripe-go would say so at the first call only.
func checkURL(base string) error {
	if base == "" {
		return nil
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return errors.New("the Stripe API URL cannot be read: it must look like http://127.0.0.1:12111, or be left out for Stripe itself")
	}
	return nil
}

// NewTransport makes what carries the calls, which gives up on an answer that does not come.
func NewTransport() *http.Transport {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = answerTimeout
	return transport
}

// checkRetry says whether a call is worth another attempt: when nothing came back, when Stripe says so, and for the
// statuses that pass by themselves. All of keytill's calls are reads.
func checkRetry(ctx context.Context, resp *http.Response, err error) (bool, error) {
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if err != nil {
		return !errors.Is(err, errTooLarge), nil
	}
	switch resp.Header.Get("Stripe-Should-Retry") {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	switch {
	case resp.StatusCode == http.StatusConflict, resp.StatusCode == http.StatusTooManyRequests:
		return true, nil
	case resp.StatusCode >= 500 && resp.StatusCode != http.StatusNotImplemented:
		return true, nil
	}
	return false, nil
}

// lastAnswer hands on the answer to the last attempt, for stripe-go to make its error of. A RoundTripper must not return
// an answer beside an error: nobody would close it.
func lastAnswer(resp *http.Response, err error, _ int) (*http.Response, error) {
	if err != nil && resp != nil {
		_ = resp.Body.Close()
		resp = nil
	}
	return resp, err
}

// backoff honours Retry-After up to the longest wait: a job that waits longer belongs back into its queue.
func backoff(minimum, maximum time.Duration, attempt int, resp *http.Response) time.Duration {
	if resp != nil {
		if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
			return min(time.Duration(seconds)*time.Second, maximum)
		}
	}
	return retryablehttp.LinearJitterBackoff(minimum, min(minimum*4, maximum), attempt, nil)
}
