package reconcile

import (
	"testing"
	"time"

	"github.com/keytill/keytill/fulfillment"
)

func TestWhatDiffers(t *testing.T) {
	t.Parallel()
	session := func(status, payment string) Object {
		return Object{ID: "cs_1", Status: status, PaymentStatus: payment, Mode: "payment", Intent: "pi_1"}
	}
	intent := func(status string, received int64) Object {
		return Object{ID: "pi_1", Intent: "pi_1", Status: status, Amount: received}
	}
	sells := func(o Object) Object { o.Sells = true; return o }
	order := func(state fulfillment.PaymentState, captured int64) stored {
		return stored{Order: "cs_1", Payment: state, Captured: captured}
	}
	keys := func(s stored) stored { s.HasKeys = true; return s }
	alone := func(s stored) stored { s.Order = "pi_1"; return s }
	claim := func(status string, amount int64) Object {
		return Object{ID: "x_1", Intent: "pi_1", Status: status, Amount: amount}
	}
	known := func(status string, amount int64) stored {
		return stored{Order: "cs_1", Payment: fulfillment.Paid, Status: status, Amount: amount}
	}
	for name, tt := range map[string]struct {
		kind   Kind
		object Object
		stored stored
		want   Reason
	}{
		"paid, no order":                      {Sessions, session("complete", "paid"), stored{}, PaidWithoutOrder},
		"free, no order":                      {Sessions, session("complete", "no_payment_required"), stored{}, PaidWithoutOrder},
		"paid, order pending":                 {Sessions, session("complete", "paid"), order("pending", 0), PaidOrderOpen},
		"paid, order closed":                  {Sessions, session("complete", "paid"), order("closed", 0), PaidOrderOpen},
		"paid, order paid":                    {Sessions, session("complete", "paid"), order("paid", 10), Same},
		"paid, order refunded":                {Sessions, session("complete", "paid"), order("refunded", 10), Same},
		"unpaid, no order":                    {Sessions, session("complete", "unpaid"), stored{}, UnpaidWithoutOrder},
		"unpaid, order pending":               {Sessions, session("complete", "unpaid"), order("pending", 0), Same},
		"captured by hand: says unpaid still": {Sessions, session("complete", "unpaid"), keys(order("paid", 10)), Same},
		"open cart":                           {Sessions, session("open", "unpaid"), stored{}, Same},
		"expired, never an order":             {Sessions, session("expired", "unpaid"), stored{}, Same},
		"expired, order pending":              {Sessions, session("expired", "unpaid"), order("pending", 0), ClosedOrderOpen},
		"subscription":                        {Sessions, Object{ID: "cs_2", Status: "complete", PaymentStatus: "paid", Mode: "subscription"}, stored{}, Same},

		"another shop's PaymentIntent":       {Intents, intent("succeeded", 10), stored{}, Same},
		"sells keys, no order":               {Intents, sells(intent("succeeded", 10)), stored{}, PaidWithoutOrder},
		"sells keys, on its way":             {Intents, sells(intent("processing", 0)), stored{}, UnpaidWithoutOrder},
		"sells keys, authorized":             {Intents, sells(intent("requires_capture", 0)), stored{}, UnpaidWithoutOrder},
		"sells keys, not tried yet":          {Intents, sells(intent("requires_payment_method", 0)), stored{}, Same},
		"succeeded, order pending":           {Intents, intent("succeeded", 10), order("pending", 0), PaidOrderOpen},
		"succeeded, order paid":              {Intents, intent("succeeded", 10), order("paid", 10), Same},
		"succeeded, other amount":            {Intents, intent("succeeded", 9), order("paid", 10), AmountDiffers},
		"canceled, order pending":            {Intents, intent("canceled", 0), order("pending", 0), ClosedOrderOpen},
		"canceled, order closed":             {Intents, intent("canceled", 0), order("closed", 0), Same},
		"bank debit failed":                  {Intents, intent("requires_payment_method", 0), order("pending", 0), ClosedOrderOpen},
		"card failed, may be tried again":    {Intents, sells(intent("requires_payment_method", 0)), alone(order("pending", 0)), Same},
		"void, keys are out":                 {Intents, intent("canceled", 0), keys(order("paid", 10)), DeliveredUnpaid},
		"void, order ahead, keys taken back": {Intents, intent("canceled", 0), order("paid", 10), OrderAhead},
		"processing, order pending":          {Intents, intent("processing", 0), order("pending", 0), Same},

		"refund of who knows what": {Refunds, claim("succeeded", 5), stored{}, Same},
		"refund unknown":           {Refunds, claim("succeeded", 5), known("", 0), RefundDiffers},
		"refund failed since":      {Refunds, claim("failed", 5), known("succeeded", 5), RefundDiffers},
		"refund known":             {Refunds, claim("succeeded", 5), known("succeeded", 5), Same},
		"dispute unknown":          {Disputes, claim("needs_response", 5), known("", 0), DisputeDiffers},
		"dispute won since":        {Disputes, claim("won", 5), known("under_review", 5), DisputeDiffers},
		"dispute known":            {Disputes, claim("lost", 5), known("lost", 5), Same},

		"warning unknown":        {Warnings, Object{ID: "issfr_1", Actionable: true}, order("paid", 10), WarningDiffers},
		"warning known":          {Warnings, Object{ID: "issfr_1", Actionable: true}, stored{Order: "cs_1", Warned: true}, Same},
		"warning answered":       {Warnings, Object{ID: "issfr_1"}, stored{Order: "cs_1", Warned: true}, WarningDiffers},
		"warning of no order":    {Warnings, Object{ID: "issfr_1", Actionable: true}, stored{}, Same},
		"event never came":       {Events, Object{ID: "evt_1", Event: &Event{}}, stored{}, EventMissing},
		"event waits for a job":  {Events, Object{ID: "evt_1", Event: &Event{}}, stored{Event: "pending"}, Same},
		"event done":             {Events, Object{ID: "evt_1", Event: &Event{}}, stored{Event: "done"}, Same},
		"event ignored":          {Events, Object{ID: "evt_1", Event: &Event{}}, stored{Event: "ignored"}, Same},
		"a kind that is unknown": {Kind("plans"), Object{ID: "x"}, stored{}, Same},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := compare(tt.kind, tt.object, tt.stored); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestADigestChangesWithEitherSideAndNotWithWhatWasLookedFor(t *testing.T) {
	t.Parallel()
	o := Object{ID: "cs_1", Created: time.Unix(1, 0).UTC(), Status: "complete", PaymentStatus: "paid"}
	s := stored{Order: "cs_1", Payment: "pending"}
	base := string(digest(Sessions, o, s))
	looked, other, paid := s, o, s
	looked.LookedFor = []byte(base)
	other.PaymentStatus = "unpaid"
	paid.Payment = "paid"
	if string(digest(Sessions, o, looked)) != base {
		t.Error("what was looked for is part of it")
	}
	if string(digest(Sessions, other, s)) == base || string(digest(Sessions, o, paid)) == base {
		t.Error("a change does not show")
	}
}
