package stripefake

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
)

// Intent makes a PaymentIntent without a session, with its charge (pi_7,
// ch_7). The fields must say its amount; its status is succeeded unless they
// say otherwise.
func (s *Server) Intent(id string, f Fields) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	f = maps.Clone(f)
	r, err := s.place(&f)
	if err == nil {
		_, err = intentKind.rest(id)
	}
	if err == nil && f["amount"] == "" {
		err = fmt.Errorf("no amount")
	}
	if err != nil {
		return fmt.Errorf("payment_intent %s: %w", id, err)
	}
	return s.makeIntent(s.make(intentKind, r, id), f, f["receipt_email"])
}

func (s *Server) makeIntent(pi *object, f Fields, email string) error {
	if err := pi.apply(f); err != nil {
		return err
	}
	pi.own["client_secret"] = pi.id() + "_secret_fake"
	if err := s.store.add(pi); err != nil {
		return err
	}
	s.follow(pi, f)
	ch := s.store.byID[pi.str("latest_charge")]
	if ch == nil {
		return nil
	}
	if ch.created() != pi.created() {
		s.store.put(ch, "created", pi.created())
	}
	if email != "" {
		details, err := graft(ch.get("billing_details"), []string{"email"}, email)
		if err != nil {
			return err
		}
		ch.own["billing_details"] = details
	}
	return nil
}

// Set changes fields of an object of any kind, in whatever account it is. What
// follows from the change is changed too: a PaymentIntent that succeeds has
// received its amount, unless amount_received says less, and its charge is
// paid and captured; a refund that fails is no longer counted in its charge; a
// review that closes is approved.
func (s *Server) Set(id string, f Fields) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	f = maps.Clone(f)
	o, err := s.pick(id, &f)
	if err != nil {
		return err
	}
	if err := s.store.change(o, f); err != nil {
		return err
	}
	switch o.kind {
	case intentKind:
		s.follow(o, f)
	case refundKind, disputeKind:
		s.recount(s.store.byID[o.str("charge")])
	case reviewKind:
		if !o.is("open") && o.get("closed_reason") == nil {
			maps.Copy(o.own, map[string]any{"reason": "approved", "closed_reason": "approved"})
		}
	case priceKind:
		if err := s.ensureProduct(o.realm, o.str("product")); err != nil {
			return err
		}
		o.own["unit_amount_decimal"] = strconv.FormatInt(o.num("unit_amount"), 10)
	}
	return nil
}

// pick finds the object that an id and the account and livemode fields mean.
func (s *Server) pick(id string, f *Fields) (*object, error) {
	_, account := (*f)["account"]
	_, live := (*f)["livemode"]
	if !account && !live {
		return s.store.find(id)
	}
	r, err := s.place(f)
	if err != nil {
		return nil, err
	}
	if o := s.store.in(r, id); o != nil {
		return o, nil
	}
	return nil, fmt.Errorf("no object %q there", id)
}

// follow brings a PaymentIntent's amounts and its charge in line with its
// status. What the fields say themselves stays.
func (s *Server) follow(pi *object, said Fields) {
	derive := func(field string, v any) {
		if _, ok := said[field]; !ok {
			pi.own[field] = v
		}
	}
	amount := pi.num("amount")
	_, received := said["amount_received"]
	if _, moved := said["status"]; !moved && pi.get("latest_charge") != nil && !received {
		return
	}
	var charge map[string]any
	switch pi.str("status") {
	case "succeeded":
		derive("amount_received", amount)
		derive("amount_capturable", int64(0))
		charge = map[string]any{"status": "succeeded", "paid": true, "captured": true,
			"amount_captured": pi.num("amount_received"), "failure_code": nil, "failure_message": nil}
	case "requires_capture":
		derive("amount_capturable", amount)
		derive("amount_received", int64(0))
		derive("capture_method", "manual")
		charge = map[string]any{"status": "succeeded", "paid": true, "captured": false, "amount_captured": int64(0)}
	case "processing":
		charge = map[string]any{"status": "pending", "paid": false, "captured": false, "amount_captured": int64(0)}
	case "canceled":
		if pi.get("canceled_at") == nil {
			derive("canceled_at", s.now().Unix())
		}
		derive("amount_capturable", int64(0))
		s.drop(pi)
		return
	default: // waiting for the buyer: a charge there has been, if any, failed
		if ch := s.store.byID[pi.str("latest_charge")]; ch != nil {
			s.fail(ch)
			derive("last_payment_error", map[string]any{"type": "card_error", "code": "card_declined",
				"decline_code": "generic_decline", "message": "Your card was declined.", "charge": ch.id()})
		}
		derive("amount_received", int64(0))
		derive("amount_capturable", int64(0))
		return
	}
	ch := s.chargeOf(pi)
	maps.Copy(ch.own, charge)
	s.recount(ch)
}

// chargeOf is the charge of a PaymentIntent, made where there is none yet.
func (s *Server) chargeOf(pi *object) *object {
	if ch := s.store.byID[pi.str("latest_charge")]; ch != nil {
		return ch
	}
	rest, _ := intentKind.rest(pi.id())
	ch := s.make(chargeKind, pi.realm, "ch_"+rest)
	maps.Copy(ch.own, map[string]any{"amount": pi.num("amount"), "currency": pi.str("currency"), "payment_intent": pi.id()})
	for _, field := range []string{"customer", "receipt_email", "description", "transfer_group"} {
		if v := pi.get(field); v != nil {
			ch.own[field] = v
		}
	}
	if m, _ := pi.get("metadata").(map[string]any); len(m) > 0 {
		ch.own["metadata"] = m // Checkout and the API copy it when the charge is made
	}
	if s.store.add(ch) != nil {
		return s.store.byID[ch.id()]
	}
	pi.own["latest_charge"] = ch.id()
	return ch
}

