package stripeapi

import (
	"time"

	"github.com/stripe/stripe-go/v76"

	"github.com/keytill/keytill/fulfillment"
)

// Metadata that keytill reads.
const (
	metadataLines     = "keytill_lines"     // what a PaymentIntent without a session sells; what a refund is for
	metadataReference = "keytill_reference" // the reservation that a PaymentIntent without a session pays
)

func sessionFrom(s *stripe.CheckoutSession) *fulfillment.Session {
	session := &fulfillment.Session{ID: s.ID, Status: string(s.Status), PaymentStatus: string(s.PaymentStatus), Mode: string(s.Mode),
		ClientReferenceID: s.ClientReferenceID, Currency: string(s.Currency), Total: s.AmountTotal, Locale: s.Locale,
		CreatedAt: at(s.Created)}
	// customer_email is only what the form was filled with before the buyer saw it.
	if d := s.CustomerDetails; d != nil {
		session.Email, session.Name = d.Email, d.Name
	}
	return session
}

func intentFrom(pi *stripe.PaymentIntent) *fulfillment.Intent {
	intent := &fulfillment.Intent{ID: pi.ID, Status: string(pi.Status), Currency: string(pi.Currency), Amount: pi.Amount,
		Captured: pi.AmountReceived, Email: pi.ReceiptEmail, Lines: pi.Metadata[metadataLines],
		Reference: pi.Metadata[metadataReference], CreatedAt: at(pi.Created)}
	if c := pi.LatestCharge; c != nil && c.ID != "" {
		intent.Charge = c.ID
		if c.Created != 0 {
			intent.PaidAt = at(c.Created)
		}
		if intent.Email == "" && c.BillingDetails != nil {
			intent.Email = c.BillingDetails.Email
		}
	}
	return intent
}

func lineFrom(item *stripe.LineItem) fulfillment.Line {
	line := fulfillment.Line{ID: item.ID, Description: item.Description, Quantity: item.Quantity, Amount: item.AmountTotal}
	if item.Price != nil {
		line.Price = item.Price.ID
		if item.Price.Product != nil {
			line.Product = item.Price.Product.ID
		}
	}
	return line
}

func refundFrom(r *stripe.Refund) fulfillment.Refund {
	return fulfillment.Refund{ID: r.ID, Status: string(r.Status), Amount: r.Amount, Lines: r.Metadata[metadataLines], CreatedAt: at(r.Created)}
}

func disputeFrom(d *stripe.Dispute) fulfillment.Dispute {
	return fulfillment.Dispute{ID: d.ID, Status: string(d.Status), Amount: d.Amount, CreatedAt: at(d.Created)}
}

func at(seconds int64) time.Time { return time.Unix(seconds, 0).UTC() }
