package sweeps_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/keytill/keytill/integration_test/shoptest"
	"github.com/keytill/keytill/internal/stripefake"
)

const (
	day        = 24 * time.Hour
	unitAmount = 1000 // of one unit
)

// A sale is one payment as its buyer, bank and seller make it: what is to happen, and what has. What its units must be
// follows from that alone; the oracle knows nothing of keytill.
type sale struct {
	n        int
	order    string // cs_… or pi_…
	intent   string // empty: free
	quantity int
	foreign  bool // another application's: no order at all

	begun   bool // the buyer has come as far as an order
	paid    bool
	refunds []*saleRefund
	dispute string    // its status; empty: none
	changed time.Time // when something last happened to it
}

type saleRefund struct {
	id     string
	units  int
	status string
}

// units is the oracle: what the order's units must be now.
func (s *sale) units() shoptest.Units {
	switch {
	case s.foreign || !s.begun:
		return shoptest.Units{}
	case !s.paid:
		return shoptest.Units{Pending: s.quantity}
	}
	var u shoptest.Units
	for _, r := range s.refunds {
		switch r.status {
		case "succeeded":
			u.Revoked += r.units
		case "pending":
			u.Suspended += r.units
		}
	}
	rest := s.quantity - u.Revoked - u.Suspended
	switch s.dispute {
	case "needs_response", "under_review":
		u.Suspended += rest
	case "lost":
		u.Revoked, u.Suspended = s.quantity, 0
	default:
		u.Fulfilled = rest
	}
	return u
}

// A change is something that happens to a sale at Stripe, and the events that tell of it.
type change struct {
	after time.Duration // since the sale's begin
	do    func() error
	tells [][2]string // type and object
}

// plan draws what will happen to a sale.
func (s *sale) plan(random *rand.Rand, fake *stripefake.Server) []change {
	s.quantity = 1 + random.IntN(3)
	switch kind := random.Float64(); {
	case kind < 0.55:
		return s.later(random, fake, s.card(fake))
	case kind < 0.63:
		return []change{s.free(fake)}
	case kind < 0.75:
		return s.later(random, fake, s.alone(fake))
	case kind < 0.85:
		return s.bank(random, fake)
	case kind < 0.91:
		return s.byHand(random, fake)
	case kind < 0.96:
		return s.cart(fake)
	default:
		return []change{s.other(fake)}
	}
}

func (s *sale) names(session bool) {
	s.intent = fmt.Sprintf("pi_%d", s.n)
	s.order = s.intent
	if session {
		s.order = fmt.Sprintf("cs_%d", s.n)
	}
}

func (s *sale) items() []stripefake.Item {
	return []stripefake.Item{{Price: "price_game", Quantity: int64(s.quantity), Amount: unitAmount}}
}

func (s *sale) card(fake *stripefake.Server) change {
	s.names(true)
	return change{do: func() error {
		s.begun, s.paid = true, true
		return fake.Session(s.order, s.items(), nil)
	}, tells: [][2]string{{"payment_intent.succeeded", s.intent}, {"checkout.session.completed", s.order}}}
}

func (s *sale) free(fake *stripefake.Server) change {
	s.names(true)
	s.intent = ""
	return change{do: func() error {
		s.begun, s.paid = true, true
		items := s.items()
		items[0].Amount = 0
		return fake.Session(s.order, items, stripefake.Fields{"payment_status": "no_payment_required"})
	}, tells: [][2]string{{"checkout.session.completed", s.order}}}
}

func (s *sale) alone(fake *stripefake.Server) change {
	s.names(false)
	return change{do: func() error {
		s.begun, s.paid = true, true
		return fake.Intent(s.intent, stripefake.Fields{"amount": strconv.Itoa(s.quantity * unitAmount),
			"metadata.keytill_lines": "price_game:" + strconv.Itoa(s.quantity)})
	}, tells: [][2]string{{"payment_intent.succeeded", s.intent}}}
}

func (s *sale) other(fake *stripefake.Server) change {
	s.names(false)
	s.foreign = true
	return change{do: func() error {
		return fake.Intent(s.intent, stripefake.Fields{"amount": "4900"})
	}, tells: [][2]string{{"payment_intent.succeeded", s.intent}}}
}

