package stripeapi

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/keytill/keytill/reconcile"
)

// limited bounds the calls a second for each account, so that keytill stays below Stripe's limit by itself. Webhooks and
// people go before sweeps: a quarter of the bucket is theirs alone. A sweep that has the account for itself has all the
// rate.
type limited struct {
	next      http.RoundTripper
	perSecond rate.Limit

	mu       sync.Mutex
	limiters map[string]*limiter
}

// RoundTrip waits for its turn, or for the end of the context.
func (l *limited) RoundTrip(req *http.Request) (*http.Response, error) {
	limiter := l.limiter(req.Header.Get("Stripe-Account"))
	if err := limiter.wait(req.Context()); err != nil {
		return nil, fmt.Errorf("wait below Stripe's rate limit: %w", err)
	}
	resp, err := l.next.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusTooManyRequests {
		limiter.back(resp.Header.Get("Retry-After"))
	}
	return resp, err
}

func (l *limited) limiter(account string) *limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.limiters == nil {
		l.limiters = make(map[string]*limiter)
	}
	known := l.limiters[account]
	if known == nil {
		burst := max(1, int(l.perSecond))
		known = &limiter{all: rate.NewLimiter(l.perSecond, burst), reserve: float64(burst) / 4}
		l.limiters[account] = known
	}
	return known
}

// limiter shares out the calls of one account.
type limiter struct {
	all     *rate.Limiter
	reserve float64 // calls that a sweep leaves to others

	mu     sync.Mutex
	paused time.Time // no sweep calls before
}

const (
	// yieldTime is how long a call of a sweep stands back while others use up the reserve. It is not for ever, since an
	// account that is always busy needs its sweeps too.
	yieldTime  = time.Second
	yieldCheck = 20 * time.Millisecond

	// maxPause bounds what Retry-After can ask of a sweep's next call, as backoff does: where Stripe wants longer pauses,
	// the call fails in the end, and the sweep leaves the rest to the next.
	maxPause = maxWait
)

func (l *limiter) wait(ctx context.Context) error {
	if !reconcile.Sweeping(ctx) {
		return l.all.Wait(ctx)
	}
	l.mu.Lock()
	paused := time.Until(l.paused)
	l.mu.Unlock()
	if err := sleep(ctx, paused); err != nil {
		return err
	}
	for stood := time.Duration(0); stood < yieldTime && l.all.Tokens() < l.reserve; stood += yieldCheck {
		if err := sleep(ctx, yieldCheck); err != nil {
			return err
		}
	}
	return l.all.Wait(ctx)
}

// back has sweeps pause for as long as Stripe asks.
func (l *limiter) back(retryAfter string) {
	seconds, err := strconv.Atoi(retryAfter)
	if err != nil || seconds <= 0 {
		return
	}
	until := time.Now().Add(min(time.Duration(seconds)*time.Second, maxPause))
	l.mu.Lock()
	defer l.mu.Unlock()
	if until.After(l.paused) {
		l.paused = until
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
