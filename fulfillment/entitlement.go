package fulfillment

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// PaymentState is the money's side of an order.
type PaymentState string

const (
	Pending      PaymentState = "pending"       // not paid yet
	Paid         PaymentState = "paid"          // paid, and nothing of it given back
	PartRefunded PaymentState = "part_refunded" // some of it given back
	Refunded     PaymentState = "refunded"      // all of it given back
	Disputed     PaymentState = "disputed"      // a dispute is open
	Lost         PaymentState = "lost"          // a dispute was lost
	Closed       PaymentState = "closed"        // failed, expired or canceled with nothing paid
)

// Policy is what a merchant may decide about entitlement.
type Policy struct {
	SuspendOnWarning bool // an early fraud warning suspends, instead of only asking a person
	DeliverInReview  bool // an open review does not hold the keys back
}

// An Item of an order is a line with what keytill knows of it.
type Item struct {
	Line
	SKU string // of the pool the line is mapped to, where it is
}

// A Verdict says what an order's units deserve, by line in units of quantity (not keys: a bundle gives several).
type Verdict struct {
	Payment  PaymentState
	Lines    []Share // one for each item, in their order
	Refunded int64   // what was given back for good
	Questions
}

// A Share is what a line's units deserve: exactly one of the four numbers for each.
type Share struct {
	Pending   int64 // nothing yet
	Due       int64 // their keys
	Suspended int64 // no use of their keys for now
	Revoked   int64 // nothing any more
}

func (s Share) quantity() int64 { return s.Pending + s.Due + s.Suspended + s.Revoked }

// Questions are what a person must look at before the order is as it should be.
type Questions []Question

// A Question is a finding about the order: its kind, what it is about, and a sentence.
type Question struct {
	Kind    FindingKind
	Subject string
	Detail  string
}

// ask adds a question in its place, so that the order of Stripe's lists shows nowhere. What comes twice, such as a
// dispute on two pages of a list, is asked once.
func (q *Questions) ask(kind FindingKind, subject, format string, args ...any) {
	asked := Question{kind, subject, fmt.Sprintf(format, args...)}
	i, found := slices.BinarySearchFunc(*q, asked, func(a, b Question) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Subject, b.Subject))
	})
	if !found {
		*q = slices.Insert(*q, i, asked)
	}
}

// Entitle is the rule book: from the truth about a payment to what each unit deserves. It is pure, total and
// deterministic; the order of the lists in the payment does not matter. answers are a person's attributions of refunds,
// by refund id, in the form of a refund's own keytill_lines, or "none" for a refund that takes no key.
func Entitle(p Payment, items []Item, answers map[string]string, policy Policy) Verdict {
	items = sane(items)
	v := Verdict{Payment: Pending, Lines: make([]Share, len(items))}
	if !paid(p, &v.Questions) {
		if closed(p) {
			v.Payment = Closed
		}
		for i, it := range items {
			v.Lines[i].Pending = it.Quantity
		}
		return v
	}

	// What refunds take, for good and for now.
	lost := refundLosses(p, items, answers, &v.Questions)
	for i, it := range items {
		v.Lines[i].Revoked = lost.revoked[i]
		v.Lines[i].Suspended = lost.suspended[i]
		v.Lines[i].Due = it.Quantity - lost.revoked[i] - lost.suspended[i]
	}
	v.Refunded = lost.sum

	// What disputes, warnings and reviews do to the rest: they are about the whole payment.
	stand := standing(p, policy, lost.whole, &v.Questions)
	for i := range v.Lines {
		s := &v.Lines[i]
		switch stand {
		case standLost:
			*s = Share{Revoked: s.Revoked + s.Suspended + s.Due}
		case standDisputed, standHeld:
			s.Suspended, s.Due = s.Suspended+s.Due, 0
		}
	}

	switch {
	case stand == standLost:
		v.Payment = Lost
	case lost.whole:
		v.Payment = Refunded
	case stand == standDisputed:
		v.Payment = Disputed
	case lost.sum > 0:
		v.Payment = PartRefunded
	default:
		v.Payment = Paid
	}
	return v
}

