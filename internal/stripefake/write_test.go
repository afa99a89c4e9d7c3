package stripefake

import (
	"strings"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v76"
)

func TestRefundOverTheWire(t *testing.T) {
	t.Parallel()
	s, api := start(t, Config{})
	must(t, s.Session("cs_1", mustItems(t, "price_game*1"), nil))
	must(t, s.Session("cs_2", mustItems(t, "price_game*1"), Fields{"payment_status": "unpaid"}))
	re, err := api.Refunds.New(&stripe.RefundParams{
		PaymentIntent: stripe.String("pi_1"), Amount: stripe.Int64(400),
		Reason: stripe.String("requested_by_customer"), Metadata: map[string]string{"keytill_lines": "li_1_1"},
	})
	must(t, err)
	if re.Amount != 400 || re.Status != "succeeded" || re.Charge.ID != "ch_1" || re.Metadata["keytill_lines"] != "li_1_1" {
		t.Errorf("got %+v", re)
	}
	_, err = api.Refunds.New(&stripe.RefundParams{PaymentIntent: stripe.String("pi_1"), Amount: stripe.Int64(601)})
	if e := refused(t, err, 400, ""); !strings.Contains(e.Msg, "($6.01) is greater than unrefunded amount on charge ($6.00)") {
		t.Error(e.Msg)
	}
	_, err = api.Refunds.New(&stripe.RefundParams{Charge: stripe.String("ch_1")}) // the rest
	must(t, err)
	_, err = api.Refunds.New(&stripe.RefundParams{PaymentIntent: stripe.String("pi_1")})
	refused(t, err, 400, stripe.ErrorCodeChargeAlreadyRefunded)
	_, err = api.Refunds.New(&stripe.RefundParams{PaymentIntent: stripe.String("pi_2")})
	refused(t, err, 400, "")
	_, err = api.Refunds.New(&stripe.RefundParams{PaymentIntent: stripe.String("pi_0")})
	refused(t, err, 400, stripe.ErrorCodeResourceMissing)
	check(t, s, map[string]any{"ch_1.refunded": true, "ch_1.amount_refunded": int64(1000)})
	it := api.Events.List(&stripe.EventListParams{Types: stripe.StringSlice([]string{"refund.created", "charge.refunded"})})
	n := 0
	for it.Next() {
		n++
	}
	if it.Err() != nil || n != 4 {
		t.Errorf("%d events of two refunds, %v", n, it.Err())
	}
}

func TestDisputedChargeIsNotRefunded(t *testing.T) {
	t.Parallel()
	s, api := start(t, Config{})
	must(t, s.Session("cs_1", mustItems(t, "price_game*1"), nil))
	must(t, s.Dispute("dp_1", "pi_1", Fields{"status": "warning_needs_response"}))
	p := &stripe.RefundParams{PaymentIntent: stripe.String("pi_1"), Amount: stripe.Int64(1)}
	_, err := api.Refunds.New(p)
	must(t, err) // an inquiry takes no money
	must(t, s.Set("dp_1", Fields{"status": "needs_response"}))
	_, err = api.Refunds.New(p)
	refused(t, err, 400, "charge_disputed")
	must(t, s.Set("dp_1", Fields{"status": "won"}))
	_, err = api.Refunds.New(p)
	must(t, err)
}

func TestIdempotencyKeyRepeatsTheFirstAnswer(t *testing.T) {
	t.Parallel()
	c := newClock()
	s, api := start(t, Config{Now: c.now})
	must(t, s.Session("cs_1", mustItems(t, "price_game*1"), nil))
	refund := func(key string, amount int64) (*stripe.Refund, error) {
		p := &stripe.RefundParams{PaymentIntent: stripe.String("pi_1"), Amount: stripe.Int64(amount)}
		p.SetIdempotencyKey(key)
		return api.Refunds.New(p)
	}
	first, err := refund("a", 300)
	must(t, err)
	again, err := refund("a", 300)
	must(t, err)
	if again.ID != first.ID || again.LastResponse.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("got %s %v, first %s", again.ID, again.LastResponse.Header, first.ID)
	}
	_, err = refund("a", 200)
	if e := refused(t, err, 400, ""); e.Type != stripe.ErrorTypeIdempotency {
		t.Errorf("got %s", e.Type)
	}
	if other, err := refund("b", 300); err != nil || other.ID == first.ID {
		t.Errorf("got %+v, %v", other, err)
	}
	check(t, s, map[string]any{"ch_1.amount_refunded": int64(600)})
	c.move(25 * time.Hour)
	if later, err := refund("a", 300); err != nil || later.ID == first.ID {
		t.Errorf("a day later got %+v, %v", later, err)
	}
}

