package reconcile_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keytill/keytill/internal/stripefake"
	"github.com/keytill/keytill/reconcile"
)

// kill ends a sweep at its n-th list, without a chance to clean up: its context and its lease just end.
func (s *shop) kill(n int) (report reconcile.Report) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	var calls atomic.Int64
	heal := s.failing(func(r *http.Request) *stripefake.Fault {
		if r.URL.Query().Has("created[gte]") && calls.Add(1) == int64(n) {
			cancel()
			return &stripefake.Fault{Cut: true}
		}
		return nil
	})
	defer heal()
	report, err := s.sweeper.Sweep(ctx, "default", reconcile.Options{})
	if err == nil {
		s.t.Fatalf("the sweep was over before its list %d", n)
	}
	return report
}

func TestASweepKilledAtAnyPageGoesOnFromThere(t *testing.T) {
	t.Parallel()
	const payments = 320 // four pages of sessions, four of PaymentIntents, and four lists of nothing
	for n := 1; n <= 12; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			s := open(t, payments)
			s.buyMany(0, payments)
			s.forward(time.Hour)
			// Not settled here: this is about the lists.
			s.sweeper = s.newSweeper(func(c *reconcile.Config) { c.Settler = lazy{} })
			s.kill(n)
			s.stripe.ForgetCalls()
			s.forward(time.Minute)
			r := s.sweep(reconcile.Options{})
			// All but the one that was lost, and one more for what has become old enough meanwhile.
			if got, most := lists(s), 12-(n-1)+6; got > most {
				t.Errorf("%d lists after a kill at list %d, want at most %d", got, n, most)
			}
			if r.Failed != 0 || r.Error != "" {
				t.Errorf("%+v", r)
			}
			if got := s.count(`SELECT count(*) FROM keytill.sweep_looked WHERE object_id LIKE 'cs_%'`); got != payments {
				t.Errorf("%d of %d payments were found", got, payments)
			}
		})
	}
}

