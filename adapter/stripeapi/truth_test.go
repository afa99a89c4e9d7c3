package stripeapi

import (
	"errors"
	"testing"

	"github.com/stripe/stripe-go/v76"

	"github.com/keytill/keytill/fulfillment"
)

func TestListsThatLackWhatTheChargeKnowsAreRefused(t *testing.T) {
	t.Parallel()
	charge := stripe.Charge{ID: "ch_1", Captured: true, Amount: 3000, AmountCaptured: 3000}
	with := func(change func(*stripe.Charge)) *stripe.Charge {
		c := charge
		change(&c)
		return &c
	}
	refunds := func(amounts ...int64) (p fulfillment.Payment) {
		for _, a := range amounts {
			p.Refunds = append(p.Refunds, fulfillment.Refund{Amount: a})
		}
		return p
	}
	disputed := fulfillment.Payment{Disputes: []fulfillment.Dispute{{ID: "dp_1"}}}
	for name, tt := range map[string]struct {
		charge  *stripe.Charge
		payment fulfillment.Payment
		ok      bool
	}{
		"no charge":                    {nil, refunds(), true},
		"nothing went back":            {&charge, refunds(), true},
		"all refunds are there":        {with(func(c *stripe.Charge) { c.AmountRefunded = 2000 }), refunds(1000, 1000), true},
		"one more, that failed since":  {with(func(c *stripe.Charge) { c.AmountRefunded = 1000 }), refunds(1000, 1000), true},
		"one is missing":               {with(func(c *stripe.Charge) { c.AmountRefunded = 2000 }), refunds(1000), false},
		"all are missing":              {with(func(c *stripe.Charge) { c.AmountRefunded = 3000 }), refunds(), false},
		"an authorization was let go":  {with(func(c *stripe.Charge) { c.Captured, c.AmountCaptured, c.AmountRefunded = false, 0, 3000 }), refunds(), true},
		"a part of it was captured":    {with(func(c *stripe.Charge) { c.AmountCaptured, c.AmountRefunded = 2000, 1000 }), refunds(), true},
		"the dispute is there":         {with(func(c *stripe.Charge) { c.Disputed = true }), disputed, true},
		"the dispute is missing":       {with(func(c *stripe.Charge) { c.Disputed = true }), refunds(), false},
		"a dispute that is newer only": {&charge, disputed, true},
	} {
		if err := agree(tt.charge, tt.payment); (err == nil) != tt.ok || err != nil && !errors.Is(err, ErrContradiction) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLinesThatDoNotMakeTheAmountAreShort(t *testing.T) {
	t.Parallel()
	session := &stripe.CheckoutSession{Currency: "eur", AmountSubtotal: 3000}
	lines := func(currency stripe.Currency, amounts ...int64) (items []*stripe.LineItem) {
		for _, a := range amounts {
			items = append(items, &stripe.LineItem{Currency: currency, AmountSubtotal: a})
		}
		return items
	}
	for name, tt := range map[string]struct {
		items []*stripe.LineItem
		want  bool
	}{
		"none":                 {nil, true},
		"all":                  {lines("eur", 1000, 2000), false},
		"rounded":              {lines("eur", 999, 1999), false},
		"one is missing":       {lines("eur", 1000, 1000), true},
		"of another currency":  {lines("usd", 10), false},
		"more than the amount": {lines("eur", 3000, 1000), false},
	} {
		if got := short(session, tt.items); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestAListIsReadOnceAndToItsEnd(t *testing.T) {
	t.Parallel()
	pages := func(more bool, pages ...[]string) func(stripe.ListParams) page[string] {
		n := 0
		return func(stripe.ListParams) page[string] {
			p := pages[n%len(pages)]
			n++
			return page[string]{data: p, more: more || n < len(pages)}
		}
	}
	for name, tt := range map[string]struct {
		read func(stripe.ListParams) page[string]
		want error
	}{
		"nothing":                   {pages(false, []string{}), nil},
		"two pages":                 {pages(false, []string{"a", "b"}, []string{"c"}), nil},
		"no list":                   {pages(false, nil), errNoList},
		"more, and an empty page":   {pages(true, []string{"a"}, []string{}), errEmptyPage},
		"the same page":             {pages(true, []string{"a", "b"}), errRepeatedPage},
		"pages in a round":          {pages(true, []string{"a"}, []string{"b"}, []string{"c"}), errRepeatedPage},
		"an item twice":             {pages(false, []string{"a", "a"}), errRepeatedPage},
		"an item without a name":    {pages(false, []string{""}), errRepeatedPage},
		"an end that does not come": {counting(), errEndless},
	} {
		if _, err := all(tt.read, func(s string) string { return s }); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
}

// counting is a list without an end.
func counting() func(stripe.ListParams) page[string] {
	last := ""
	return func(stripe.ListParams) page[string] {
		last += "x"
		return page[string]{data: []string{last}, more: true}
	}
}
