package stripefake

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"
)

type idemKey struct {
	key   string // the API key: another one has other idempotency keys
	realm realm
	name  string
}

type idemAnswer struct {
	request string // method, path and parameters
	status  int
	body    []byte
	id      string // of the first request
	at      time.Time
}

// once runs a write, or repeats the answer that its Idempotency-Key got first.
func (c *call) once(rt *route) answer {
	k := idemKey{c.key, c.realm, c.idem}
	request := c.method + " " + c.path + "?" + c.params.Encode()
	if old, ok := c.s.idem[k]; ok && c.s.now().Sub(old.at) < 24*time.Hour {
		if old.request != request {
			e := invalid("", "", "Keys for idempotent requests can only be used with the same parameters they were first used with. "+
				"Try using a key other than '%s' if you meant to execute a different request.", c.idem)
			e.typ = "idempotency_error"
			return answer{status: e.status, value: e.body(c.request, c.realm.live)}
		}
		return answer{status: old.status, body: bytes.Clone(old.body), header: http.Header{
			"Idempotency-Key": {c.idem}, "Idempotent-Replayed": {"true"}, "Original-Request": {old.id}}}
	}
	a := c.run(rt)
	body, err := encode(a.value, false)
	if err != nil {
		panic(err) // the store holds nothing but JSON values
	}
	c.s.idem[k] = idemAnswer{request: request, status: a.status, body: body, id: c.request, at: c.s.now()}
	a.header = http.Header{"Idempotency-Key": {c.idem}, "Original-Request": {c.request}}
	return a
}

// amount reads an amount parameter, or says what it is without.
func (c *call) amount(param string, without int64) (int64, *apiError) {
	if !c.params.Has(param) {
		return without, nil
	}
	n, err := strconv.ParseInt(c.params.Get(param), 10, 64)
	if err != nil {
		return 0, invalid(param, "parameter_invalid_integer", "Invalid integer: %s", c.params.Get(param))
	}
	if n < 1 {
		return 0, invalid(param, "parameter_invalid_integer", "This value must be greater than or equal to 1.")
	}
	return n, nil
}

// metadata is the object's, with what the call adds.
func (c *call) metadata(o *object) {
	m, _ := o.get("metadata").(map[string]any)
	if m = maps.Clone(m); m == nil {
		m = map[string]any{}
	}
	for name, vs := range c.params {
		if key, ok := strings.CutPrefix(name, "metadata["); ok {
			m[strings.TrimSuffix(key, "]")] = vs[0]
		}
	}
	if len(m) > 0 {
		o.own["metadata"] = m
	}
}

// happen records the event of a write; who wants it delivered builds it again
// by its id.
func (c *call) happen(typ string, o *object) {
	if ev, err := c.s.event(typ, o.id(), EventOptions{}); err == nil {
		request := map[string]any{"id": c.request, "idempotency_key": nil}
		if c.idem != "" {
			request["idempotency_key"] = c.idem
		}
		ev.own["request"] = request
	}
}

func (c *call) createRefund() (map[string]any, *apiError) {
	ch, e := c.chargeToRefund()
	if e != nil {
		return nil, e
	}
	left := ch.num("amount_captured") - ch.num("amount_refunded")
	amount, e := c.amount("amount", left)
	switch {
	case e != nil:
		return nil, e
	case !ch.is("captured"):
		return nil, invalid("", "charge_not_captured", "Charge %s has not been captured and cannot be refunded.", ch.id())
	case ch.is("refunded"):
		return nil, invalid("", "charge_already_refunded", "Charge %s has already been refunded.", ch.id())
	case ch.is("disputed") && c.chargedBack(ch):
		return nil, invalid("", "charge_disputed", "Charge %s has been charged back; cannot issue a refund.", ch.id())
	case amount > left:
		return nil, invalid("amount", "", "Refund amount (%s) is greater than unrefunded amount on charge (%s)", dollars(amount), dollars(left))
	}
	re := c.s.make(refundKind, c.realm, c.s.newID("re_1Fake"))
	maps.Copy(re.own, map[string]any{"amount": amount, "charge": ch.id(), "currency": ch.str("currency"),
		"payment_intent": ch.get("payment_intent")})
	if r := c.params.Get("reason"); r != "" {
		re.own["reason"] = r
	}
	c.metadata(re)
	if err := c.s.store.add(re); err != nil {
		return nil, failure(http.StatusInternalServerError)
	}
	c.s.recount(ch)
	c.happen("refund.created", re)
	c.happen("charge.refunded", ch)
	return c.s.show(re), nil
}

