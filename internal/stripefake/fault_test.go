package stripefake

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v76"
)

func TestFailuresComeAndGo(t *testing.T) {
	t.Parallel()
	s, api := start(t, Config{})
	must(t, s.Session("cs_1", nil, nil))
	read := func() error { _, err := api.CheckoutSessions.Get("cs_1", nil); return err }

	s.Fail(2, Fault{Status: 429, Path: "/v1/checkout", Header: http.Header{"Retry-After": {"7"}}})
	must(t, api.Refunds.List(nil).Err())
	for range 2 {
		e := refused(t, read(), 429, stripe.ErrorCodeRateLimit)
		if e.LastResponse != nil && e.LastResponse.Header.Get("Retry-After") != "7" {
			t.Errorf("got %v", e.LastResponse.Header)
		}
	}
	must(t, read())

	s.Fail(5, Fault{})
	if e := refused(t, read(), 500, ""); e.Type != stripe.ErrorTypeAPI {
		t.Errorf("got type %s", e.Type)
	}
	s.Fail(0, Fault{})
	must(t, read())
	if got := s.Calls("/v1/checkout"); got != 5 {
		t.Errorf("%d calls", got)
	}
	s.ForgetCalls()
	if got := s.Calls(""); got != 0 {
		t.Errorf("%d calls", got)
	}
}

func TestSecondFailOfAPathTakesThePlaceOfTheFirst(t *testing.T) {
	t.Parallel()
	s, api := start(t, Config{})
	s.Fail(8, Fault{Status: 500})
	s.Fail(1, Fault{Status: 409})
	refused(t, api.Refunds.List(nil).Err(), 409, "lock_timeout")
	must(t, api.Refunds.List(nil).Err())
}

func TestHangingCallEndsWithItsClientOrTheServer(t *testing.T) {
	t.Parallel()
	s, api := start(t, Config{})
	s.Fail(2, Fault{Hang: true})
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	p := &stripe.AccountParams{}
	p.Context = ctx
	if _, err := api.Accounts.GetByID("acct_keytill", p); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	ended := make(chan error)
	go func() { _, err := api.Accounts.Get(); ended <- err }()
	for s.Calls("/v1/account") < 2 {
		time.Sleep(time.Millisecond)
	}
	s.Close()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("it was answered")
		}
	case <-time.After(5 * time.Second):
		t.Error("it hangs on")
	}
}

func TestHeldCallAnswersAsOfWhenItCameIn(t *testing.T) {
	t.Parallel()
	s, api := start(t, Config{})
	must(t, s.Session("cs_1", mustItems(t, "price_game*1"), nil))
	h := s.Hold("/v1/refunds")
	count := func() (n int) {
		it := api.Refunds.List(&stripe.RefundListParams{PaymentIntent: stripe.String("pi_1")})
		for it.Next() {
			n++
		}
		if it.Err() != nil {
			t.Error(it.Err())
		}
		return n
	}
	short, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if err := h.Held(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nothing called, and got %v", err)
	}
	held := make(chan int)
	go func() { held <- count() }()
	must(t, h.Held(context.Background()))
	must(t, s.Refund("re_1", "pi_1", nil))
	if got := count(); got != 1 { // only one call is held
		t.Errorf("a later call sees %d refunds", got)
	}
	h.LetGo()
	h.LetGo()
	if got := <-held; got != 0 {
		t.Errorf("the held call sees %d refunds", got)
	}
	s.Hold("/v1/refunds").LetGo()
	if got := count(); got != 1 {
		t.Errorf("a hold let go before it held anything: %d", got)
	}
}

func TestAnswerIsCutOff(t *testing.T) {
	t.Parallel()
	s, api := start(t, Config{})
	s.Fail(1, Fault{Cut: true})
	if _, err := api.Accounts.Get(); err == nil {
		t.Error("half an answer was taken for a whole one")
	}
	must(t, func() error { _, err := api.Accounts.Get(); return err }())
}

func TestListsLie(t *testing.T) {
	t.Parallel()
	s := New(Config{})
	for _, id := range []string{"pi_1", "pi_2", "pi_3"} {
		must(t, s.Intent(id, Fields{"amount": "1"}))
	}
	s.Fail(1, Fault{LieHasMore: true})
	if got := listed(t, s, "payment_intents"); got != "pi_3 pi_2 pi_1 +" {
		t.Error(got)
	}
	if got := listed(t, s, "payment_intents?starting_after=pi_1"); got != "" {
		t.Error(got)
	}
	s.Fail(1, Fault{RepeatPage: true})
	if got := listed(t, s, "payment_intents?limit=2&starting_after=pi_2"); got != "pi_3 pi_2 +" {
		t.Error(got)
	}
}

func TestHookDecidesCallByCall(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	n := 0
	_, api := start(t, Config{PageCost: 30 * time.Millisecond, OnRequest: func(r *http.Request) *Fault {
		mu.Lock()
		defer mu.Unlock()
		if n++; n == 2 {
			return &Fault{Status: 503}
		}
		return nil
	}})
	began := time.Now()
	must(t, api.Refunds.List(nil).Err())
	if time.Since(began) < 30*time.Millisecond {
		t.Error("a page cost nothing")
	}
	refused(t, api.Refunds.List(nil).Err(), 503, "")
	must(t, api.Refunds.List(nil).Err())
}

func TestAnswersThatBreakOffOrAreRewritten(t *testing.T) {
	t.Parallel()
	s, _ := start(t, Config{})
	must(t, s.Session("cs_1", nil, nil))
	ask := func(patience time.Duration) (string, error) {
		t.Helper()
		req, err := http.NewRequest(http.MethodGet, s.URL()+"/v1/checkout/sessions/cs_1", http.NoBody)
		must(t, err)
		req.Header.Set("Authorization", "Bearer "+s.APIKey())
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
		resp, err := client.Do(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return string(body), err
	}
	s.Fail(1, Fault{Reset: true})
	if body, err := ask(time.Minute); err == nil {
		t.Errorf("a connection that was reset answers %q", body)
	}
	s.Fail(1, Fault{Stall: true})
	if body, err := ask(300 * time.Millisecond); err == nil || body == "" {
		t.Errorf("an answer that stalls came as %q, error %v", body, err)
	}
	s.Fail(1, Fault{Rewrite: func(body []byte) []byte { return body[:1] }})
	if body, err := ask(time.Minute); body != "{" || err != nil {
		t.Errorf("got %q, error %v", body, err)
	}
}