// drop releases what a canceled PaymentIntent had authorized. Stripe shows
// that as a charge refunded whole, though nothing was captured.
func (s *Server) drop(pi *object) {
	ch := s.store.byID[pi.str("latest_charge")]
	switch {
	case ch == nil || ch.is("captured"):
	case ch.str("status") == "pending":
		s.fail(ch)
	default:
		maps.Copy(ch.own, map[string]any{"refunded": true, "amount_refunded": ch.num("amount")})
	}
}

func (s *Server) fail(ch *object) {
	maps.Copy(ch.own, map[string]any{"status": "failed", "paid": false, "captured": false, "amount_captured": int64(0),
		"failure_code": "card_declined", "failure_message": "Your card was declined."})
}

// Refund makes a refund of a PaymentIntent's charge. Its amount is "all" that
// was captured unless the fields say a number, its status succeeded. More than
// is left cannot be refunded.
func (s *Server) Refund(id, intent string, f Fields) error {
	return s.claimOn(refundKind, id, intent, f, func(o, ch *object) error {
		amount, left := o.num("amount"), ch.num("amount_captured")-ch.num("amount_refunded")
		if counts(o) && (amount < 1 || amount > left) {
			return fmt.Errorf("of %d of %s only %d is left to refund", amount, ch.id(), left)
		}
		return nil
	})
}

// Dispute makes a dispute of a PaymentIntent's charge, over "all" that was
// captured unless the fields say a number, in status needs_response.
func (s *Server) Dispute(id, intent string, f Fields) error {
	return s.claimOn(disputeKind, id, intent, f, func(o, _ *object) error {
		due, err := graft(o.get("evidence_details"), []string{"due_by"}, o.created()+9*24*60*60)
		o.own["evidence_details"] = due
		return err
	})
}

// Warning makes an early fraud warning about a PaymentIntent's charge.
func (s *Server) Warning(id, intent string, f Fields) error {
	return s.claimOn(warningKind, id, intent, f, nil)
}

// Review puts a PaymentIntent under review; with open=false it is a review
// that was closed.
func (s *Server) Review(id, intent string, f Fields) error {
	return s.claimOn(reviewKind, id, intent, f, func(o, ch *object) error {
		if !o.is("open") && o.get("closed_reason") == nil {
			maps.Copy(o.own, map[string]any{"reason": "approved", "closed_reason": "approved"})
		}
		s.store.byID[intent].own["review"] = id
		ch.own["review"] = id
		return nil
	})
}

// claimOn makes an object that is about a charge.
func (s *Server) claimOn(k *kind, id, intent string, f Fields, check func(o, ch *object) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	f = maps.Clone(f)
	if f == nil {
		f = Fields{}
	}
	pi, err := s.store.findKind(intentKind, intent)
	if err == nil {
		_, err = k.rest(id)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", k.name, id, err)
	}
	ch := s.store.byID[pi.str("latest_charge")]
	if ch == nil {
		return fmt.Errorf("%s %s: %s has no charge", k.name, id, intent)
	}
	o := s.make(k, pi.realm, id)
	maps.Copy(o.own, map[string]any{"charge": ch.id(), "payment_intent": intent})
	if k == refundKind || k == disputeKind {
		o.own["currency"] = ch.str("currency")
		if a := f["amount"]; a == "" || a == "all" {
			f["amount"] = strconv.FormatInt(ch.num("amount_captured"), 10)
		}
	}
	if err := o.apply(f); err != nil {
		return err
	}
	if s.store.byID[id] != nil {
		return fmt.Errorf("%s exists already", id)
	}
	if check != nil {
		if err := check(o, ch); err != nil {
			return fmt.Errorf("%s %s: %w", k.name, id, err)
		}
	}
	if err := s.store.add(o); err != nil {
		return err
	}
	s.recount(ch)
	return nil
}

// counts says whether a refund takes money back, or may yet.
func counts(refund *object) bool {
	st := refund.str("status")
	return st != "failed" && st != "canceled"
}

// recount brings a charge in line with its refunds, disputes and warnings.
func (s *Server) recount(ch *object) {
	if ch == nil {
		return
	}
	var sum int64
	for _, re := range s.store.with(refundKind, "charge", ch.id()) {
		if counts(re) {
			sum += re.num("amount")
		}
	}
	captured := ch.num("amount_captured")
	ch.own["amount_refunded"] = sum
	ch.own["refunded"] = sum > 0 && sum >= captured
	disputes := s.store.with(disputeKind, "charge", ch.id())
	ch.own["disputed"] = len(disputes) > 0
	if len(disputes) > 0 {
		ch.own["dispute"] = disputes[len(disputes)-1].id()
	}
	for _, w := range s.store.with(warningKind, "charge", ch.id()) {
		w.own["actionable"] = len(disputes) == 0 && !ch.is("refunded")
	}
}

// Snapshot is an object as it is now, for an event that carries it later.
func (s *Server) Snapshot(id string) (json.RawMessage, error) {
	s.mu.Lock()
	o, err := s.store.find(id)
	if err != nil {
		s.mu.Unlock()
		return nil, err
	}
	v := s.show(o)
	s.mu.Unlock()
	return encode(v, false)
}
