package stripefake

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v76"
)

// field reads a dotted path of an object as it is now.
func field(t *testing.T, s *Server, id, path string) any {
	t.Helper()
	raw, err := s.Snapshot(id)
	must(t, err)
	m, err := decodeObject(raw)
	must(t, err)
	return at(m, strings.Split(path, "."))
}

// check compares fields of objects, written "pi_1.status": "succeeded".
func check(t *testing.T, s *Server, want map[string]any) {
	t.Helper()
	for name, w := range want {
		id, path, _ := strings.Cut(name, ".")
		if got := field(t, s, id, path); got != w {
			t.Errorf("%s is %v (%T), want %v (%T)", name, got, got, w, w)
		}
	}
}

func TestSessionDecidesWhatItsPaymentIsLike(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		fields Fields
		want   map[string]any
	}{
		"paid": {nil, map[string]any{
			"cs_1.status": "complete", "cs_1.payment_status": "paid", "cs_1.payment_intent": "pi_1", "cs_1.amount_total": int64(3000),
			"pi_1.status": "succeeded", "pi_1.amount_received": int64(3000), "pi_1.latest_charge": "ch_1",
			"ch_1.captured": true, "ch_1.paid": true, "ch_1.amount_captured": int64(3000), "ch_1.billing_details.email": "buyer@example.com",
		}},
		"unpaid": {Fields{"payment_status": "unpaid"}, map[string]any{
			"pi_1.status": "processing", "pi_1.amount_received": int64(0), "ch_1.status": "pending", "ch_1.paid": false, "ch_1.amount_captured": int64(0),
		}},
		"authorized": {Fields{"payment_status": "unpaid", "intent.status": "requires_capture"}, map[string]any{
			"pi_1.capture_method": "manual", "pi_1.amount_capturable": int64(3000), "pi_1.amount_received": int64(0),
			"ch_1.status": "succeeded", "ch_1.captured": false, "ch_1.amount_captured": int64(0), "ch_1.refunded": false,
		}},
		"expired": {Fields{"status": "expired"}, map[string]any{
			"cs_1.payment_status": "unpaid", "pi_1.status": "canceled", "pi_1.latest_charge": nil,
		}},
		"free":           {Fields{"payment_status": "no_payment_required"}, map[string]any{"cs_1.payment_intent": nil}},
		"open":           {Fields{"status": "open"}, map[string]any{"cs_1.payment_intent": nil, "cs_1.payment_status": "unpaid"}},
		"setup":          {Fields{"mode": "setup"}, map[string]any{"cs_1.payment_intent": nil, "cs_1.amount_total": nil, "cs_1.currency": nil}},
		"subscription":   {Fields{"mode": "subscription"}, map[string]any{"cs_1.payment_intent": nil, "cs_1.subscription": "sub_1"}},
		"without e-mail": {Fields{"customer_details.email": ""}, map[string]any{"cs_1.customer_details.email": nil, "ch_1.billing_details.email": nil}},
		"of long ago": {Fields{"created": "1700000000"}, map[string]any{
			"cs_1.expires_at": int64(1700086400), "pi_1.created": int64(1700000000), "ch_1.created": int64(1700000000),
		}},
		"metadata and more": {Fields{"metadata.n": "7", "intent.metadata.yes": "true", "currency": "jpy", "client_reference_id": "42", "intent.receipt_email": "a@b.c"}, map[string]any{
			"cs_1.metadata.n": "7", "pi_1.metadata.yes": "true", "ch_1.metadata.yes": "true", "cs_1.client_reference_id": "42",
			"pi_1.currency": "jpy", "ch_1.receipt_email": "a@b.c", "li_1_1.currency": "jpy", "price_game.currency": "jpy",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := New(Config{})
			must(t, s.Session("cs_1", mustItems(t, "price_game*3"), tc.fields))
			check(t, s, tc.want)
			if pi, stated := tc.want["cs_1.payment_intent"]; stated && pi == nil && (s.store.byID["pi_1"] != nil || s.store.byID["ch_1"] != nil) {
				t.Error("there is a payment of it")
			}
		})
	}
}

