package stripeapi

import (
	"errors"
	"fmt"

	"github.com/stripe/stripe-go/v76"

	"github.com/keytill/keytill/fulfillment"
)

// ErrContradiction says that what Stripe answered cannot all be true. Nothing is done on it; the next try reads again.
var ErrContradiction = errors.New("answers of Stripe's contradict each other; they are read again later, and if it stays so, ask Stripe's support")

func contradiction(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), ErrContradiction)
}

// asked holds that an answer is the object that was asked for.
func asked(id, got string) error {
	if got == id {
		return nil
	}
	return contradiction("asked for %s, Stripe answers %q", id, got)
}

// part is the error of reading a part of a payment that was found. That the part is not found is then no news about the
// payment.
func part(what, of string, err error) error {
	if errors.Is(err, fulfillment.ErrNotFound) {
		return contradiction("%s of %s: Stripe has %s, and not these", what, of, of)
	}
	return fmt.Errorf("%s of %s: %w", what, of, err)
}

// belongs holds that an object of a PaymentIntent's list is that one's. Older objects may not say whose they are.
func belongs(id string, pi *stripe.PaymentIntent, intent string) error {
	if pi == nil || pi.ID == "" || pi.ID == intent {
		return nil
	}
	return contradiction("among those of %s, Stripe lists %s of %s", intent, id, pi.ID)
}

// agree holds that the lists of refunds and disputes have all that the charge knows of: with one left out, keys would be
// handed out whose money went back.
//
// It is asked only of a charge that was captured whole. What is not captured of an authorization counts as refunded
// there, and no refund tells of it.
func agree(c *stripe.Charge, payment fulfillment.Payment) error {
	if c == nil || !c.Captured || c.AmountCaptured != c.Amount {
		return nil
	}
	var refunded int64
	for _, r := range payment.Refunds {
		refunded += r.Amount // whatever its state: one may have failed since the charge was read
	}
	if refunded < c.AmountRefunded {
		return contradiction("of %s %d is refunded, and the refunds that Stripe lists make %d", c.ID, c.AmountRefunded, refunded)
	}
	if c.Disputed && len(payment.Disputes) == 0 {
		return contradiction("%s is disputed, and Stripe lists no dispute", c.ID)
	}
	return nil
}

// short reports whether a session's lines are fewer than make its amount. Amounts are rounded line by line.
func short(session *stripe.CheckoutSession, items []*stripe.LineItem) bool {
	sum := int64(len(items))
	for _, item := range items {
		if item.Currency != session.Currency {
			return false
		}
		sum += item.AmountSubtotal
	}
	return len(items) == 0 || sum < session.AmountSubtotal
}
