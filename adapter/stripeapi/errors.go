package stripeapi

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/stripe/stripe-go/v76"

	"github.com/keytill/keytill/fulfillment"
)

// An Error is what Stripe answered instead of an object. It is safe to log: stripe-go's own error can hold a whole
// PaymentIntent.
type Error struct {
	Status    int    // of HTTP
	Type      string // Stripe's: invalid_request_error, api_error …
	Code      string // Stripe's: resource_missing, rate_limit …
	RequestID string // to look the call up in the Stripe dashboard
}

// Error says what to do where there is something to do.
func (e *Error) Error() string {
	text := fmt.Sprintf("Stripe answered %d %s", e.Status, e.Type)
	if e.Code != "" {
		text += " (" + e.Code + ")"
	}
	if e.RequestID != "" {
		text += ", request " + e.RequestID
	}
	switch e.Status {
	case 401:
		text += ": the API key is not valid (any more); make a new one in the Stripe dashboard"
	case 403:
		text += ": the API key may not read this; a restricted key needs read access to Checkout Sessions, PaymentIntents, Charges, Refunds, Disputes, Radar and Events"
	case 429:
		text += ": the account's calls are limited; it is tried again, and if that stays so, see what else calls Stripe with this account"
	default:
		if e.Status >= 500 {
			text += ": Stripe, or what stands before it, is in trouble; it is tried again, and https://status.stripe.com says more"
		}
	}
	return text
}

// translate makes stripe-go's error one of ours.
func translate(err error, id string) error {
	if err == nil {
		return nil
	}
	var answer *stripe.Error
	if !errors.As(err, &answer) {
		return fmt.Errorf("read %s from Stripe: %w; events and sweeps try again by themselves", id, err)
	}
	if answer.Code == stripe.ErrorCodeResourceMissing {
		return fmt.Errorf("%s: %w", id, fulfillment.ErrNotFound)
	}
	refused := &Error{Status: answer.HTTPStatusCode, Type: string(answer.Type), Code: string(answer.Code), RequestID: answer.RequestID}
	if answer.HTTPStatusCode == http.StatusBadRequest {
		return fmt.Errorf("read %s from Stripe: %w: %w", id, fulfillment.ErrRefusedRead, refused)
	}
	return fmt.Errorf("read %s from Stripe: %w", id, refused)
}