// sane are the items without numbers below zero. Stripe sends none; the arithmetic of shares would multiply them.
func sane(items []Item) []Item {
	items = slices.Clone(items)
	for i := range items {
		items[i].Quantity, items[i].Amount = max(0, items[i].Quantity), max(0, items[i].Amount)
	}
	return items
}

// paid reports whether the order's money came, all of it, whatever became of it since. Neither "unpaid" nor a failed
// first try is final: a bank debit, a voucher, a capture or a second card may still pay.
func paid(p Payment, questions *Questions) bool {
	captured := p.Intent != nil && p.Intent.Status == "succeeded"
	if s := p.Session; s != nil && s.Status == "complete" && s.PaymentStatus == "no_payment_required" {
		return true
	}
	if s := p.Session; !captured && (s == nil || s.Status != "complete" || s.PaymentStatus != "paid") {
		return false
	}
	if p.Intent == nil {
		return true
	}
	// What was captured for too little and has all gone back needs nobody's attention any more: it is a refunded order.
	if total := total(p); p.Intent.Captured < total && !p.allGivenBack() {
		questions.ask(AmountMismatch, p.OrderID(), "%d %s were captured of the order's %d: capture the rest, or refund it",
			p.Intent.Captured, p.Intent.Currency, total)
		return false
	}
	return true
}

// total is what the order asks for, in the PaymentIntent's currency. Where the buyer saw prices in another currency than
// the one that is settled, the session's total says nothing about what must have been captured.
func total(p Payment) int64 {
	if p.Session != nil && p.Session.Currency == p.Intent.Currency {
		return p.Session.Total
	}
	return p.Intent.Amount
}

// closed reports whether a payment has come to its end with nothing paid, as far as Stripe knows today.
func closed(p Payment) bool {
	if p.Intent != nil && p.Intent.Captured > 0 {
		return false
	}
	if p.Session != nil && p.Session.Status == "expired" {
		return true
	}
	if p.Intent == nil {
		return false
	}
	switch p.Intent.Status {
	case "canceled":
		return true
	case "requires_payment_method": // of a session that is complete: its bank debit or voucher failed
		return p.Session != nil && p.Session.Status == "complete"
	default:
		return false
	}
}

// A stand is what disputes, warnings and reviews together say about a payment. The larger one wins.
type stand int

const (
	standClear stand = iota
	standHeld
	standDisputed
	standLost
)

// standing also asks what disputes and warnings leave open. A warning is answered by a refund of the whole or by the
// dispute it warned of, however that ends; an inquiry is not yet one. Stripe's own field actionable also goes with an
// inquiry, so it is not read.
func standing(p Payment, policy Policy, refunded bool, questions *Questions) stand {
	worst, answered := standClear, refunded
	for _, d := range p.Disputes {
		answered = answered || !strings.HasPrefix(d.Status, "warning_")
		switch d.Status {
		case "needs_response", "under_review":
			worst = max(worst, standDisputed)
		case "lost":
			worst = max(worst, standLost)
		case "won", "warning_closed", "prevented":
			// as if there had been none
		case "warning_needs_response", "warning_under_review":
			questions.ask(Inquiry, d.ID, "the bank asks about this payment (%s); answer it in the Stripe dashboard", d.Status)
		default:
			questions.ask(UnknownStatus, d.ID, "dispute %s has the status %q, which keytill does not know", d.ID, d.Status)
		}
	}
	if !answered {
		for _, w := range p.Warnings {
			questions.ask(FraudWarning, w.ID, "the card's issuer reports fraud: refund the payment, or keep it and expect a dispute")
			if policy.SuspendOnWarning {
				worst = max(worst, standHeld)
			}
		}
	}
	for _, r := range p.Reviews {
		if r.Open && !policy.DeliverInReview {
			worst = max(worst, standHeld)
		}
	}
	return worst
}
