package integration_test

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/keytill/keytill/internal/stripefake"
)

// A sale is one payment as a test has made it at Stripe. What happens to it is done to the fake and noted here, and the
// oracle knows of it what is noted here and nothing else.
type sale struct {
	stripe *stripefake.Server
	id     string // what its ids share: cs_ID, pi_ID, ch_ID

	session  bool // else a PaymentIntent without one
	complete bool // the session
	expired  bool
	free     bool
	foreign  bool   // the buyer saw another currency than the one that is settled
	status   string // of the PaymentIntent; empty: there is none
	asked    int64  // in the PaymentIntent's currency, by the session where it knows
	received int64
	lines    []saleLine

	refunds  []*saleRefund
	disputes []*saleDispute
	warned   bool
	review   string // none, open, closed

	clock int64 // seconds; Stripe's resolution, and nothing of one sale happens in the same one
}

type saleLine struct {
	id, price, product, sku string
	quantity, each          int64 // each: the price of one
	unpriced                bool
	perUnit                 int64 // keys; 0: none
}

type saleRefund struct {
	id, status, lines string
	amount            int64
	answered          bool // by a person
	answer            string
}

type saleDispute struct{ id, status string }

// An occurrence is what Stripe sends an event about.
type occurrence struct{ kind, id string }

func (s *sale) cs() string { return "cs_" + s.id }
func (s *sale) pi() string { return "pi_" + s.id }
func (s *sale) ch() string { return "ch_" + s.id }

// order is what keytill calls it.
func (s *sale) order() string {
	if s.session {
		return s.cs()
	}
	return s.pi()
}

// refs are ids that lead to it.
func (s *sale) refs() []string {
	refs := []string{s.order()}
	if s.status != "" {
		refs = append(refs, s.pi())
	}
	if s.charged() {
		refs = append(refs, s.ch())
	}
	for _, r := range s.refunds {
		refs = append(refs, r.id)
	}
	for _, d := range s.disputes {
		refs = append(refs, d.id)
	}
	return refs
}

// charged reports whether there is a charge that can be refunded, disputed, reviewed.
func (s *sale) charged() bool { return s.status == "succeeded" || s.status == "requires_capture" }

func (s *sale) total() (sum int64) {
	for _, l := range s.lines {
		sum += l.quantity * l.each
	}
	return sum
}

// left is what can still be refunded.
func (s *sale) left() int64 {
	left := s.received
	for _, r := range s.refunds {
		if r.status != "failed" && r.status != "canceled" {
			left -= r.amount
		}
	}
	return left
}

// tick is the next second.
func (s *sale) tick() string {
	s.clock++
	return strconv.FormatInt(s.clock, 10)
}

// place makes it at Stripe.
func (s *sale) place() ([]occurrence, error) {
	created := s.tick()
	if !s.session {
		var parts []string
		for _, l := range s.lines {
			parts = append(parts, fmt.Sprintf("%s:%d", l.price, l.quantity))
		}
		err := s.stripe.Intent(s.pi(), stripefake.Fields{"amount": strconv.FormatInt(s.asked, 10), "status": s.status, "created": created,
			"metadata.keytill_lines": strings.Join(parts, ",")})
		return s.paidOccurrences(), err
	}
	var items []stripefake.Item
	for _, l := range s.lines {
		items = append(items, stripefake.Item{Price: l.price, Quantity: l.quantity, Amount: l.each, Line: l.id})
	}
	f := stripefake.Fields{"created": created}
	switch {
	case !s.complete:
		f["status"] = "open"
	case s.free:
		f["payment_status"] = "no_payment_required"
	case s.status != "succeeded":
		f["payment_status"], f["intent.status"] = "unpaid", s.status
	}
	if s.foreign {
		f["currency"] = "jpy"
		f["intent.currency"], f["intent.amount"] = "usd", strconv.FormatInt(s.asked, 10)
	}
	if err := s.stripe.Session(s.cs(), items, f); err != nil || !s.complete {
		return nil, err
	}
	return append([]occurrence{{"checkout.session.completed", s.cs()}}, s.paidOccurrences()...), nil
}

func (s *sale) paidOccurrences() []occurrence {
	if s.status == "succeeded" {
		return []occurrence{{"payment_intent.succeeded", s.pi()}}
	}
	return nil
}

// finish has the buyer of an open session pay.
func (s *sale) finish() ([]occurrence, error) {
	s.complete = true
	err := s.stripe.Complete(s.cs(), nil)
	if s.free {
		return []occurrence{{"checkout.session.completed", s.cs()}}, err
	}
	s.status, s.received = "succeeded", s.asked
	return []occurrence{{"checkout.session.completed", s.cs()}, {"payment_intent.succeeded", s.pi()}}, err
}