// bank is a debit that takes up to two weeks, and may fail.
func (s *sale) bank(random *rand.Rand, fake *stripefake.Server) []change {
	s.names(true)
	begin := change{do: func() error {
		s.begun = true
		return fake.Session(s.order, s.items(), stripefake.Fields{"payment_status": "unpaid"})
	}, tells: [][2]string{{"checkout.session.completed", s.order}}}
	after := 12*time.Hour + time.Duration(random.Int64N(int64(13*day+12*time.Hour)))
	if random.Float64() < 0.1 {
		return []change{begin, {after: after, do: func() error {
			return fake.Set(s.intent, stripefake.Fields{"status": "requires_payment_method"})
		}, tells: [][2]string{{"checkout.session.async_payment_failed", s.order}}}}
	}
	paid := change{after: after, do: func() error {
		s.paid = true
		if err := fake.Set(s.intent, stripefake.Fields{"status": "succeeded"}); err != nil {
			return err
		}
		return fake.Set(s.order, stripefake.Fields{"payment_status": "paid"})
	}, tells: [][2]string{{"payment_intent.succeeded", s.intent}, {"checkout.session.async_payment_succeeded", s.order}}}
	return append([]change{begin}, s.later(random, fake, paid)...)
}

// byHand is captured some days later, or let go. Its session says unpaid for good.
func (s *sale) byHand(random *rand.Rand, fake *stripefake.Server) []change {
	s.names(true)
	begin := change{do: func() error {
		s.begun = true
		return fake.Session(s.order, s.items(), stripefake.Fields{"payment_status": "unpaid", "intent.status": "requires_capture"})
	}, tells: [][2]string{{"checkout.session.completed", s.order}}}
	after := time.Hour + time.Duration(random.Int64N(int64(6*day)))
	if random.Float64() < 0.2 {
		return []change{begin, {after: after, do: func() error {
			return fake.Set(s.intent, stripefake.Fields{"status": "canceled"})
		}, tells: [][2]string{{"payment_intent.canceled", s.intent}}}}
	}
	captured := change{after: after, do: func() error {
		s.paid = true
		return fake.Set(s.intent, stripefake.Fields{"status": "succeeded"})
	}, tells: [][2]string{{"charge.captured", fmt.Sprintf("ch_%d", s.n)}, {"payment_intent.succeeded", s.intent}}}
	return append([]change{begin}, s.later(random, fake, captured)...)
}

// cart is left, and expires.
func (s *sale) cart(fake *stripefake.Server) []change {
	s.names(true)
	return []change{
		{do: func() error { return fake.Session(s.order, s.items(), stripefake.Fields{"status": "open"}) }},
		{after: day, do: func() error { return fake.Set(s.order, stripefake.Fields{"status": "expired"}) },
			tells: [][2]string{{"checkout.session.expired", s.order}}},
	}
}

// later draws what becomes of a payment: mostly nothing, else a refund that may fail, or a dispute.
func (s *sale) later(random *rand.Rand, fake *stripefake.Server, paid change) []change {
	changes := []change{paid}
	days := func(from, to float64) time.Duration {
		return time.Duration((from + random.Float64()*(to-from)) * float64(day))
	}
	at := paid.after
	switch what := random.Float64(); {
	case what < 0.06:
		at += days(0.1, 60)
		r := &saleRefund{id: fmt.Sprintf("re_%d", s.n), units: 1 + random.IntN(s.quantity), status: "succeeded"}
		slow := random.Float64() < 0.3
		if slow {
			r.status = "pending"
		}
		first := r.status
		changes = append(changes, change{after: at, do: func() error {
			s.refunds = append(s.refunds, r)
			return fake.Refund(r.id, s.intent, stripefake.Fields{"amount": strconv.Itoa(r.units * unitAmount), "status": first})
		}, tells: [][2]string{{"charge.refunded", fmt.Sprintf("ch_%d", s.n)}, {"refund.created", r.id}}})
		set := func(status string, after time.Duration, event string) {
			at += after
			changes = append(changes, change{after: at, do: func() error {
				r.status = status
				return fake.Set(r.id, stripefake.Fields{"status": status})
			}, tells: [][2]string{{event, r.id}}})
		}
		if slow {
			set("succeeded", days(1, 12), "refund.updated")
		}
		if random.Float64() < 0.2 {
			set("failed", days(2, 20), "refund.failed")
		}
	case what < 0.09:
		at += days(1, 90)
		id := fmt.Sprintf("dp_%d", s.n)
		changes = append(changes, change{after: at, do: func() error {
			s.dispute = "needs_response"
			return fake.Dispute(id, s.intent, stripefake.Fields{"status": s.dispute})
		}, tells: [][2]string{{"charge.dispute.created", id}}})
		end := []string{"won", "lost"}[random.IntN(2)]
		for _, status := range []string{"under_review", end} {
			at += days(1, 40)
			changes = append(changes, change{after: at, do: func() error {
				s.dispute = status
				return fake.Set(id, stripefake.Fields{"status": status})
			}, tells: [][2]string{{"charge.dispute.updated", id}}})
		}
	}
	return changes
}