func TestAnswerLostAfterItsEffectIsFoundByItsKey(t *testing.T) {
	t.Parallel()
	s, api := start(t, Config{})
	must(t, s.Session("cs_1", mustItems(t, "price_game*1"), nil))
	p := &stripe.RefundParams{PaymentIntent: stripe.String("pi_1")}
	p.SetIdempotencyKey("a")
	s.Fail(1, Fault{Status: 502, AfterEffect: true})
	_, err := api.Refunds.New(p)
	refused(t, err, 502, "")
	if re, err := api.Refunds.New(p); err != nil || re.Amount != 1000 {
		t.Errorf("got %+v, %v", re, err)
	}
	s.Fail(1, Fault{Status: 502})
	must(t, s.Session("cs_2", mustItems(t, "price_game*1"), nil))
	_, err = api.Refunds.New(&stripe.RefundParams{PaymentIntent: stripe.String("pi_2")})
	refused(t, err, 502, "")
	check(t, s, map[string]any{"ch_2.amount_refunded": int64(0)})
}

func TestCaptureOverTheWire(t *testing.T) {
	t.Parallel()
	s, api := start(t, Config{})
	must(t, s.Session("cs_1", mustItems(t, "price_game*2"), Fields{"payment_status": "unpaid", "intent.status": "requires_capture"}))
	_, err := api.PaymentIntents.Capture("pi_1", &stripe.PaymentIntentCaptureParams{AmountToCapture: stripe.Int64(2001)})
	refused(t, err, 400, stripe.ErrorCodeAmountTooLarge)
	pi, err := api.PaymentIntents.Capture("pi_1", &stripe.PaymentIntentCaptureParams{AmountToCapture: stripe.Int64(1500)})
	must(t, err)
	if pi.Status != "succeeded" || pi.AmountReceived != 1500 || pi.AmountCapturable != 0 {
		t.Errorf("got %+v", pi)
	}
	check(t, s, map[string]any{"ch_1.captured": true, "ch_1.amount_captured": int64(1500)})
	_, err = api.PaymentIntents.Capture("pi_1", nil)
	refused(t, err, 400, stripe.ErrorCodePaymentIntentUnexpectedState)
	_, err = api.PaymentIntents.Capture("pi_0", nil)
	refused(t, err, 404, stripe.ErrorCodeResourceMissing)
}

func TestCheckoutFromOpenToPaidOrExpired(t *testing.T) {
	t.Parallel()
	s, api := start(t, Config{})
	must(t, s.Price("price_game", Fields{"unit_amount": "2500", "currency": "eur"}))
	params := func() *stripe.CheckoutSessionParams {
		return &stripe.CheckoutSessionParams{
			Mode: stripe.String("payment"), SuccessURL: stripe.String("https://shop.example.com/ok"), CustomerEmail: stripe.String("me@example.com"),
			ClientReferenceID: stripe.String("cart-1"), Metadata: map[string]string{"a": "b"},
			LineItems: []*stripe.CheckoutSessionLineItemParams{
				{Price: stripe.String("price_game"), Quantity: stripe.Int64(2)},
				{Quantity: stripe.Int64(1), PriceData: &stripe.CheckoutSessionLineItemPriceDataParams{
					Currency: stripe.String("eur"), UnitAmount: stripe.Int64(99),
					ProductData: &stripe.CheckoutSessionLineItemPriceDataProductDataParams{Name: stripe.String("Sticker")},
				}},
			},
		}
	}
	cs, err := api.CheckoutSessions.New(params())
	must(t, err)
	if cs.Status != "open" || cs.PaymentStatus != "unpaid" || cs.AmountTotal != 5099 || cs.Currency != "eur" || cs.URL == "" ||
		cs.PaymentIntent != nil || cs.CustomerDetails != nil || cs.ClientReferenceID != "cart-1" || cs.Metadata["a"] != "b" {
		t.Errorf("got %+v", cs)
	}
	must(t, s.Complete(cs.ID, nil))
	p := &stripe.CheckoutSessionParams{}
	p.AddExpand("payment_intent.latest_charge")
	cs, err = api.CheckoutSessions.Get(cs.ID, p)
	must(t, err)
	if cs.Status != "complete" || cs.PaymentStatus != "paid" || cs.CustomerDetails.Email != "me@example.com" ||
		cs.PaymentIntent.AmountReceived != 5099 || cs.PaymentIntent.LatestCharge.BillingDetails.Email != "me@example.com" {
		t.Errorf("got %+v", cs)
	}
	if err := s.Complete(cs.ID, nil); err == nil {
		t.Error("paid twice")
	}
	_, err = api.CheckoutSessions.Expire(cs.ID, nil)
	refused(t, err, 400, "")

	cs, err = api.CheckoutSessions.New(params())
	must(t, err)
	if cs, err = api.CheckoutSessions.Expire(cs.ID, nil); err != nil || cs.Status != "expired" {
		t.Errorf("got %+v, %v", cs, err)
	}

	bad := params()
	bad.LineItems[0].Price = stripe.String("price_none")
	_, err = api.CheckoutSessions.New(bad)
	refused(t, err, 400, stripe.ErrorCodeResourceMissing)
	bad = params()
	bad.SuccessURL = nil
	_, err = api.CheckoutSessions.New(bad)
	refused(t, err, 400, stripe.ErrorCodeParameterMissing)
}
