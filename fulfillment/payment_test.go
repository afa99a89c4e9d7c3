package fulfillment

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestOnlyPaymentsThatSellKeysAreOurs(t *testing.T) {
	tests := []struct {
		name    string
		payment Payment
		ours    bool
	}{
		{"a session", Payment{Session: &Session{Mode: "payment"}}, true},
		{"a session without metadata, of a Payment Link", Payment{Session: &Session{Mode: "payment"}, Intent: &Intent{}}, true},
		{"a subscription", Payment{Session: &Session{Mode: "subscription"}}, false},
		{"a set-up", Payment{Session: &Session{Mode: "setup"}}, false},
		{"a set-up with metadata", Payment{Session: &Session{Mode: "setup"}, Intent: &Intent{Lines: "price_game"}}, false},
		{"a PaymentIntent that says what it sells", Payment{Intent: &Intent{Lines: "price_game"}}, true},
		{"a PaymentIntent of another application", Payment{Intent: &Intent{}}, false},
		{"nothing", Payment{}, false},
	}
	for _, tt := range tests {
		if got := tt.payment.Ours(); got != tt.ours {
			t.Errorf("%s: ours is %t, want %t", tt.name, got, tt.ours)
		}
	}
}

func TestLinesOfMetadata(t *testing.T) {
	tests := []struct {
		list string
		want []mention
	}{
		{"", nil},
		{" , ,", nil},
		{"price_game", []mention{{"price_game", 0}}},
		{"price_game:2", []mention{{"price_game", 2}}},
		{" price_game : 2 ,tool", []mention{{"price_game", 2}, {"tool", 0}}},
		{"a:1,a:1", []mention{{"a", 1}, {"a", 1}}},
		{"a:10000", []mention{{"a", 10_000}}},
		// What cannot be read stays as it is, so that it matches nothing and somebody hears of it.
		{"a:10001", []mention{{"a:10001", 0}}},
		{"a:0", []mention{{"a:0", 0}}},
		{"a:-1", []mention{{"a:-1", 0}}},
		{"a:", []mention{{"a:", 0}}},
		{"a:1:2", []mention{{"a:1:2", 0}}},
		{":3", []mention{{":3", 0}}},
		{"a:99999999999999999999", []mention{{"a:99999999999999999999", 0}}},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, parseMentions(tt.list), cmp.AllowUnexported(mention{})); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tt.list, diff)
		}
	}
}

func TestLinesOfAPaymentIntent(t *testing.T) {
	one := Payment{Intent: &Intent{ID: "pi_1", Amount: 3000, Lines: "price_game:3"}}
	if diff := cmp.Diff([]Line{{ID: "line_1", Price: "price_game", Description: "price_game", Quantity: 3, Amount: 3000}}, one.lines()); diff != "" {
		t.Errorf("one line has the whole amount (-want +got):\n%s", diff)
	}
	two := Payment{Intent: &Intent{ID: "pi_1", Amount: 3000, Lines: "price_game,tool:x"}}
	want := []Line{{ID: "line_1", Price: "price_game", Description: "price_game", Quantity: 1, Amount: 3000, Unpriced: true},
		{ID: "line_2", Price: "tool:x", Description: "tool:x", Quantity: 1, Amount: 3000, Unpriced: true}}
	if diff := cmp.Diff(want, two.lines()); diff != "" {
		t.Errorf("several lines have no amounts of their own (-want +got):\n%s", diff)
	}
}

// An order that was made before its session could be found stays the only order of the payment.
func TestASessionSeenAsItsPaymentIntent(t *testing.T) {
	items := []Item{item("game", 2, 2000)}
	p := paidFor(items...)
	p.Intent.Lines = "price_game:2"
	seen := p.asIntent()
	if seen.OrderID() != "pi_1" || p.OrderID() != "cs_1" {
		t.Errorf("orders %s and %s, want pi_1 and still cs_1", seen.OrderID(), p.OrderID())
	}
	if got := seen.lines(); len(got) != 1 || got[0].ID != "line_1" || got[0].Quantity != 2 {
		t.Errorf("lines %v, want those of the metadata", got)
	}
}

func TestAnEventAboutAnyPartMeansThePayment(t *testing.T) {
	p := paidFor(item("game", 1, 1000))
	p.Refunds, p.Disputes = refunds(1, 2), []Dispute{{ID: "dp_1"}}
	p.Warnings, p.Reviews = []Warning{{ID: "issfr_1"}}, []Review{{ID: "prv_1"}}
	want := []string{"cs_1", "pi_1", "ch_1", "re_1", "re_2", "dp_1", "issfr_1", "prv_1"}
	if diff := cmp.Diff(want, p.refs()); diff != "" {
		t.Errorf("refs (-want +got):\n%s", diff)
	}
	if got := (Payment{Intent: &Intent{ID: "pi_2"}}).refs(); !cmp.Equal(got, []string{"pi_2"}) {
		t.Errorf("refs of a PaymentIntent without a charge: %v", got)
	}
}

func TestRefundsThatCountOldestFirst(t *testing.T) {
	at := func(s int) time.Time { return placed.Add(time.Duration(s) * time.Second) }
	p := Payment{Refunds: []Refund{
		{ID: "re_9", Amount: 1, Status: "succeeded", CreatedAt: at(2)},
		{ID: "re_5", Amount: 1, Status: "succeeded", CreatedAt: at(2)},
		{ID: "re_7", Amount: 1, Status: "pending", CreatedAt: at(1)},
		{ID: "re_1", Amount: 1, Status: "failed", CreatedAt: at(0)},
		{ID: "re_2", Amount: 1, Status: "canceled", CreatedAt: at(0)},
		{ID: "re_5", Amount: 1, Status: "succeeded", CreatedAt: at(2)},
		// Read twice while it failed: it has failed.
		{ID: "re_3", Amount: 1, Status: "succeeded", CreatedAt: at(3)},
		{ID: "re_3", Amount: 1, Status: "failed", CreatedAt: at(3)},
	}}
	var ids []string
	for _, r := range p.refundsInOrder() {
		ids = append(ids, r.ID)
	}
	if diff := cmp.Diff([]string{"re_7", "re_5", "re_9"}, ids); diff != "" {
		t.Errorf("refunds (-want +got):\n%s", diff)
	}
	if p.Refunds[0].ID != "re_9" {
		t.Error("the payment's own list was sorted")
	}
}