// Killed between two settles, it has settled some; the next settles the rest, and none twice.
func TestASweepKilledWhileItSettlesGoesOn(t *testing.T) {
	t.Parallel()
	s := open(t, 99)
	s.buyMany(0, 60)
	s.forward(time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var reads atomic.Int64
	heal := s.failing(func(r *http.Request) *stripefake.Fault {
		if strings.HasPrefix(r.URL.Path, "/v1/checkout/sessions/") && reads.Add(1) == 31 {
			cancel()
		}
		return nil
	})
	if _, err := s.sweeper.Sweep(ctx, "default", reconcile.Options{}); err == nil {
		t.Fatal("it was not killed")
	}
	heal()
	before := s.fulfilled()
	if before == 0 || before == 60 {
		t.Fatalf("%d were settled before the kill", before)
	}
	s.stripe.ForgetCalls()
	r := s.sweep(reconcile.Options{})
	if got := s.fulfilled(); got != 60 {
		t.Errorf("%d of 60 have their key", got)
	}
	if most := 60 - before + 4; r.Differing > most || s.stripe.Calls("/v1/checkout/sessions/") > most {
		t.Errorf("%d were settled before the kill, %d after it", before, r.Differing)
	}
}

func lists(s *shop) (n int) {
	for _, path := range []string{"checkout/sessions", "payment_intents", "refunds", "disputes", "radar/early_fraud_warnings", "events"} {
		n += s.stripe.Calls("/v1/" + path)
	}
	return n
}

// Page two of the sessions cannot be read, for good: the session of second 150 breaks every list that it is in.
func TestAPageThatFailsForGoodHidesNothingAndIsNotPassed(t *testing.T) {
	t.Parallel()
	s := open(t, 400)
	begin := s.now()
	s.buyMany(0, 300)
	s.forward(time.Hour)
	broken := begin.Add(150 * time.Second).Unix()
	fault := func(r *http.Request) *stripefake.Fault {
		q := r.URL.Query()
		var from, to int64
		_, _ = fmt.Sscan(q.Get("created[gte]"), &from)
		_, _ = fmt.Sscan(q.Get("created[lt]"), &to)
		if !isList(r, "/v1/checkout/sessions") || broken < from || broken >= to {
			return nil
		}
		if after := q.Get("starting_after"); q.Get("limit") == "100" && to-from > 100 && after == "" && to-broken > 100 {
			return nil // its first hundred are newer than that
		}
		return &stripefake.Fault{Status: 500}
	}
	heal := s.failing(fault)
	for sweep := range 3 {
		r := s.sweep(reconcile.Options{})
		if r.OK() || r.Failed != 1 || r.ByKind[reconcile.Sessions].Failed != 1 {
			t.Fatalf("sweep %d: %+v", sweep+1, r.Tally)
		}
		if got := s.fulfilled(); got != 299 {
			t.Fatalf("sweep %d: %d of the other 299 have their key", sweep+1, got)
		}
		if got := s.count(`SELECT count(*) FROM keytill.sweep_spans WHERE kind = 'sessions' AND created_to - created_from = '1 second'`); got != 1 {
			t.Errorf("sweep %d: %d spans of a second are left", sweep+1, got)
		}
		s.forward(15 * time.Minute)
		s.stripe.ForgetCalls()
	}
	if got := lists(s); got > 0 {
		t.Logf("%d lists since", got)
	}
	// A month later it can be read.
	s.forward(30 * 24 * time.Hour)
	s.sweep(reconcile.Options{})
	heal()
	if r := s.sweep(reconcile.Options{}); !r.OK() || r.Repaired != 1 {
		t.Errorf("%+v", r.Tally)
	}
	if got := s.fulfilled(); got != 300 {
		t.Errorf("%d have their key", got)
	}
}

// A payment that cannot be settled stays to be settled, and stands in nobody's way.
func TestAPaymentThatCannotBeSettledIsTriedAgain(t *testing.T) {
	t.Parallel()
	s := open(t, 99)
	s.buyMany(0, 60)
	s.forward(time.Hour)
	broken := func(i int) bool { return i < 30 } // the oldest, more than a round of settles
	heal := s.failing(func(r *http.Request) *stripefake.Fault {
		var i int
		if n, _ := fmt.Sscanf(r.URL.Path, "/v1/checkout/sessions/cs_%d", &i); n == 1 && broken(i) {
			return &stripefake.Fault{Status: 500}
		}
		return nil
	})
	for range 3 {
		_, _ = s.sweeper.Sweep(t.Context(), "default", reconcile.Options{})
		s.forward(15 * time.Minute)
	}
	if got := s.fulfilled(); got != 30 {
		t.Errorf("%d of the 30 that can be settled have their key", got)
	}
	heal()
	s.sweep(reconcile.Options{})
	if got := s.fulfilled(); got != 60 {
		t.Errorf("%d of 60 have their key", got)
	}
	if got := s.count(`SELECT count(*) FROM keytill.sweep_todo`); got != 0 {
		t.Errorf("%d are left to do", got)
	}
}

func TestListsThatLieEndAndAreReadInTheEnd(t *testing.T) {
	t.Parallel()
	for name, lie := range map[string]stripefake.Fault{
		"more is said than there is":   {LieHasMore: true},
		"the first page comes again":   {RepeatPage: true},
		"the answer breaks off":        {Cut: true},
		"the answer is an error":       {Status: 500},
		"Stripe asks for fewer calls":  {Status: 429, Header: http.Header{"Retry-After": {"0"}}},
		"both at once, page and more":  {RepeatPage: true, LieHasMore: true},
		"it does not want to be asked": {Status: 500, Header: http.Header{"Stripe-Should-Retry": {"false"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, 300)
			s.buyMany(0, 250)
			s.forward(time.Hour)
			heal := s.failing(func(r *http.Request) *stripefake.Fault {
				if r.URL.Query().Has("created[gte]") {
					return &lie
				}
				return nil
			})
			if _, err := s.sweeper.Sweep(t.Context(), "default", reconcile.Options{}); err != nil {
				t.Log(err)
			}
			if calls := lists(s); calls > 1500 {
				t.Errorf("%d calls", calls)
			}
			heal()
			s.forward(time.Minute)
			if r := s.sweep(reconcile.Options{}); !r.OK() {
				t.Errorf("once it is over: %+v", r)
			}
			if got := s.fulfilled(); got != 250 {
				t.Errorf("%d of 250 have their key", got)
			}
		})
	}
}

func TestRandomFaultsDelayAndLoseNothing(t *testing.T) {
	t.Parallel()
	s := open(t, 400)
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 1))
	s.buyMany(0, 330)
	s.forward(time.Hour)
	heal := s.failing(func(*http.Request) *stripefake.Fault {
		s.mu.Lock()
		defer s.mu.Unlock()
		switch random.IntN(12) {
		case 0:
			return &stripefake.Fault{Status: 429}
		case 1:
			return &stripefake.Fault{Status: 500}
		case 2:
			return &stripefake.Fault{Status: 500, Header: http.Header{"Stripe-Should-Retry": {"false"}}}
		}
		return nil
	})
	var outcomes []string
	for range 4 {
		r, err := s.sweeper.Sweep(t.Context(), "default", reconcile.Options{})
		outcomes = append(outcomes, fmt.Sprintf("%+v %v", r.Tally, err))
		s.forward(15 * time.Minute)
	}
	heal()
	s.sweep(reconcile.Options{})
	if got := s.fulfilled(); got != 330 {
		t.Errorf("seed %d: %d of 330 have their key\n%s", seed, got, strings.Join(outcomes, "\n"))
	}
	keys := s.count(`SELECT count(DISTINCT key_id) FROM keytill.fulfilments`)
	if keys != 330 {
		t.Errorf("seed %d: %d keys", seed, keys)
	}
}

// What the API key may not read is told, and all else is swept.
func TestAForbiddenKindIsToldAndHidesNothing(t *testing.T) {
	t.Parallel()
	s := open(t, 9)
	s.buy("cs_1", nil)
	s.forward(time.Hour)
	s.failing(func(r *http.Request) *stripefake.Fault {
		if strings.HasPrefix(r.URL.Path, "/v1/disputes") && isList(r, "/v1/disputes") {
			return &stripefake.Fault{Status: 403}
		}
		return nil
	})
	r := s.sweep(reconcile.Options{})
	s.wants("cs_1", "fulfilled")
	if r.OK() || !slices.ContainsFunc(r.Payments, func(p reconcile.Payment) bool { return p.Kind == reconcile.Disputes }) {
		t.Errorf("%+v", r)
	}
}
