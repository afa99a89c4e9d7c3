package soak_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/keytill/keytill/internal/stripefake"
)

const (
	unitAmount = 1000 // of one unit
	lostShare  = 0.04 // of the events, which only a sweep can make good
)

// units counts units by state.
type units struct{ pending, fulfilled, suspended, revoked int }

// A sale is one payment from its begin to its end, and what its units must be follows from that alone.
type sale struct {
	n        int
	random   *rand.Rand
	session  string
	intent   string
	email    string
	quantity int

	mu       sync.Mutex
	begun    bool
	paid     bool
	refunded int    // units
	dispute  string // its status
}

func newSale(n int, seed uint64) *sale {
	s := &sale{n: n, random: rand.New(rand.NewPCG(seed, uint64(n))), session: fmt.Sprintf("cs_%d", n), intent: fmt.Sprintf("pi_%d", n),
		email: fmt.Sprintf("buyer%d@example.com", n)}
	s.quantity = 1 + s.random.IntN(3)
	return s
}

// want is what the sale's units must be in the end.
func (s *sale) want() units {
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := s.quantity - s.refunded
	switch {
	case !s.begun:
		return units{}
	case !s.paid:
		return units{pending: s.quantity}
	case s.dispute == "lost":
		return units{revoked: s.quantity}
	case s.dispute == "needs_response" || s.dispute == "under_review":
		return units{revoked: s.refunded, suspended: rest}
	default:
		return units{revoked: s.refunded, fulfilled: rest}
	}
}

// live plays the sale: it is paid at once or after a while, and some are refunded in part or whole, or disputed.
func (s *sale) live(ctx context.Context, d *day) error {
	fields := stripefake.Fields{"customer_details.email": s.email}
	debit := s.random.Float64() < 0.1
	if debit {
		fields["payment_status"] = "unpaid"
	}
	items := []stripefake.Item{{Price: "price_game", Quantity: int64(s.quantity), Amount: unitAmount}}
	if err := s.change(func() error { s.begun, s.paid = true, !debit; return d.stripe.Session(s.session, items, fields) }); err != nil {
		return err
	}
	d.tell(ctx, s.random, "checkout.session.completed", s.session)
	if debit {
		if s.pause(ctx); ctx.Err() != nil {
			return nil
		}
		err := s.change(func() error {
			s.paid = true
			if err := d.stripe.Set(s.intent, stripefake.Fields{"status": "succeeded"}); err != nil {
				return err
			}
			return d.stripe.Set(s.session, stripefake.Fields{"payment_status": "paid"})
		})
		if err != nil {
			return err
		}
		d.tell(ctx, s.random, "checkout.session.async_payment_succeeded", s.session)
	}
	d.tell(ctx, s.random, "payment_intent.succeeded", s.intent)
	if s.pause(ctx); ctx.Err() != nil {
		return nil
	}
	switch what := s.random.Float64(); {
	case what < 0.12:
		return s.refund(ctx, d)
	case what < 0.18:
		return s.fight(ctx, d)
	}
	return nil
}

// refund gives some of the money back, or all; now and then the bank refuses, and the units come back.
func (s *sale) refund(ctx context.Context, d *day) error {
	id, n := fmt.Sprintf("re_%d", s.n), 1+s.random.IntN(s.quantity)
	err := s.change(func() error {
		s.refunded = n
		return d.stripe.Refund(id, s.intent, stripefake.Fields{"amount": strconv.Itoa(n * unitAmount)})
	})
	if err != nil {
		return err
	}
	d.tell(ctx, s.random, "refund.created", id)
	if s.random.Float64() > 0.3 {
		return nil
	}
	if s.pause(ctx); ctx.Err() != nil {
		return nil
	}
	if err := s.change(func() error { s.refunded = 0; return d.stripe.Set(id, stripefake.Fields{"status": "failed"}) }); err != nil {
		return err
	}
	d.tell(ctx, s.random, "refund.failed", id)
	return nil
}

// fight is a dispute, and its end.
func (s *sale) fight(ctx context.Context, d *day) error {
	id := fmt.Sprintf("dp_%d", s.n)
	err := s.change(func() error {
		s.dispute = "needs_response"
		return d.stripe.Dispute(id, s.intent, stripefake.Fields{"status": s.dispute})
	})
	if err != nil {
		return err
	}
	d.tell(ctx, s.random, "charge.dispute.created", id)
	if s.pause(ctx); ctx.Err() != nil {
		return nil
	}
	end := []string{"won", "lost"}[s.random.IntN(2)]
	if err := s.change(func() error { s.dispute = end; return d.stripe.Set(id, stripefake.Fields{"status": end}) }); err != nil {
		return err
	}
	d.tell(ctx, s.random, "charge.dispute.closed", id)
	return nil
}

func (s *sale) change(do func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return do()
}

// pause is what a bank or a buyer takes: seconds here.
func (s *sale) pause(ctx context.Context) {
	wait(ctx, 300*time.Millisecond+time.Duration(s.random.ExpFloat64()*float64(2*time.Second)))
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
