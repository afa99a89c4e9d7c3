package stripefake

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
)

// DefaultAmount is what ParseItem takes one of a thing to cost, in minor units.
const DefaultAmount = 1000

// An Item is one line of a Checkout Session.
type Item struct {
	Price    string // price_…; made, with its product, where there is none yet
	Quantity int64  // zero is one
	Amount   int64  // of one, in minor units; zero is free of charge
	Line     string // li_…; empty for li_<session>_<n>
}

// Session makes a finished Checkout Session with its line items, its
// PaymentIntent and its charge, whose ids are the session's with another
// prefix: cs_7, pi_7, ch_7.
//
// Unless the fields say otherwise it is a complete and paid payment of a buyer
// at buyer@example.com. What the PaymentIntent is like follows from the
// session: succeeded when paid, processing when unpaid, canceled when the
// session expired, none at all when nothing was to be paid, when the session
// is still open, or when its mode is not payment. "intent." before a name sets
// a field of the PaymentIntent; "account" puts all of it in that connected
// account.
func (s *Server) Session(id string, items []Item, f Fields) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	f = maps.Clone(f)
	r, err := s.place(&f)
	if err != nil {
		return fmt.Errorf("session %s: %w", id, err)
	}
	if err := s.makeSession(r, id, items, f); err != nil {
		return fmt.Errorf("session %s: %w", id, err)
	}
	return nil
}

func (s *Server) makeSession(r realm, id string, items []Item, f Fields) error {
	rest, err := sessionKind.rest(id)
	if err != nil {
		return err
	}
	intent := f.under("intent.")
	o := s.make(sessionKind, r, id)
	switch f["mode"] {
	case "setup":
		maps.Copy(o.own, map[string]any{"amount_total": nil, "amount_subtotal": nil, "currency": nil,
			"payment_status": "no_payment_required", "setup_intent": "seti_" + rest})
	case "subscription":
		maps.Copy(o.own, map[string]any{"subscription": "sub_" + rest, "invoice": "in_" + rest})
	}
	switch f["status"] {
	case "open":
		maps.Copy(o.own, map[string]any{"payment_status": "unpaid", "customer_details": nil,
			"url": "https://checkout.stripe.com/c/pay/" + id})
	case "expired":
		o.own["payment_status"] = "unpaid"
	}
	if err := o.apply(f); err != nil {
		return err
	}
	if _, said := f["expires_at"]; !said {
		o.own["expires_at"] = o.created() + 24*60*60
	}
	_, said := f["payment_intent"]
	pays := !said && o.str("mode") == "payment" && o.str("status") != "open" && o.str("payment_status") != "no_payment_required"
	if !pays && len(intent) > 0 {
		return fmt.Errorf("it has no PaymentIntent to set fields of")
	}
	if pays {
		if s.store.byID["pi_"+rest] != nil {
			return fmt.Errorf("pi_%s exists already", rest)
		}
		o.own["payment_intent"] = "pi_" + rest
	}
	if err := s.addLines(o, rest, items, f); err != nil {
		return err
	}
	if err := s.store.add(o); err != nil || !pays {
		return err
	}
	return s.makeIntentOf(o, intent)
}

// makeIntentOf makes the PaymentIntent that a session's payment_intent names.
func (s *Server) makeIntentOf(o *object, f Fields) error {
	pi := s.make(intentKind, o.realm, o.str("payment_intent"))
	maps.Copy(pi.own, map[string]any{"amount": o.num("amount_total"), "currency": o.str("currency"),
		"created": o.created(), "customer": o.get("customer")})
	switch {
	case o.str("status") == "expired":
		pi.own["status"] = "canceled"
	case o.str("payment_status") == "unpaid":
		pi.own["status"] = "processing"
	}
	details, _ := o.get("customer_details").(map[string]any)
	email, _ := details["email"].(string)
	return s.makeIntent(pi, f, email)
}

// addLines makes the session's line items, and its amounts from theirs.
func (s *Server) addLines(o *object, rest string, items []Item, f Fields) error {
	var total int64
	seen := map[string]bool{}
	for i, it := range items {
		if it.Quantity == 0 {
			it.Quantity = 1
		}
		if it.Line == "" {
			it.Line = fmt.Sprintf("li_%s_%d", rest, i+1)
		}
		if it.Quantity < 0 || it.Amount < 0 {
			return fmt.Errorf("line %s: neither quantity nor amount can be negative", it.Line)
		}
		if seen[it.Line] || s.store.byID[it.Line] != nil {
			return fmt.Errorf("line %s exists already", it.Line)
		}
		seen[it.Line] = true
		price, err := s.priceFor(o.realm, it, o.str("currency"))
		if err != nil {
			return err
		}
		sum := it.Quantity * it.Amount
		total += sum
		li := &object{kind: itemKind, realm: o.realm, of: o, line: i, own: map[string]any{
			"id": it.Line, "amount_subtotal": sum, "amount_total": sum, "quantity": it.Quantity,
			"price": it.Price, "description": price.str("product"),
		}}
		if c := o.str("currency"); c != "usd" {
			li.own["currency"] = c
		}
		o.lines = append(o.lines, li)
	}
	for _, field := range []string{"amount_total", "amount_subtotal"} {
		if _, said := f[field]; !said && o.str("mode") != "setup" {
			o.own[field] = total
		}
	}
	if s.store.byID[o.id()] != nil {
		return fmt.Errorf("exists already")
	}
	for _, li := range o.lines {
		if err := s.store.add(li); err != nil {
			return err
		}
	}
	return nil
}

