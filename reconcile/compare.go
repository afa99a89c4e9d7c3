package reconcile

import (
	"crypto/sha256"
	"encoding/json"
	"strings"

	"github.com/keytill/keytill/fulfillment"
)

// Reason says in what an object at Stripe and keytill's order differ.
type Reason string

const (
	Same Reason = "" // they do not

	PaidWithoutOrder   Reason = "paid_without_order"   // no order was ever made
	UnpaidWithoutOrder Reason = "unpaid_without_order" // the same, for money that is still on its way
	PaidOrderOpen      Reason = "paid_order_open"      // paid, and the order still waits for the money
	DeliveredUnpaid    Reason = "delivered_but_unpaid" // keys were handed out, and Stripe says there is no money
	OrderAhead         Reason = "order_ahead"          // the same, without keys
	ClosedOrderOpen    Reason = "closed_order_open"    // nothing will come any more, and the order still waits
	AmountDiffers      Reason = "amount_differs"
	RefundDiffers      Reason = "refund_differs"
	DisputeDiffers     Reason = "dispute_differs"
	WarningDiffers     Reason = "warning_differs"
	EventMissing       Reason = "event_missing" // Stripe has an event that never arrived
)

// stored is what keytill has about an object, read for a whole page at once.
type stored struct {
	Order     string                   // empty: none
	Payment   fulfillment.PaymentState // the order's
	Captured  int64
	HasKeys   bool   // a unit of the order is fulfilled
	Status    string // the refund's or dispute's; empty: it is unknown
	Amount    int64
	Warned    bool   // a finding about the warning is open
	Event     string // the event's state; empty: it never arrived
	LookedFor []byte // the digest of what a settle has looked at already
}

// compare says in what an object differs from what keytill has. It is a pure function: whether a settle will change
// anything is the settle's business.
func compare(kind Kind, o Object, s stored) Reason {
	switch kind {
	case Sessions:
		return compareSession(o, s)
	case Intents:
		return compareIntent(o, s)
	case Refunds, Disputes:
		return compareClaim(kind, o, s)
	case Warnings:
		if s.Order != "" && o.Actionable != s.Warned {
			return WarningDiffers
		}
	case Events:
		if s.Event == "" {
			return EventMissing
		}
	}
	return Same
}

// compareSession leaves to the PaymentIntent what that knows better: a captured one can belong to a session that says
// unpaid for good.
func compareSession(o Object, s stored) Reason {
	if o.Mode != "payment" {
		return Same
	}
	switch {
	case o.Status == "complete" && paidSession(o):
		return comparePaid(s)
	case o.Status == "complete" && s.Order == "":
		return UnpaidWithoutOrder
	case o.Status == "expired" && s.Payment == fulfillment.Pending:
		return ClosedOrderOpen
	}
	return Same
}

func paidSession(o Object) bool {
	return o.PaymentStatus == "paid" || o.PaymentStatus == "no_payment_required"
}

func comparePaid(s stored) Reason {
	switch {
	case s.Order == "":
		return PaidWithoutOrder
	case waits(s.Payment):
		return PaidOrderOpen
	}
	return Same
}

// waits reports whether an order in this state has not seen its money.
func waits(p fulfillment.PaymentState) bool {
	return p == fulfillment.Pending || p == fulfillment.Closed
}

// compareIntent leaves a PaymentIntent without an order to its session, or to whoever else sells on the account, unless
// its own metadata says that it sells keys.
func compareIntent(o Object, s stored) Reason {
	if s.Order == "" && !o.Sells {
		return Same
	}
	switch o.Status {
	case "succeeded":
		if reason := comparePaid(s); reason != Same {
			return reason
		}
		if o.Amount != s.Captured {
			return AmountDiffers
		}
		return Same
	case "processing", "requires_capture":
		if s.Order == "" {
			return UnpaidWithoutOrder
		}
	}
	switch {
	case s.Order == "":
		return Same
	case !waits(s.Payment) && s.HasKeys:
		return DeliveredUnpaid
	case !waits(s.Payment):
		return OrderAhead
	case s.Payment == fulfillment.Pending && givenUp(o, s):
		return ClosedOrderOpen
	}
	return Same
}

// givenUp reports whether no money will come: of a session that is complete, a failed bank debit or voucher is the end.
func givenUp(o Object, s stored) bool {
	return o.Status == "canceled" || o.Status == "requires_payment_method" && strings.HasPrefix(s.Order, "cs_")
}

// compareClaim compares a refund or dispute. One of a payment without an order takes nothing from anybody: whoever finds
// the payment later reads its refunds and disputes too.
func compareClaim(kind Kind, o Object, s stored) Reason {
	if s.Order == "" || o.Status == s.Status && o.Amount == s.Amount {
		return Same
	}
	if kind == Refunds {
		return RefundDiffers
	}
	return DisputeDiffers
}

// digest sums up what was compared, both sides of it.
func digest(kind Kind, o Object, s stored) []byte {
	s.LookedFor = nil
	text, err := json.Marshal(struct {
		Kind   Kind
		Object Object
		Stored stored
	}{kind, o, s})
	if err != nil {
		panic(err) // strings, numbers, times and booleans
	}
	sum := sha256.Sum256(text)
	return sum[:16]
}