func TestPaymentFollowsItsStatus(t *testing.T) {
	t.Parallel()
	s := New(Config{Now: func() time.Time { return time.Unix(1_750_000_000, 0) }})
	for _, id := range []string{"cs_1", "cs_2", "cs_3", "cs_4"} {
		must(t, s.Session(id, mustItems(t, "price_game*2"), Fields{"payment_status": "unpaid", "intent.status": "requires_capture"}))
	}
	must(t, s.Session("cs_5", mustItems(t, "price_game*2"), Fields{"payment_status": "unpaid"}))

	must(t, s.Set("pi_1", Fields{"status": "succeeded"}))
	must(t, s.Set("pi_2", Fields{"status": "succeeded", "amount_received": "500"}))
	must(t, s.Set("pi_3", Fields{"status": "canceled", "cancellation_reason": "abandoned"}))
	must(t, s.Set("pi_4", Fields{"metadata.note": "x"}))
	must(t, s.Set("pi_5", Fields{"status": "requires_payment_method"}))
	check(t, s, map[string]any{
		"pi_1.amount_received": int64(2000), "pi_1.amount_capturable": int64(0), "ch_1.captured": true, "ch_1.amount_captured": int64(2000),
		"cs_1.payment_status":  "unpaid", // nothing but the payment tells of a capture
		"pi_2.amount_received": int64(500), "ch_2.amount_captured": int64(500), "ch_2.amount": int64(2000),
		"pi_3.canceled_at": int64(1_750_000_000), "ch_3.refunded": true, "ch_3.captured": false, "pi_3.cancellation_reason": "abandoned",
		"pi_4.status": "requires_capture", "pi_4.amount_capturable": int64(2000),
		"ch_5.status": "failed", "ch_5.paid": false, "pi_5.last_payment_error.code": "card_declined",
	})

	must(t, s.Set("pi_5", Fields{"status": "succeeded"}))
	check(t, s, map[string]any{"ch_5.status": "succeeded", "ch_5.failure_code": nil, "pi_5.amount_received": int64(2000)})
}

func TestRefundsAddUpInTheCharge(t *testing.T) {
	t.Parallel()
	s := New(Config{})
	must(t, s.Session("cs_1", mustItems(t, "price_game*2"), nil))
	must(t, s.Refund("re_1", "pi_1", Fields{"amount": "500"}))
	check(t, s, map[string]any{"ch_1.amount_refunded": int64(500), "ch_1.refunded": false, "re_1.charge": "ch_1", "re_1.payment_intent": "pi_1", "re_1.status": "succeeded"})
	must(t, s.Refund("re_2", "pi_1", Fields{"amount": "1500", "status": "pending", "metadata.keytill_lines": "li_1_1"}))
	check(t, s, map[string]any{"ch_1.amount_refunded": int64(2000), "ch_1.refunded": true, "re_2.metadata.keytill_lines": "li_1_1"})
	if err := s.Refund("re_3", "pi_1", Fields{"amount": "1"}); err == nil {
		t.Error("more than all was refunded")
	}
	must(t, s.Set("re_2", Fields{"status": "failed"}))
	check(t, s, map[string]any{"ch_1.amount_refunded": int64(500), "ch_1.refunded": false})

	must(t, s.Session("cs_2", mustItems(t, "price_game*1"), Fields{"payment_status": "unpaid", "intent.status": "requires_capture"}))
	if err := s.Refund("re_4", "pi_2", nil); err == nil {
		t.Error("what was never captured was refunded")
	}
	must(t, s.Set("pi_2", Fields{"status": "succeeded", "amount_received": "400"}))
	must(t, s.Refund("re_4", "pi_2", Fields{"amount": "all"}))
	check(t, s, map[string]any{"re_4.amount": int64(400), "ch_2.refunded": true})
}

func TestDisputesWarningsAndReviewsMarkThePayment(t *testing.T) {
	t.Parallel()
	s := New(Config{})
	must(t, s.Session("cs_1", mustItems(t, "price_game*2"), nil))
	must(t, s.Warning("issfr_1", "pi_1", nil))
	must(t, s.Review("prv_1", "pi_1", nil))
	check(t, s, map[string]any{"issfr_1.actionable": true, "ch_1.disputed": false, "pi_1.review": "prv_1", "prv_1.open": true})
	must(t, s.Dispute("dp_1", "pi_1", Fields{"status": "warning_needs_response"}))
	must(t, s.Set("prv_1", Fields{"open": "false"}))
	check(t, s, map[string]any{
		"dp_1.amount": int64(2000), "dp_1.status": "warning_needs_response", "ch_1.disputed": true, "issfr_1.actionable": false,
		"prv_1.open": false, "prv_1.closed_reason": "approved",
	})
}

