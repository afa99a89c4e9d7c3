package stripeapi

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keytill/keytill/reconcile"
)

// roundTrip is a Stripe that answers at once.
type roundTrip func(*http.Request) *http.Response

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

func get(ctx context.Context, t *testing.T, l *limited) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://stripe.invalid/", http.NoBody)
	if err != nil {
		t.Error(err)
		return
	}
	if resp, err := l.RoundTrip(req); err == nil {
		_ = resp.Body.Close()
	} else if ctx.Err() == nil {
		t.Error(err)
	}
}

// sweeping is a context as the calls of a sweep have it.
func sweeping(t *testing.T) (ctx context.Context) {
	t.Helper()
	return reconcile.AsSweep(t.Context())
}

func answers(status int, header http.Header) roundTrip {
	return func(*http.Request) *http.Response {
		return &http.Response{StatusCode: status, Header: header, Body: http.NoBody}
	}
}

// However many calls a sweep makes, a webhook's call does not wait for them.
func TestAWebhooksCallGoesBeforeASweeps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &limited{next: answers(200, nil), perSecond: 40}
		ctx, stop := context.WithCancel(sweeping(t))
		for range 4 {
			go func() {
				for ctx.Err() == nil {
					get(ctx, t, l)
				}
			}()
		}
		time.Sleep(10 * time.Second) // the bucket is down to what is not a sweep's
		for range 50 {
			began := time.Now()
			get(t.Context(), t, l)
			if waited := time.Since(began); waited > 50*time.Millisecond {
				t.Errorf("a webhook's call waited %s for a sweep's", waited)
			}
			time.Sleep(100 * time.Millisecond)
		}
		stop()
		synctest.Wait()
	})
}

// With the account for itself a sweep has the whole rate, and below a storm of webhooks a little.
func TestASweepHasWhatOthersLeave(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		storm       bool
		least, most int64
	}{
		"alone":         {false, 380, 450},
		"below a storm": {true, 5, 60},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := &limited{next: answers(200, nil), perSecond: 40}
				// No deadline: a limiter that sees one fails at once instead of waiting, and the loops would spin.
				ctx, stop := context.WithCancel(t.Context())
				if tt.storm {
					for range 8 {
						go func() {
							for ctx.Err() == nil {
								get(ctx, t, l)
							}
						}()
					}
				}
				var calls atomic.Int64
				swept := reconcile.AsSweep(ctx)
				go func() {
					for ctx.Err() == nil {
						get(swept, t, l)
						calls.Add(1)
					}
				}()
				time.Sleep(10 * time.Second)
				stop()
				synctest.Wait()
				if n := calls.Load(); n < tt.least || n > tt.most {
					t.Errorf("%d calls in ten seconds at 40 a second, want %d to %d", n, tt.least, tt.most)
				}
			})
		})
	}
}

func TestASweepPausesForAsLongAsStripeAsks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &limited{next: answers(http.StatusTooManyRequests, http.Header{"Retry-After": {"3"}}), perSecond: 40}
		get(sweeping(t), t, l)
		l.next = answers(200, nil)
		began := time.Now()
		get(t.Context(), t, l)
		if waited := time.Since(began); waited > 0 {
			t.Errorf("another's call waited %s", waited)
		}
		get(sweeping(t), t, l)
		if waited := time.Since(began); waited != 3*time.Second {
			t.Errorf("the sweep's call waited %s", waited)
		}
	})
}

func TestEachAccountHasItsOwnRate(t *testing.T) {
	t.Parallel()
	l := &limited{perSecond: 1}
	own, other := l.limiter(""), l.limiter("acct_1")
	if own == other || own != l.limiter("") {
		t.Error("accounts share a limiter, or have two")
	}
}