// chargedBack says whether a dispute, other than an inquiry or one that ended
// well, has taken the money.
func (c *call) chargedBack(ch *object) bool {
	for _, d := range c.s.store.with(disputeKind, "charge", ch.id()) {
		if st := d.str("status"); !strings.HasPrefix(st, "warning_") && st != "won" && st != "prevented" {
			return true
		}
	}
	return false
}

// chargeToRefund finds the charge that charge or payment_intent names.
func (c *call) chargeToRefund() (*object, *apiError) {
	if id := c.params.Get("payment_intent"); id != "" {
		pi := c.s.store.in(c.realm, id)
		if pi == nil || pi.kind != intentKind {
			return nil, c.missing(intentKind, id, "payment_intent", false)
		}
		ch := c.s.store.in(c.realm, pi.str("latest_charge"))
		if ch == nil || ch.str("status") != "succeeded" {
			return nil, invalid("payment_intent", "", "This PaymentIntent (%s) does not have a successful charge to refund.", id)
		}
		return ch, nil
	}
	id := c.params.Get("charge")
	if id == "" {
		return nil, invalid("", "parameter_missing", "One of the following params should be provided for this request: payment_intent or charge.")
	}
	ch := c.s.store.in(c.realm, id)
	if ch == nil || ch.kind != chargeKind {
		return nil, c.missing(chargeKind, id, "charge", false)
	}
	return ch, nil
}

func (c *call) capture() (map[string]any, *apiError) {
	pi := c.s.store.in(c.realm, c.id)
	if pi == nil || pi.kind != intentKind {
		return nil, c.missing(intentKind, c.id, "intent", true)
	}
	if st := pi.str("status"); st != "requires_capture" {
		return nil, invalid("", "payment_intent_unexpected_state", "This PaymentIntent could not be captured because it has a status of %s. "+
			"Only a PaymentIntent with one of the following statuses may be captured: requires_capture.", st)
	}
	amount, e := c.amount("amount_to_capture", pi.num("amount_capturable"))
	if e != nil {
		return nil, e
	}
	if amount > pi.num("amount_capturable") {
		return nil, invalid("amount_to_capture", "amount_too_large", "The amount to capture is greater than the remaining amount you can capture for this PaymentIntent.")
	}
	maps.Copy(pi.own, map[string]any{"status": "succeeded", "amount_received": amount})
	c.s.follow(pi, Fields{"status": "", "amount_received": ""})
	c.metadata(pi)
	c.happen("charge.captured", c.s.store.byID[pi.str("latest_charge")])
	c.happen("payment_intent.succeeded", pi)
	return c.s.show(pi), nil
}

func (c *call) expire() (map[string]any, *apiError) {
	o := c.s.store.in(c.realm, c.id)
	if o == nil || o.kind != sessionKind {
		return nil, c.missing(sessionKind, c.id, "session", true)
	}
	if st := o.str("status"); st != "open" {
		return nil, invalid("", "", "Only Checkout Sessions with a status in [\"open\"] can be expired. This Checkout Session has a status of `%s`.", st)
	}
	maps.Copy(o.own, map[string]any{"status": "expired", "url": nil})
	c.happen("checkout.session.expired", o)
	return c.s.show(o), nil
}

// dollars writes an amount as Stripe's messages do.
func dollars(minor int64) string { return fmt.Sprintf("$%d.%02d", minor/100, minor%100) }