func TestMakersRefuseWhatCannotBe(t *testing.T) {
	t.Parallel()
	s := New(Config{})
	must(t, s.Session("cs_1", mustItems(t, "price_game*1#li_a"), nil))
	must(t, s.Session("cs_free", nil, Fields{"payment_status": "no_payment_required"}))
	must(t, s.Intent("pi_9", Fields{"amount": "500", "status": "requires_payment_method"}))
	for name, err := range map[string]error{
		"session twice":            s.Session("cs_1", nil, nil),
		"line twice":               s.Session("cs_2", mustItems(t, "price_game*1#li_a"), nil),
		"wrong prefix":             s.Session("pi_2", nil, nil),
		"fields of no intent":      s.Session("cs_4", nil, Fields{"mode": "setup", "intent.status": "canceled"}),
		"number that is none":      s.Session("cs_5", nil, Fields{"amount_total": "much"}),
		"intent without amount":    s.Intent("pi_3", nil),
		"intent twice":             s.Intent("pi_1", Fields{"amount": "1"}),
		"refund of nothing":        s.Refund("re_1", "pi_0", nil),
		"refund of a session":      s.Refund("re_1", "cs_1", nil),
		"refund without charge":    s.Refund("re_1", "pi_9", nil),
		"set unknown":              s.Set("pi_0", nil),
		"set id":                   s.Set("pi_1", Fields{"id": "pi_2"}),
		"set inside a string":      s.Set("cs_1", Fields{"payment_intent.status": "canceled"}),
		"set an object to a value": s.Set("cs_1", Fields{"customer_details": "x"}),
		"price twice":              s.Price("price_game", nil),
		"account of another kind":  s.Account("cs_1", nil),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := s.Set("cs_1", Fields{"status": "expired", "created": "then"}); err == nil || field(t, s, "cs_1", "status") != "complete" {
		t.Errorf("a change that failed (%v) changed something", err)
	}
	check(t, s, map[string]any{"pi_9.latest_charge": nil})
}

func TestPricesKeepTheirProductsAndCanBeInSeveralAccounts(t *testing.T) {
	t.Parallel()
	s := New(Config{})
	must(t, s.Price("price_game", Fields{"product": "prod_x", "unit_amount": "1500"}))
	must(t, s.Session("cs_1", mustItems(t, "price_game*2@1500"), nil))
	check(t, s, map[string]any{"price_game.product": "prod_x", "prod_x.name": "x", "li_1_1.price.unit_amount": int64(1500)})
	must(t, s.Session("cs_2", mustItems(t, "price_game*1"), Fields{"account": "acct_1"}))
	check(t, s, map[string]any{"li_2_1.price.product": "prod_game"})
	if err := s.Set("price_game", Fields{"nickname": "n"}); err == nil {
		t.Error("it was not asked which price_game")
	}
	must(t, s.Set("price_game", Fields{"nickname": "n", "account": "acct_1"}))
	check(t, s, map[string]any{"li_1_1.price.nickname": nil, "li_2_1.price.nickname": "n"})
}

func TestParseItems(t *testing.T) {
	t.Parallel()
	got := mustItems(t, "price_a*2", "price_b*1@0#li_x", "price_c*3@250..2")
	want := []Item{
		{Price: "price_a", Quantity: 2, Amount: 1000}, {Price: "price_b", Quantity: 1, Line: "li_x"},
		{Price: "price_c", Quantity: 3, Amount: 250}, {Price: "price_c", Quantity: 3, Amount: 250},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for _, bad := range []string{"price_a", "price_a*", "price_a*0", "price_a*1@x", "price_a*1..x", "price_a*1..2#li_x"} {
		if _, err := ParseItems(bad); err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
}

func TestEveryObjectDecodesWithStripesLibrary(t *testing.T) {
	t.Parallel()
	s := New(Config{})
	must(t, s.Session("cs_1", mustItems(t, "price_game*1"), nil))
	must(t, s.Refund("re_1", "pi_1", Fields{"amount": "10"}))
	must(t, s.Dispute("dp_1", "pi_1", nil))
	must(t, s.Warning("issfr_1", "pi_1", nil))
	must(t, s.Review("prv_1", "pi_1", nil))
	must(t, s.WebhookEndpoint("we_1", Fields{"enabled_events": "charge.refunded,refund.created", "api_version": "2025-09-30.clover"}))
	for id, into := range map[string]any{
		"cs_1": &stripe.CheckoutSession{}, "li_1_1": &stripe.LineItem{}, "pi_1": &stripe.PaymentIntent{}, "ch_1": &stripe.Charge{},
		"re_1": &stripe.Refund{}, "dp_1": &stripe.Dispute{}, "issfr_1": &stripe.RadarEarlyFraudWarning{}, "prv_1": &stripe.Review{},
		"price_game": &stripe.Price{}, "prod_game": &stripe.Product{}, "we_1": &stripe.WebhookEndpoint{}, "acct_keytill": &stripe.Account{},
	} {
		raw, err := s.Snapshot(id)
		must(t, err)
		if err := json.Unmarshal(raw, into); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
}
