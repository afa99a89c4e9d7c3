package demo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/keytill/keytill/internal/stripefake"
)

// What is sold. Amounts are minor units.
const (
	sku      = "nebula"
	price    = "price_nebula"
	amount   = 1900
	copies   = 3  // how often each event is delivered
	inFlight = 48 // deliveries at once
)

// purchase is what a buyer does at Stripe, and the events that Stripe makes of it.
type purchase struct {
	session, intent, charge, email string
	quantity                       int

	paid      []stripefake.Event // about the payment
	completed stripefake.Event   // about the session
}

func purchaseOf(n, quantity int) purchase {
	return purchase{session: fmt.Sprintf("cs_demo_%05d", n), intent: fmt.Sprintf("pi_demo_%05d", n),
		charge: fmt.Sprintf("ch_demo_%05d", n), email: fmt.Sprintf("buyer-%05d@example.com", n), quantity: quantity}
}

// buy makes a paid session at Stripe and its events, which nobody has been sent yet.
func (s *story) buy(n, quantity int) (purchase, error) {
	p := purchaseOf(n, quantity)
	s.bought = append(s.bought, p)
	err := s.stripe.Session(p.session, []stripefake.Item{{Price: price, Quantity: int64(quantity), Amount: amount}},
		stripefake.Fields{"customer_details.email": p.email})
	if err != nil {
		return p, err
	}
	return p, nil
}

// events makes the events of a purchase, with the objects as they are now.
func (s *story) events(p purchase) (purchase, error) {
	for _, e := range []struct{ kind, about string }{
		{"charge.succeeded", p.charge}, {"payment_intent.succeeded", p.intent},
	} {
		ev, err := s.stripe.Event(e.kind, e.about, stripefake.EventOptions{})
		if err != nil {
			return p, err
		}
		p.paid = append(p.paid, ev)
	}
	var err error
	p.completed, err = s.stripe.Event("checkout.session.completed", p.session, stripefake.EventOptions{})
	return p, err
}

// lose makes the same events, which Stripe has and nobody is ever sent.
func (s *story) lose(p purchase) error {
	for _, e := range []struct{ kind, about string }{
		{"charge.succeeded", p.charge}, {"payment_intent.succeeded", p.intent}, {"checkout.session.completed", p.session},
	} {
		if _, err := s.stripe.Happened(e.kind, e.about); err != nil {
			return err
		}
	}
	return nil
}

// postman delivers events as Stripe does on a bad day: each one several times, and all at once.
type postman struct {
	stage *stage
	slots chan struct{}

	mu     sync.Mutex
	events map[string]bool
	posted int
}

func newPostman(st *stage) *postman {
	return &postman{stage: st, slots: make(chan struct{}, inFlight), events: make(map[string]bool)}
}

// deliver posts all copies of the events at once, shuffled, and returns when each is answered.
func (p *postman) deliver(ctx context.Context, events ...stripefake.Event) error {
	events = slices.Repeat(events, copies)
	rand.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
	group, ctx := errgroup.WithContext(ctx)
	for _, ev := range events {
		group.Go(func() error { return p.post(ctx, ev) })
	}
	return group.Wait()
}

func (p *postman) post(ctx context.Context, ev stripefake.Event) error {
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	p.mu.Lock()
	p.events[ev.ID] = true
	p.posted++
	p.mu.Unlock()
	status, _, err := p.stage.stripe.Deliver(ctx, p.stage.webhook, ev)
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return fmt.Errorf("the webhook answered %s with %d", ev.Type, status)
	}
	return nil
}

// sent is how many events were delivered how many times in all.
func (p *postman) sent() (events, posted int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.events), p.posted
}
