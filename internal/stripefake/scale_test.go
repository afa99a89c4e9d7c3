package stripefake

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v76"
)

// request is a call that goes past the network.
func request(t testing.TB, s *Server, path string) *http.Request {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Header.Set("Authorization", "Bearer "+s.APIKey())
	return r
}

// TestWalkOfManyIsNotQuadratic reads 100,000 payments page by page. Were each
// page to look at all of them, that would be 10^8 looks; it takes minutes then.
func TestWalkOfManyIsNotQuadratic(t *testing.T) {
	n := 100_000
	if testing.Short() || raceEnabled {
		n = 10_000
	}
	c := newClock()
	s := New(Config{Now: c.now})
	items := []Item{{Price: "price_game", Quantity: 1, Amount: 1000}}
	for i := range n {
		must(t, s.Session(fmt.Sprintf("cs_%d", i), items, nil))
		c.move(time.Second)
	}
	started := time.Now()
	seen, last := 0, ""
	for more := true; more; {
		path := fmt.Sprintf("/v1/checkout/sessions?limit=100&created[gte]=%d", newClock().t.Unix())
		if last != "" {
			path += "&starting_after=" + last
		}
		a, _, _ := s.accept(request(t, s, path), nil, nil)
		data := a.value["data"].([]any)
		last = data[len(data)-1].(map[string]any)["id"].(string)
		seen += len(data)
		more = a.value["has_more"].(bool)
	}
	if took := time.Since(started); seen != n || took > 30*time.Second {
		t.Errorf("%d of %d in %s", seen, n, took)
	}
}

func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	s, api := start(t, Config{})
	hook := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(hook.Close)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 10 {
				n := fmt.Sprintf("%d_%d", w, i)
				if err := s.Session("cs_"+n, []Item{{Price: "price_game"}, {Price: "price_" + n, Amount: 5}}, Fields{"metadata.n": n}); err != nil {
					t.Error(err)
					return
				}
				ev, err := s.Event("checkout.session.completed", "cs_"+n, EventOptions{})
				if err == nil {
					_, _, err = s.Deliver(context.Background(), hook.URL, ev)
				}
				if err == nil {
					err = s.Refund("re_"+n, "pi_"+n, Fields{"amount": "3"})
				}
				if err == nil {
					err = s.Set("cs_"+n, Fields{"customer_details.email": n + "@example.com", "created": "1700000000"})
				}
				if err != nil {
					t.Error(err)
				}
				p := &stripe.CheckoutSessionListParams{}
				p.AddExpand("data.payment_intent.latest_charge")
				p.AddExpand("data.line_items")
				p.Single = true
				if err := api.CheckoutSessions.List(p).Err(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := s.Calls("/v1/checkout"); got != 80 {
		t.Errorf("%d calls", got)
	}
}

func BenchmarkSession(b *testing.B) {
	b.ReportAllocs()
	s := New(Config{})
	items := []Item{{Price: "price_game", Quantity: 1, Amount: 1000}}
	for i := range b.N {
		if err := s.Session(fmt.Sprintf("cs_%d", i), items, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRetrieve(b *testing.B) {
	s := New(Config{})
	if err := s.Session("cs_1", []Item{{Price: "price_game"}}, nil); err != nil {
		b.Fatal(err)
	}
	r := request(b, s, "/v1/checkout/sessions/cs_1?expand[]=payment_intent.latest_charge")
	for b.Loop() {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
	}
}
