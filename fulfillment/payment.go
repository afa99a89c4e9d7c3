package fulfillment

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Payment is Stripe's present truth about one payment, as the one who reads Stripe hands it over: no event's content,
// no older copy. Amounts are integers in the currency's minor unit.
type Payment struct {
	Session  *Session // nil: a PaymentIntent without a Checkout Session
	Intent   *Intent  // nil: free of charge, no PaymentIntent exists
	Lines    []Line   // the session's, all pages, in Stripe's order
	Refunds  []Refund
	Disputes []Dispute
	Warnings []Warning
	Reviews  []Review
}

// Session is a Checkout Session.
type Session struct {
	ID                string
	Status            string // open, complete, expired
	PaymentStatus     string // paid, unpaid, no_payment_required
	Mode              string // payment, subscription, setup
	ClientReferenceID string
	Currency          string
	Total             int64 // what the buyer was asked for
	Email             string
	Name              string
	Locale            string
	CreatedAt         time.Time
}

// Intent is a PaymentIntent with the charge that paid it, if one did.
type Intent struct {
	ID        string
	Status    string
	Currency  string
	Amount    int64
	Captured  int64  // what was received
	Charge    string // ch_…, or empty
	Email     string
	Lines     string // its metadata keytill_lines
	Reference string // its metadata keytill_reference: the reservation it pays, where there is no session to carry it
	CreatedAt time.Time
	PaidAt    time.Time // when the charge was made; zero without one
}

// Line is a line item.
type Line struct {
	ID          string
	Price       string // what is mapped first
	Product     string // what is mapped else
	Description string
	Quantity    int64
	Amount      int64 // of the whole line, after discounts and with taxes
	Unpriced    bool  // Amount is not known: a line that only a PaymentIntent's metadata names
}

// Refund is one refund of the payment.
type Refund struct {
	ID        string
	Status    string // pending, requires_action, succeeded, failed, canceled
	Amount    int64
	Lines     string // its metadata keytill_lines
	CreatedAt time.Time
}

// Dispute is a chargeback or an inquiry.
type Dispute struct {
	ID        string
	Status    string
	Amount    int64
	CreatedAt time.Time
}

// Warning is an early fraud warning of the card's issuer.
type Warning struct {
	ID string
}

// Review is a review by Radar or a person.
type Review struct {
	ID   string
	Open bool
}

// OrderID is what the payment's order is called: the session's id, or the PaymentIntent's where there is no session.
func (p Payment) OrderID() string {
	if p.Session != nil {
		return p.Session.ID
	}
	return p.Intent.ID
}

// Ours reports whether the payment sells keys at all: a session in payment mode, or a PaymentIntent whose metadata
// says what was bought. All else on the account belongs to other applications.
func (p Payment) Ours() bool {
	if p.Session != nil {
		return p.Session.Mode == "payment"
	}
	return p.Intent != nil && len(parseMentions(p.Intent.Lines)) > 0
}

// createdAt is when the buyer began to pay.
func (p Payment) createdAt() time.Time {
	if p.Session != nil {
		return p.Session.CreatedAt
	}
	return p.Intent.CreatedAt
}

// refs are the ids of everything in Stripe that belongs to the payment; an event about any of them means it.
func (p Payment) refs() []string {
	var refs []string
	if p.Session != nil {
		refs = append(refs, p.Session.ID)
	}
	if p.Intent != nil {
		refs = append(refs, p.Intent.ID)
		if p.Intent.Charge != "" {
			refs = append(refs, p.Intent.Charge)
		}
	}
	for _, r := range p.Refunds {
		refs = append(refs, r.ID)
	}
	for _, d := range p.Disputes {
		refs = append(refs, d.ID)
	}
	for _, w := range p.Warnings {
		refs = append(refs, w.ID)
	}
	for _, r := range p.Reviews {
		refs = append(refs, r.ID)
	}
	return refs
}

// asIntent is the payment seen without its session. An order that was made before its session could be found keeps its
// name and its lines, so that one payment never has two orders.
func (p Payment) asIntent() Payment {
	p.Lines = intentLines(*p.Intent)
	p.Session = nil
	return p
}

// lines are the payment's lines, whatever names them.
func (p Payment) lines() []Line {
	if p.Session != nil {
		return p.Lines
	}
	return intentLines(*p.Intent)
}

// intentLines reads what a PaymentIntent's metadata says was bought. A part that cannot be read stays a line of its own
// that no price matches, so that a person hears of it.
func intentLines(intent Intent) []Line {
	mentions := parseMentions(intent.Lines)
	lines := make([]Line, len(mentions))
	for i, m := range mentions {
		lines[i] = Line{ID: "line_" + strconv.Itoa(i+1), Price: m.name, Description: m.name,
			Quantity: max(m.quantity, 1), Amount: intent.Amount, Unpriced: len(mentions) > 1}
	}
	return lines
}

// A mention is a part of a keytill_lines list: a name and, after a colon, a quantity; 0 where none is said.
type mention struct {
	name     string
	quantity int64
}

// maxQuantity bounds what a list of metadata can ask for, as Stripe's own quantities are bounded.
const maxQuantity = 10_000

func parseMentions(list string) []mention {
	var mentions []mention
	for part := range strings.SplitSeq(list, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		name, number, found := strings.Cut(part, ":")
		quantity, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
		switch {
		case !found:
			mentions = append(mentions, mention{name: part})
		case err != nil || quantity < 1 || quantity > maxQuantity || strings.TrimSpace(name) == "":
			mentions = append(mentions, mention{name: part})
		default:
			mentions = append(mentions, mention{name: strings.TrimSpace(name), quantity: quantity})
		}
	}
	return mentions
}

// refundsInOrder are the refunds that count, oldest first: failed and canceled ones are as if they had never been, and
// one that came on two pages of a list is one.
func (p Payment) refundsInOrder() []Refund {
	refunds := slices.Clone(p.Refunds)
	slices.SortFunc(refunds, func(a, b Refund) int {
		return cmp.Or(strings.Compare(a.ID, b.ID), strings.Compare(a.Status, b.Status))
	})
	refunds = slices.CompactFunc(refunds, func(a, b Refund) bool { return a.ID == b.ID })
	refunds = slices.DeleteFunc(refunds, func(r Refund) bool {
		return r.Status == "failed" || r.Status == "canceled" || r.Amount <= 0
	})
	slices.SortStableFunc(refunds, func(a, b Refund) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return refunds
}
