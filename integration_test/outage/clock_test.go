package outage_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/keytill/keytill/adapter"
	"github.com/keytill/keytill/internal/pgtest"
)

// A wrongClock is that of keytill's machine, which is off by an hour or a day at times. Stripe's and the database's are
// right.
type wrongClock struct {
	mu  sync.Mutex
	off time.Duration
}

func (c *wrongClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.off)
}

func (c *wrongClock) jump(off time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off = off
}

// inProcess is a keytill in this process, with a clock of its own.
func (s *shop) inProcess(clock *wrongClock) (front string, shop *adapter.Shop, stop func()) {
	s.t.Helper()
	config := adapter.Config{
		Pool: pgtest.Pool(s.t, s.url), Keyset: s.keyset, Now: clock.now, Logger: slog.New(slog.DiscardHandler),
		Stripe:    adapter.Stripe{APIKey: s.stripe.APIKey(), WebhookSecrets: s.stripe.Secrets(), URL: s.stripe.URL()},
		Mail:      adapter.Mail{URL: s.mail.URL(), From: "Shop <shop@example.com>"},
		Hook:      adapter.Hook{URL: s.hook.URL(), Secrets: []string{s.hook.Secret()}, WithKeys: true},
		Reconcile: adapter.Reconcile{Every: -1},
	}
	shop, err := adapter.New(s.t.Context(), config)
	s.must(err)
	server := httptest.NewServer(shop.Handler())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- shop.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		server.Close()
		cancel()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
	})
	s.t.Cleanup(stop)
	return server.URL, shop, stop
}

// jumps are how wrong the clock is, one after the other: forward and back by less and by more than Stripe's signatures, a
// reservation, a job's rescue or the term of the queue's leader last.
var jumps = []time.Duration{4 * time.Minute, -4 * time.Minute, 3 * time.Hour, 0, -5 * time.Hour, 0, 50 * time.Hour, -50 * time.Hour, 0}

// While the clock is far off, no event is taken: its signature is too old, or not yet made. What a thank-you page asks for
// is settled all the same. Once the clock is right again, all is as if it always had been, and what was begun under another
// time does not wait for that time to come.
func TestClockThatJumpsLosesNothing(t *testing.T) {
	t.Parallel()
	s := open(t, pgtest.NewURL(t), firstKeys)
	clock := &wrongClock{}
	front, keytill, stop := s.inProcess(clock)
	c := s.gather(firstKeys, 16)
	c.goHome() // it only keeps the books here
	s.must(s.cart(keytill, "cart", 5))
	for n := range length(1, 10) * len(jumps) {
		off := jumps[n%len(jumps)]
		clock.jump(off)
		var sold []*sale
		for range 4 {
			sold = append(sold, c.sellOne(t))
		}
		for _, one := range sold {
			for _, event := range c.tell(one) {
				c.deliverUnder(front, debt{event, one}, off)
			}
		}
		order, err := keytill.Settle(t.Context(), sold[0].id)
		if err != nil || order.ID != sold[0].id {
			t.Fatalf("with a clock that is %v off: settle %s: %v", off, sold[0].id, err)
		}
		c.shown[sold[0].id] = true
		c.hold(time.Minute)
		// A cart that comes now is held, whatever the time is.
		s.must(s.cart(keytill, fmt.Sprintf("cart%d", n), 1))
	}
	clock.jump(0)
	for _, d := range c.owed {
		c.deliverUnder(front, d, 0)
	}
	c.owed = nil
	// No hurry here: what is due by the right clock is due.
	all := c.everything()
	s.await(judgePatience, "all sales have their keys", func(ctx context.Context) (bool, error) {
		done, err := c.unitsOf(ctx, `state = 'fulfilled'`)
		return len(done) == len(all), err
	})
	stop()
	c.judge(s.url, 0)
}

// sellOne makes one sale.
func (c *crowd) sellOne(t testing.TB) *sale {
	t.Helper()
	s := c.sell()
	if s == nil {
		t.Fatal("there is nothing left to sell")
	}
	return s
}

// tolerance is Stripe's, between the signature and the clock.
const tolerance = 5 * time.Minute

// deliverUnder sends an event to a keytill whose clock is off. It must take it if the signature can be believed, and may
// not otherwise: then it is owed.
func (c *crowd) deliverUnder(front string, d debt, off time.Duration) {
	c.t.Helper()
	status, body, err := c.stripe.Deliver(c.t.Context(), front+webhookPath, d.event)
	c.must(err)
	want := http.StatusOK
	if off.Abs() > tolerance {
		want = http.StatusBadRequest
	}
	switch {
	case status != want:
		c.t.Errorf("with a clock that is %v off, an event is answered %d %s, want %d", off, status, body, want)
	case status == http.StatusOK:
		c.answered(d, status, string(body))
	default:
		c.owed = append(c.owed, d)
	}
}

// cart reserves keys for a cart.
func (s *shop) cart(keytill *adapter.Shop, ref string, keys int) error {
	held, err := keytill.Reserve(s.t.Context(), adapter.Reservation{Ref: ref, Lines: []adapter.ReservationLine{{SKU: sku, Quantity: keys}}})
	if err == nil && held.Ref != ref {
		err = fmt.Errorf("the hold is of %q", held.Ref)
	}
	return err
}