// priceFor finds the item's price or makes it.
func (s *Server) priceFor(r realm, it Item, currency string) (*object, error) {
	rest, err := priceKind.rest(it.Price)
	if err != nil {
		return nil, err
	}
	if o := s.store.in(r, it.Price); o != nil {
		return o, nil
	}
	o := s.make(priceKind, r, it.Price)
	maps.Copy(o.own, map[string]any{"product": "prod_" + rest, "unit_amount": it.Amount,
		"unit_amount_decimal": strconv.FormatInt(it.Amount, 10), "currency": currency})
	if err := s.ensureProduct(r, "prod_"+rest); err != nil {
		return nil, err
	}
	return o, s.store.add(o)
}

func (s *Server) ensureProduct(r realm, id string) error {
	rest, err := productKind.rest(id)
	if err != nil || s.store.in(r, id) != nil {
		return err
	}
	o := s.make(productKind, r, id)
	maps.Copy(o.own, map[string]any{"name": rest, "updated": o.created()})
	return s.store.add(o)
}

// Price makes a price, of the product that the fields name and else of
// prod_<id without price_>, which is made where there is none yet.
func (s *Server) Price(id string, f Fields) error {
	return s.build(priceKind, id, f, func(o *object) error {
		if o.str("product") == "" {
			rest, _ := priceKind.rest(id)
			o.own["product"] = "prod_" + rest
		}
		if _, said := o.own["unit_amount"]; !said {
			o.own["unit_amount"] = int64(DefaultAmount)
		}
		o.own["unit_amount_decimal"] = strconv.FormatInt(o.num("unit_amount"), 10)
		return s.ensureProduct(o.realm, o.str("product"))
	})
}

// WebhookEndpoint makes an endpoint. Unless the fields say otherwise it is
// enabled, for every event ("*"), without an API version of its own.
func (s *Server) WebhookEndpoint(id string, f Fields) error {
	return s.build(endpointKind, id, f, nil)
}

// Account connects an account to the platform, so that its id is taken as a
// Stripe-Account. Objects made with an "account" connect theirs by themselves.
func (s *Server) Account(id string, f Fields) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, err := s.ensureAccount(id)
	if err != nil {
		return err
	}
	return s.store.change(o, f)
}

func (s *Server) ensureAccount(id string) (*object, error) {
	if o := s.store.byID[id]; o != nil && o.kind == accountKind {
		return o, nil
	}
	if _, err := accountKind.rest(id); err != nil {
		return nil, err
	}
	o := s.make(accountKind, realm{}, id)
	return o, s.store.add(o)
}

// build makes an object of a kind that stands alone.
func (s *Server) build(k *kind, id string, f Fields, finish func(*object) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	f = maps.Clone(f)
	r, err := s.place(&f)
	if err == nil {
		_, err = k.rest(id)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", k.name, id, err)
	}
	o := s.make(k, r, id)
	if err := o.apply(f); err != nil {
		return err
	}
	if s.store.in(r, id) != nil {
		return fmt.Errorf("%s exists already", id)
	}
	if finish != nil {
		if err := finish(o); err != nil {
			return fmt.Errorf("%s %s: %w", k.name, id, err)
		}
	}
	return s.store.add(o)
}

// make is a new object, in no list yet.
func (s *Server) make(k *kind, r realm, id string) *object {
	own := map[string]any{"id": id}
	if _, has := k.template["created"]; has {
		own["created"] = s.now().Unix()
	}
	if _, has := k.template["livemode"]; has && r.live {
		own["livemode"] = true
	}
	return &object{kind: k, realm: r, own: own}
}

// place takes the account and the mode out of the fields.
func (s *Server) place(f *Fields) (realm, error) {
	if *f == nil {
		*f = Fields{}
	}
	r := realm{live: s.cfg.Livemode}
	if v, ok := f.take("livemode"); ok {
		live, err := strconv.ParseBool(v)
		if err != nil {
			return r, fmt.Errorf("livemode=%s: %w", v, err)
		}
		r.live = live
	}
	if v, ok := f.take("account"); ok && v != "" && v != s.cfg.Account {
		if _, err := s.ensureAccount(v); err != nil {
			return r, err
		}
		r.account = v
	}
	return r, nil
}

// ParseItems reads items as scripts write them, PRICE*QTY[@AMOUNT][#LINE]:
// "price_game*2@1500#li_a" is two of price_game at 15.00 each. A count after
// two dots, "price_game*1..130", is that many such lines.
func ParseItems(specs ...string) ([]Item, error) {
	var items []Item
	for _, spec := range specs {
		it, times := Item{Amount: DefaultAmount}, int64(1)
		rest, line, _ := strings.Cut(spec, "#")
		it.Line = line
		rest, count, many := strings.Cut(rest, "..")
		rest, amount, priced := strings.Cut(rest, "@")
		price, quantity, ok := strings.Cut(rest, "*")
		it.Price = price
		var err error
		if !ok {
			err = fmt.Errorf("no quantity")
		} else if it.Quantity, err = strconv.ParseInt(quantity, 10, 64); err == nil && it.Quantity < 1 {
			err = fmt.Errorf("quantity %d", it.Quantity)
		}
		if err == nil && priced {
			it.Amount, err = strconv.ParseInt(amount, 10, 64)
		}
		if err == nil && many {
			times, err = strconv.ParseInt(count, 10, 64)
		}
		if err == nil && times > 1 && line != "" {
			err = fmt.Errorf("many lines cannot have one id")
		}
		if err != nil {
			return nil, fmt.Errorf("item %q is not PRICE*QTY[@AMOUNT][#LINE]: %w", spec, err)
		}
		for range times {
			items = append(items, it)
		}
	}
	return items, nil
}
