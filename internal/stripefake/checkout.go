package stripefake

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// createSession opens a Checkout Session, as a storefront does before it sends
// the buyer to its url.
func (c *call) createSession() (map[string]any, *apiError) {
	mode := c.params.Get("mode")
	if !slices.Contains([]string{"payment", "setup", "subscription"}, mode) {
		return nil, invalid("mode", "parameter_missing", "Missing required param: mode.")
	}
	items, e := c.items()
	if e != nil {
		return nil, e
	}
	if len(items) == 0 && mode != "setup" {
		return nil, invalid("line_items", "parameter_missing", "You must provide `line_items` in `%s` mode.", mode)
	}
	embedded := c.params.Get("ui_mode") == "embedded"
	if needed := map[bool]string{false: "success_url", true: "return_url"}[embedded]; c.params.Get(needed) == "" {
		return nil, invalid(needed, "parameter_missing", "Missing required param: %s.", needed)
	}
	prefix := "cs_test_1Fake"
	if c.realm.live {
		prefix = "cs_live_1Fake"
	}
	id := c.s.newID(prefix)
	f := Fields{"status": "open"}
	for _, p := range []string{"mode", "cancel_url", "success_url", "return_url", "ui_mode", "client_reference_id", "customer",
		"customer_email", "locale", "expires_at", "submit_type", "currency"} {
		if v := c.params.Get(p); v != "" {
			f[p] = v
		}
	}
	if c.params.Get("currency") == "" && len(items) > 0 {
		f["currency"] = c.currency(items[0])
	}
	if err := c.s.makeSession(c.realm, id, items, f); err != nil {
		return nil, invalid("", "", "%s", err)
	}
	o := c.s.store.byID[id]
	c.metadata(o)
	return c.s.show(o), nil
}

func (c *call) currency(it Item) string {
	if p := c.s.store.in(c.realm, it.Price); p != nil {
		return p.str("currency")
	}
	return "usd"
}

// items reads line_items[0][price], line_items[0][price_data][unit_amount] …
func (c *call) items() ([]Item, *apiError) {
	var items []Item
	for i := 0; ; i++ {
		prefix := fmt.Sprintf("line_items[%d]", i)
		param := func(name string) string { return c.params.Get(prefix + name) }
		if !slices.ContainsFunc(slices.Collect(maps.Keys(c.params)), func(p string) bool { return strings.HasPrefix(p, prefix+"[") }) {
			return items, nil
		}
		quantity, e := c.amount(prefix+"[quantity]", 1)
		if e != nil {
			return nil, e
		}
		it := Item{Price: param("[price]"), Quantity: quantity}
		if it.Price == "" {
			if it.Price, e = c.adHocPrice(prefix + "[price_data]"); e != nil {
				return nil, e
			}
		}
		p := c.s.store.in(c.realm, it.Price)
		if p == nil || p.kind != priceKind {
			return nil, c.missing(priceKind, it.Price, prefix+"[price]", false)
		}
		it.Amount = p.num("unit_amount")
		items = append(items, it)
	}
}

// adHocPrice makes the price that price_data describes.
func (c *call) adHocPrice(prefix string) (string, *apiError) {
	amount, err := strconv.ParseInt(c.params.Get(prefix+"[unit_amount]"), 10, 64)
	if err != nil || amount < 0 {
		return "", invalid(prefix+"[unit_amount]", "parameter_invalid_integer", "Invalid integer: %s", c.params.Get(prefix+"[unit_amount]"))
	}
	product := c.params.Get(prefix + "[product]")
	if product == "" {
		name := c.params.Get(prefix + "[product_data][name]")
		if name == "" {
			return "", invalid(prefix+"[product_data][name]", "parameter_missing", "Missing required param: %s[product_data][name].", prefix)
		}
		product = c.s.newID("prod_Fake")
		o := c.s.make(productKind, c.realm, product)
		maps.Copy(o.own, map[string]any{"name": name, "updated": o.created()})
		if c.s.store.add(o) != nil {
			return "", failure(500)
		}
	} else if o := c.s.store.in(c.realm, product); o == nil || o.kind != productKind {
		return "", c.missing(productKind, product, prefix+"[product]", false)
	}
	currency := c.params.Get(prefix + "[currency]")
	if currency == "" {
		return "", invalid(prefix+"[currency]", "parameter_missing", "Missing required param: %s[currency].", prefix)
	}
	o := c.s.make(priceKind, c.realm, c.s.newID("price_1Fake"))
	maps.Copy(o.own, map[string]any{"product": product, "unit_amount": amount, "unit_amount_decimal": strconv.FormatInt(amount, 10),
		"currency": currency, "active": false})
	if c.s.store.add(o) != nil {
		return "", failure(500)
	}
	return o.id(), nil
}

// Complete ends an open session as a buyer does who pays: it is complete, and
// paid by a PaymentIntent that succeeded. The fields are as those of Session:
// payment_status=unpaid leaves the payment processing.
func (s *Server) Complete(id string, f Fields) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, err := s.store.findKind(sessionKind, id)
	if err != nil {
		return err
	}
	if st := o.str("status"); st != "open" {
		return fmt.Errorf("session %s is %s, not open", id, st)
	}
	f = maps.Clone(f)
	intent := f.under("intent.")
	done := Fields{"status": "complete", "payment_status": "paid", "url": ""}
	if o.num("amount_total") == 0 {
		done["payment_status"] = "no_payment_required"
	}
	maps.Copy(done, f)
	if o.get("customer_details") == nil {
		details := sessionKind.template["customer_details"]
		if email := o.str("customer_email"); email != "" {
			if details, err = graft(details, []string{"email"}, email); err != nil {
				return err
			}
		}
		o.own["customer_details"] = details
	}
	if err := s.store.change(o, done); err != nil {
		return err
	}
	if o.str("mode") != "payment" || o.str("payment_status") == "no_payment_required" {
		return nil
	}
	rest, err := sessionKind.rest(id)
	if err != nil {
		return err
	}
	s.store.put(o, "payment_intent", "pi_"+rest)
	return s.makeIntentOf(o, intent)
}
