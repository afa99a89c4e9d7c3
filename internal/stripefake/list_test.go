package stripefake

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v76"
)

// a clock that stands still until it is moved.
type clock struct{ t time.Time }

func (c *clock) now() time.Time       { return c.t }
func (c *clock) move(d time.Duration) { c.t = c.t.Add(d) }
func newClock() *clock                { return &clock{time.Unix(1_750_000_000, 0)} }

func TestListsArePagedNewestFirstBothWays(t *testing.T) {
	t.Parallel()
	c := newClock()
	s, api := start(t, Config{Now: c.now})
	var want []string
	for i := range 25 {
		must(t, s.Session(fmt.Sprintf("cs_%d", i), mustItems(t, "price_game*1"), nil))
		want = append([]string{fmt.Sprintf("pi_%d", i)}, want...)
		if i%3 == 0 {
			c.move(time.Second)
		}
	}
	var got []string
	it := api.PaymentIntents.List(nil)
	for it.Next() {
		got = append(got, it.PaymentIntent().ID)
	}
	must(t, it.Err())
	if !slices.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}

	p := &stripe.PaymentIntentListParams{}
	p.EndingBefore = stripe.String("pi_10")
	p.Limit = stripe.Int64(4)
	got = nil
	it = api.PaymentIntents.List(p)
	for it.Next() { // the library walks such a list from its end
		got = append(got, it.PaymentIntent().ID)
	}
	must(t, it.Err())
	up := slices.Clone(want[:14])
	slices.Reverse(up)
	if !slices.Equal(got, up) {
		t.Errorf("got %v\nwant %v", got, up)
	}
}

func TestObjectMadeForEarlierStandsInItsPlace(t *testing.T) {
	t.Parallel()
	c := newClock()
	s, api := start(t, Config{Now: c.now})
	for i, ago := range []int64{0, 30, 10, 20} {
		must(t, s.Intent(fmt.Sprintf("pi_%d", i), Fields{"amount": "5", "created": fmt.Sprint(c.t.Unix() - ago)}))
	}
	must(t, s.Set("pi_0", Fields{"created": fmt.Sprint(c.t.Unix() - 15)}))
	list := func() (ids string) {
		it := api.PaymentIntents.List(nil)
		for it.Next() {
			ids += it.PaymentIntent().ID + " "
		}
		must(t, it.Err())
		return ids
	}
	if got := list(); got != "pi_2 pi_0 pi_3 pi_1 " {
		t.Error(got)
	}
}

func TestFilters(t *testing.T) {
	t.Parallel()
	c := newClock()
	s, _ := start(t, Config{Now: c.now})
	base := c.t.Unix()
	for i := range 5 { // created base … base+4
		f := Fields{"customer": fmt.Sprintf("cus_%d", i%2)}
		if i == 3 {
			f = Fields{"status": "expired", "customer_details.email": "other@example.com"}
		}
		must(t, s.Session(fmt.Sprintf("cs_%d", i), mustItems(t, "price_game*1"), f))
		c.move(time.Second)
	}
	must(t, s.Refund("re_0", "pi_0", Fields{"amount": "10"}))
	must(t, s.Refund("re_1", "pi_1", nil))
	must(t, s.Refund("re_2", "pi_0", Fields{"amount": "20"}))
	must(t, s.Dispute("dp_1", "pi_1", nil))
	must(t, s.Warning("issfr_1", "pi_1", nil))
	must(t, s.Review("prv_1", "pi_1", nil))
	must(t, s.WebhookEndpoint("we_1", Fields{"url": "https://a.example", "status": "disabled"}))
	for query, want := range map[string]string{
		"checkout/sessions?payment_intent=pi_2":                                     "cs_2",
		"checkout/sessions?customer=cus_0":                                          "cs_4 cs_2 cs_0",
		"checkout/sessions?status=expired":                                          "cs_3",
		"checkout/sessions?status=complete&limit=2":                                 "cs_4 cs_2 +",
		"checkout/sessions?status=complete&limit=2&starting_after=cs_2":             "cs_1 cs_0",
		"checkout/sessions?status=complete&starting_after=cs_3":                     "cs_2 cs_1 cs_0",
		"checkout/sessions?status=complete&ending_before=cs_3":                      "cs_4",
		"checkout/sessions?customer_details[email]=other@example.com":               "cs_3",
		"checkout/sessions?customer=cus_0&starting_after=cs_3":                      "cs_2 cs_0",
		fmt.Sprintf("payment_intents?created=%d", base+1):                           "pi_1",
		fmt.Sprintf("payment_intents?created[gt]=%d", base+2):                       "pi_4 pi_3",
		fmt.Sprintf("payment_intents?created[gte]=%d", base+2):                      "pi_4 pi_3 pi_2",
		fmt.Sprintf("payment_intents?created[lt]=%d", base+2):                       "pi_1 pi_0",
		fmt.Sprintf("payment_intents?created[lte]=%d&created[gt]=%d", base+2, base): "pi_2 pi_1",
		fmt.Sprintf("payment_intents?created[gt]=%d", base+9):                       "",
		"charges?payment_intent=pi_2":                                               "ch_2",
		"charges?limit=1":                                                           "ch_4 +",
		"refunds?payment_intent=pi_0":                                               "re_2 re_0",
		"refunds?charge=ch_1":                                                       "re_1",
		"refunds?charge=ch_1&payment_intent=pi_0":                                   "",
		"disputes?payment_intent=pi_1":                                              "dp_1",
		"disputes?payment_intent=pi_0":                                              "",
		"radar/early_fraud_warnings?charge=ch_1":                                    "issfr_1",
		"radar/early_fraud_warnings?payment_intent=pi_0":                            "",
		fmt.Sprintf("reviews?created[gte]=%d", base+5):                              "prv_1",
		"webhook_endpoints":                                                         "we_1",
		"prices?product=prod_game":                                                  "price_game",
		"checkout/sessions/":                                                        "cs_4 cs_3 cs_2 cs_1 cs_0", // what asking for an empty id comes to
		"checkout/sessions/cs_1/line_items?limit=1":                                 "li_1_1",
		"checkout/sessions/cs_1/line_items?limit=3":                                 "li_1_1",
		"checkout/sessions?payment_intent=pi_2&created=12":                          "",
	} {
		if got := listed(t, s, query); got != want {
			t.Errorf("%s: got %q, want %q", query, got, want)
		}
	}
	must(t, s.Set("cs_2", Fields{"payment_intent": "", "customer": "cus_1"}))
	if got := listed(t, s, "checkout/sessions?payment_intent=pi_2"); got != "" {
		t.Errorf("after it was taken away: %q", got)
	}
	if got := listed(t, s, "checkout/sessions?customer=cus_1"); got != "cs_2 cs_1" {
		t.Errorf("after it changed hands: %q", got)
	}
}

