package stripefake

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// templates holds one object of each kind as API version 2023-10-16 shows it,
// with the values a new object has. An object in the store keeps only what
// differs from its template, which makes a hundred thousand of them cheap.
//
//go:embed templates/*.json
var templates embed.FS

// A kind is a type of Stripe object.
type kind struct {
	name     string // what "object" says, and what "No such …" names
	prefix   string // of its ids
	url      string // of its list; empty where the API has none
	template map[string]any

	// expand says which fields expand[] turns into objects, and of what kind.
	// "list:item" is a list that is absent until asked for.
	expand map[string]string

	// index names the fields by which the API lists, each holding an id.
	index []string

	// local is set where scripts use one id in several accounts and modes;
	// all other ids are unique.
	local bool
}

// The kinds that the fake serves.
var (
	sessionKind = newKind(kind{
		name: "checkout.session", prefix: "cs_", url: "/v1/checkout/sessions",
		expand: map[string]string{
			"payment_intent": "payment_intent", "line_items": "list:item", "customer": "customer",
			"invoice": "invoice", "payment_link": "payment_link", "setup_intent": "setup_intent",
			"subscription": "subscription",
		},
		index: []string{"payment_intent", "customer", "payment_link", "subscription"},
	})
	itemKind = newKind(kind{
		name: "item", prefix: "li_",
		expand: map[string]string{"price": "price"},
	})
	intentKind = newKind(kind{
		name: "payment_intent", prefix: "pi_", url: "/v1/payment_intents",
		expand: map[string]string{
			"latest_charge": "charge", "review": "review", "customer": "customer", "invoice": "invoice",
			"payment_method": "payment_method", "application": "application", "on_behalf_of": "account",
		},
		index: []string{"customer"},
	})
	chargeKind = newKind(kind{
		name: "charge", prefix: "ch_", url: "/v1/charges",
		expand: map[string]string{
			"payment_intent": "payment_intent", "review": "review", "customer": "customer",
			"refunds": "list:refund", "dispute": "dispute", "invoice": "invoice",
			"balance_transaction": "balance_transaction", "application": "application",
			"application_fee": "application_fee", "on_behalf_of": "account",
		},
		index: []string{"payment_intent", "customer", "transfer_group"},
	})
	refundKind = newKind(kind{
		name: "refund", prefix: "re_", url: "/v1/refunds",
		expand: map[string]string{
			"payment_intent": "payment_intent", "charge": "charge",
			"balance_transaction": "balance_transaction", "failure_balance_transaction": "balance_transaction",
			"source_transfer_reversal": "transfer_reversal", "transfer_reversal": "transfer_reversal",
		},
		index: []string{"payment_intent", "charge"},
	})
	disputeKind = newKind(kind{
		name: "dispute", prefix: "dp_", url: "/v1/disputes",
		expand: map[string]string{"payment_intent": "payment_intent", "charge": "charge"},
		index:  []string{"payment_intent", "charge"},
	})
	warningKind = newKind(kind{
		name: "radar.early_fraud_warning", prefix: "issfr_", url: "/v1/radar/early_fraud_warnings",
		expand: map[string]string{"payment_intent": "payment_intent", "charge": "charge"},
		index:  []string{"payment_intent", "charge"},
	})
	reviewKind = newKind(kind{
		name: "review", prefix: "prv_", url: "/v1/reviews",
		expand: map[string]string{"payment_intent": "payment_intent", "charge": "charge"},
	})
	priceKind = newKind(kind{
		name: "price", prefix: "price_", url: "/v1/prices", local: true,
		expand: map[string]string{"product": "product"},
		index:  []string{"product"},
	})
	productKind = newKind(kind{
		name: "product", prefix: "prod_", url: "/v1/products", local: true,
		expand: map[string]string{"default_price": "price"},
	})
	eventKind    = newKind(kind{name: "event", prefix: "evt_", url: "/v1/events"})
	endpointKind = newKind(kind{name: "webhook_endpoint", prefix: "we_", url: "/v1/webhook_endpoints"})
	accountKind  = newKind(kind{name: "account", prefix: "acct_"})
)

// kindsByName finds the kind that an expand path leads to. Kinds that the fake
// does not keep (customers, invoices) are not in it.
var kindsByName = func() map[string]*kind {
	m := map[string]*kind{}
	for _, k := range []*kind{
		sessionKind, itemKind, intentKind, chargeKind, refundKind, disputeKind, warningKind, reviewKind,
		priceKind, productKind, eventKind, endpointKind, accountKind,
	} {
		m[k.name] = k
	}
	return m
}()

// newKind reads the kind's template; a broken one is a fault of this package.
func newKind(k kind) *kind {
	b, err := templates.ReadFile("templates/" + k.name + ".json")
	if err != nil {
		panic(err)
	}
	if k.template, err = decodeObject(b); err != nil {
		panic(fmt.Sprintf("template %s: %v", k.name, err))
	}
	return &k
}

// rest is the id without the kind's prefix: the part that the ids of one
// payment share (cs_7, pi_7, ch_7).
func (k *kind) rest(id string) (string, error) {
	r, ok := strings.CutPrefix(id, k.prefix)
	if !ok || r == "" {
		return "", fmt.Errorf("%q is no id of a %s: it does not begin with %s", id, k.name, k.prefix)
	}
	return r, nil
}

// decodeObject decodes JSON with whole numbers as int64, as all of the store
// holds them.
func decodeObject(b []byte) (map[string]any, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var m map[string]any
	if err := d.Decode(&m); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("more than one JSON value")
	}
	return whole(m).(map[string]any), nil
}

func whole(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64()
		return f
	case map[string]any:
		for k, e := range v {
			v[k] = whole(e)
		}
	case []any:
		for i, e := range v {
			v[i] = whole(e)
		}
	}
	return v
}
