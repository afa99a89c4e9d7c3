package integration_test

import (
	"fmt"

	"github.com/keytill/keytill/internal/stripefake"
)

// dice choose a number below n. What it is for is said for who reads a failure.
type dice func(n int, what string) int

func pick[T any](roll dice, what string, from ...T) T { return from[roll(len(from), what)] }

// An offer is what a price hands out.
type offer struct {
	price, sku string
	perUnit    int64 // 0: no keys here, or nobody has said
}

// draw makes up a sale of what is offered. It is at Stripe once placed.
func draw(roll dice, stripe *stripefake.Server, id string, offers []offer) *sale {
	s := &sale{stripe: stripe, id: id, session: true, complete: true, status: "succeeded", clock: 1_700_000_000}
	shape := pick(roll, "shape", "paid", "paid", "paid", "paid", "open", "unpaid", "authorized", "bare", "bare", "foreign", "free")
	for i := range 1 + roll(3, "lines") {
		o := pick(roll, "offer", offers...)
		l := saleLine{id: fmt.Sprintf("li_%s_%d", id, i+1), price: o.price, product: "prod_" + o.price[len("price_"):], sku: o.sku,
			quantity: int64(1 + roll(3, "quantity")), each: pick(roll, "price of one", int64(100), 200, 300, 500, 700, 0), perUnit: o.perUnit}
		if shape == "free" {
			l.each = 0
		}
		s.lines = append(s.lines, l)
	}
	s.asked = s.total()
	switch {
	case shape == "bare":
		s.bare(pick(roll, "status", "succeeded", "succeeded", "processing", "requires_capture"))
	case s.asked == 0:
		s.free, s.status = true, ""
		s.complete = shape != "open"
	case shape == "open":
		s.complete, s.status = false, ""
	case shape == "unpaid":
		s.status = "processing"
	case shape == "authorized":
		s.status = "requires_capture"
	case shape == "foreign":
		s.foreign, s.asked = true, s.asked*3/2
	}
	if s.status == "succeeded" {
		s.received = s.asked
	}
	return s
}

// bare makes it a PaymentIntent whose metadata says what is sold: of one line the amount is that line's, of several it is
// nobody's in particular.
func (s *sale) bare(status string) {
	s.session, s.complete, s.status = false, false, status
	s.asked = max(s.asked, 100)
	for i := range s.lines {
		l := &s.lines[i]
		l.id, l.product, l.unpriced = fmt.Sprintf("line_%d", i+1), "", len(s.lines) > 1
	}
	if len(s.lines) == 1 {
		l := &s.lines[0]
		l.each = max(l.each, 100)
		s.asked = l.quantity * l.each
	}
}

// happen has something happen to the sale that may happen to it now; it says what, and nothing if nothing may.
func (s *sale) happen(roll dice) (what string, happened []occurrence, err error) {
	type turn struct {
		what string
		do   func() ([]occurrence, error)
	}
	var turns []turn
	may := func(when bool, times int, what string, do func() ([]occurrence, error)) {
		for range times {
			if when {
				turns = append(turns, turn{what, do})
			}
		}
	}
	open := s.session && !s.complete && !s.expired
	may(open, 2, "the buyer pays", s.finish)
	may(open, 1, "the session expires", s.expire)
	may(s.status == "processing", 3, "the money comes", func() ([]occurrence, error) { return s.receive(s.asked) })
	may(s.status == "processing", 1, "the debit fails", s.fail)
	may(s.status == "requires_capture", 2, "capture", func() ([]occurrence, error) { return s.receive(s.asked) })
	may(s.status == "requires_capture", 1, "capture a part", func() ([]occurrence, error) {
		return s.receive(1 + int64(roll(int(s.asked), "captured")))
	})
	may(s.status == "requires_capture", 1, "the authorization is given up", s.cancel)
	paid := s.status == "succeeded"
	may(paid && s.left() > 0 && len(s.refunds) < 5, 4, "refund", func() ([]occurrence, error) {
		return s.refund(s.drawAmount(roll), pick(roll, "status", "succeeded", "succeeded", "pending", "requires_action"), s.drawNames(roll))
	})
	for _, r := range s.refunds {
		may(r.status == "pending" || r.status == "requires_action", 2, "a refund turns", func() ([]occurrence, error) {
			return s.turnRefund(r, pick(roll, "to", "succeeded", "failed", "canceled", "pending", "requires_action"))
		})
		may(r.status == "succeeded", 1, "a refund fails", func() ([]occurrence, error) { return s.turnRefund(r, "failed") })
	}
	status := func() string {
		return pick(roll, "dispute", "needs_response", "needs_response", "under_review", "won", "won", "lost", "warning_needs_response",
			"warning_under_review", "warning_closed", "prevented", "a_new_word")
	}
	may(paid && len(s.disputes) < 2, 2, "dispute", func() ([]occurrence, error) { return s.dispute(status()) })
	for _, d := range s.disputes {
		may(true, 2, "a dispute turns", func() ([]occurrence, error) { return s.turnDispute(d, status()) })
	}
	may(s.charged() && !s.warned, 1, "an early fraud warning", s.warn)
	may(s.charged() && s.review == "", 1, "a review", s.openReview)
	may(s.review == "open", 2, "the review ends", s.closeReview)
	if len(turns) == 0 {
		return "", nil, nil
	}
	t := turns[roll(len(turns), "turn")]
	happened, err = t.do()
	if err != nil {
		err = fmt.Errorf("%s: %w", t.what, err)
	}
	return t.what, happened, err
}

// drawAmount is all that is left, what some units cost, or just some money.
func (s *sale) drawAmount(roll dice) int64 {
	amount := s.left()
	switch roll(4, "kind of amount") {
	case 0:
	case 1:
		amount = 1 + int64(roll(int(s.left()), "amount"))
	default:
		l := pick(roll, "units of", s.lines...)
		if worth := l.each * int64(1+roll(int(l.quantity), "units")); worth > 0 {
			amount = min(amount, worth)
		}
	}
	return amount
}

// drawNames is what a refund's metadata may say of the lines it is for: mostly nothing.
func (s *sale) drawNames(roll dice) string {
	one, other := pick(roll, "line", s.lines...), pick(roll, "other line", s.lines...)
	names := []string{"", "", "", "", "", one.id, fmt.Sprintf("%s:%d", one.id, 1+roll(3, "named")), one.price, one.id + "," + other.id, "typo",
		one.id + ":1,typo", "none"}
	if one.sku != "" {
		names = append(names, one.sku)
	}
	return pick(roll, "names", names...)
}

// drawAnswer is what a person may answer about a refund.
func (s *sale) drawAnswer(roll dice) string {
	one := pick(roll, "line", s.lines...)
	answers := []string{"none", one.id, fmt.Sprintf("%s:%d", one.id, 1+roll(int(one.quantity), "answered")), one.price}
	return answers[roll(len(answers), "answer")]
}

// has reports whether a line has units.
func (l saleLine) has() bool { return l.perUnit > 0 }