// listed asks without Stripe's library and returns the ids, and + for more.
func listed(t *testing.T, s *Server, query string) string {
	t.Helper()
	a, _, _ := s.accept(request(t, s, "/v1/"+query), nil, nil)
	if a.status != 200 {
		t.Fatalf("%s: %v", query, a.value)
	}
	var ids []string
	for _, o := range a.value["data"].([]any) {
		ids = append(ids, o.(map[string]any)["id"].(string))
	}
	if a.value["has_more"].(bool) {
		ids = append(ids, "+")
	}
	return strings.Join(ids, " ")
}

func TestExpand(t *testing.T) {
	t.Parallel()
	s, api := start(t, Config{})
	must(t, s.Session("cs_1", mustItems(t, "price_game*1..12"), Fields{"customer": "cus_1"}))
	must(t, s.Session("cs_2", mustItems(t, "price_game*1"), Fields{"payment_status": "no_payment_required"}))
	must(t, s.Refund("re_1", "pi_1", Fields{"amount": "1"}))
	must(t, s.Refund("re_2", "pi_1", Fields{"amount": "2"}))

	p := &stripe.CheckoutSessionParams{}
	for _, path := range []string{"line_items", "line_items.data.price.product", "payment_intent.latest_charge.refunds", "customer"} {
		p.AddExpand(path)
	}
	cs, err := api.CheckoutSessions.Get("cs_1", p)
	must(t, err)
	if len(cs.LineItems.Data) != 10 || !cs.LineItems.HasMore || cs.LineItems.Data[9].Price.Product.Name != "game" {
		t.Errorf("got lines %+v", cs.LineItems)
	}
	if ch := cs.PaymentIntent.LatestCharge; ch.AmountRefunded != 3 || len(ch.Refunds.Data) != 2 || ch.Refunds.Data[0].ID != "re_2" {
		t.Errorf("got charge %+v", ch)
	}
	if cs.Customer.ID != "cus_1" || cs.Customer.Object != "customer" {
		t.Errorf("got customer %+v", cs.Customer)
	}
	if cs, err = api.CheckoutSessions.Get("cs_2", p); err != nil || cs.PaymentIntent != nil || cs.LineItems.HasMore {
		t.Errorf("a free one: got %+v, %v", cs, err)
	}

	lp := &stripe.CheckoutSessionListParams{}
	lp.AddExpand("data.payment_intent")
	lp.AddExpand("data.line_items")
	it := api.CheckoutSessions.List(lp)
	for it.Next() {
		cs := it.CheckoutSession()
		if len(cs.LineItems.Data) == 0 || (cs.ID == "cs_1" && cs.PaymentIntent.AmountReceived != 12_000) {
			t.Errorf("got %+v", cs)
		}
	}
	must(t, it.Err())

	rp := &stripe.RefundParams{}
	rp.AddExpand("charge.payment_intent")
	if re, err := api.Refunds.Get("re_1", rp); err != nil || re.Charge.PaymentIntent.Status != "succeeded" {
		t.Errorf("got %+v, %v", re, err)
	}
	if got := field(t, s, "cs_1", "payment_intent"); got != "pi_1" {
		t.Errorf("expanding changed the object itself: %v", got)
	}
}
