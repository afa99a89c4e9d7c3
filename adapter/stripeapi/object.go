package stripeapi

import (
	"encoding/json"
	"strings"

	"github.com/stripe/stripe-go/v76"

	"github.com/keytill/keytill/reconcile"
)

func sessionObject(s *stripe.CheckoutSession) reconcile.Object {
	o := reconcile.Object{ID: s.ID, Created: at(s.Created), Status: string(s.Status), PaymentStatus: string(s.PaymentStatus),
		Mode: string(s.Mode)}
	if s.PaymentIntent != nil {
		o.Intent = s.PaymentIntent.ID
	}
	return o
}

func intentObject(pi *stripe.PaymentIntent) reconcile.Object {
	o := reconcile.Object{ID: pi.ID, Created: at(pi.Created), Status: string(pi.Status), Intent: pi.ID, Amount: pi.AmountReceived,
		Sells: pi.Metadata[metadataLines] != ""}
	if pi.LatestCharge != nil {
		o.Charge = pi.LatestCharge.ID
	}
	return o
}

func refundObject(r *stripe.Refund) reconcile.Object {
	o := reconcile.Object{ID: r.ID, Created: at(r.Created), Status: string(r.Status), Amount: r.Amount}
	o.Intent, o.Charge = owner(r.PaymentIntent, r.Charge)
	return o
}

func disputeObject(d *stripe.Dispute) reconcile.Object {
	o := reconcile.Object{ID: d.ID, Created: at(d.Created), Status: string(d.Status), Amount: d.Amount}
	o.Intent, o.Charge = owner(d.PaymentIntent, d.Charge)
	return o
}

func warningObject(w *stripe.RadarEarlyFraudWarning) reconcile.Object {
	o := reconcile.Object{ID: w.ID, Created: at(w.Created), Actionable: w.Actionable}
	o.Intent, o.Charge = owner(w.PaymentIntent, w.Charge)
	return o
}

func owner(pi *stripe.PaymentIntent, c *stripe.Charge) (intent, charge string) {
	if pi != nil {
		intent = pi.ID
	}
	if c != nil {
		charge = c.ID
	}
	return intent, charge
}

// eventObject reads of an event only what it is about, as the inbox does: its content may be old.
func eventObject(e *stripe.Event) reconcile.Object {
	event := &reconcile.Event{Type: string(e.Type), Account: e.Account, Livemode: e.Livemode, APIVersion: e.APIVersion}
	o := reconcile.Object{ID: e.ID, Created: at(e.Created), Event: event}
	if e.Data == nil {
		return o
	}
	var about struct {
		ID      text        `json:"id"`
		Created json.Number `json:"created"`
		Intent  reference   `json:"payment_intent"`
		Charge  reference   `json:"charge"`
	}
	if json.Unmarshal(e.Data.Raw, &about) != nil {
		return o
	}
	event.Object = string(about.ID)
	if seconds, err := about.Created.Int64(); err == nil {
		event.Created = at(seconds)
	}
	event.Payment = event.Object
	for _, ref := range []reference{about.Intent, about.Charge} {
		if ref != "" {
			event.Payment = string(ref)
			break
		}
	}
	o.Intent, o.Charge = string(about.Intent), string(about.Charge)
	switch prefix, _, _ := strings.Cut(event.Object, "_"); prefix {
	case "pi":
		o.Intent = event.Object
	case "ch", "py":
		o.Charge = event.Object
	}
	return o
}

// text is a string; anything else is as if it were not there.
type text string

func (t *text) UnmarshalJSON(raw []byte) error {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		*t = text(s)
	}
	return nil
}

// reference is another object's id, whether that is shown as an id or whole.
type reference string

func (r *reference) UnmarshalJSON(raw []byte) error {
	var (
		id    text
		whole struct {
			ID text `json:"id"`
		}
	)
	_ = json.Unmarshal(raw, &id)
	if id == "" && json.Unmarshal(raw, &whole) == nil {
		id = whole.ID
	}
	*r = reference(id)
	return nil
}