// expire ends an open session.
func (s *sale) expire() ([]occurrence, error) {
	s.expired = true
	return []occurrence{{"checkout.session.expired", s.cs()}}, s.stripe.Set(s.cs(), stripefake.Fields{"status": "expired"})
}

// receive has the money come, or so much of what was authorized be captured.
func (s *sale) receive(amount int64) ([]occurrence, error) {
	captured := s.status == "requires_capture"
	s.status, s.received = "succeeded", amount
	if err := s.stripe.Set(s.pi(), stripefake.Fields{"status": "succeeded", "amount_received": strconv.FormatInt(amount, 10)}); err != nil {
		return nil, err
	}
	happened := []occurrence{{"payment_intent.succeeded", s.pi()}}
	if captured {
		happened = append(happened, occurrence{"charge.captured", s.ch()})
	}
	if !s.session {
		return happened, nil
	}
	if !captured {
		happened = append(happened, occurrence{"checkout.session.async_payment_succeeded", s.cs()})
	}
	return happened, s.stripe.Set(s.cs(), stripefake.Fields{"payment_status": "paid"})
}

// fail has a bank debit or a voucher come to nothing.
func (s *sale) fail() ([]occurrence, error) {
	s.status = "requires_payment_method"
	happened := []occurrence{{"payment_intent.payment_failed", s.pi()}}
	if s.session {
		happened = append(happened, occurrence{"checkout.session.async_payment_failed", s.cs()})
	}
	return happened, s.stripe.Set(s.pi(), stripefake.Fields{"status": s.status})
}

// cancel gives back what was authorized.
func (s *sale) cancel() ([]occurrence, error) {
	s.status = "canceled"
	return []occurrence{{"payment_intent.canceled", s.pi()}}, s.stripe.Set(s.pi(), stripefake.Fields{"status": s.status})
}

func (s *sale) refund(amount int64, status, lines string) ([]occurrence, error) {
	r := &saleRefund{id: fmt.Sprintf("re_%s_%d", s.id, len(s.refunds)), status: status, amount: amount, lines: lines}
	s.refunds = append(s.refunds, r)
	f := stripefake.Fields{"amount": strconv.FormatInt(amount, 10), "status": status, "created": s.tick()}
	if lines != "" {
		f["metadata.keytill_lines"] = lines
	}
	return []occurrence{{"refund.created", r.id}, {"charge.refunded", s.ch()}}, s.stripe.Refund(r.id, s.pi(), f)
}

func (s *sale) turnRefund(r *saleRefund, status string) ([]occurrence, error) {
	r.status = status
	kind := "refund.updated"
	if status == "failed" {
		kind = "refund.failed"
	}
	return []occurrence{{kind, r.id}}, s.stripe.Set(r.id, stripefake.Fields{"status": status})
}

func (s *sale) dispute(status string) ([]occurrence, error) {
	d := &saleDispute{id: fmt.Sprintf("dp_%s_%d", s.id, len(s.disputes)), status: status}
	s.disputes = append(s.disputes, d)
	f := stripefake.Fields{"status": status, "created": s.tick(), "amount": strconv.FormatInt(max(s.received, 1), 10)}
	return []occurrence{{"charge.dispute.created", d.id}}, s.stripe.Dispute(d.id, s.pi(), f)
}

func (s *sale) turnDispute(d *saleDispute, status string) ([]occurrence, error) {
	d.status = status
	kind := "charge.dispute.updated"
	if status == "won" || status == "lost" || status == "warning_closed" {
		kind = "charge.dispute.closed"
	}
	return []occurrence{{kind, d.id}}, s.stripe.Set(d.id, stripefake.Fields{"status": status})
}

func (s *sale) warn() ([]occurrence, error) {
	s.warned = true
	id := "issfr_" + s.id
	return []occurrence{{"radar.early_fraud_warning.created", id}}, s.stripe.Warning(id, s.pi(), nil)
}

func (s *sale) openReview() ([]occurrence, error) {
	s.review = "open"
	return []occurrence{{"review.opened", "prv_" + s.id}}, s.stripe.Review("prv_"+s.id, s.pi(), nil)
}

func (s *sale) closeReview() ([]occurrence, error) {
	s.review = "closed"
	return []occurrence{{"review.closed", "prv_" + s.id}}, s.stripe.Set("prv_"+s.id, stripefake.Fields{"open": "false"})
}
