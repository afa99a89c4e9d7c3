package fulfillment

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// placed is when the tests' orders are made; refunds come seconds after it.
var placed = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// item is a line of an order: li_<name> of price_<name>, sold from the pool <name>.
func item(name string, quantity, amount int64) Item {
	return Item{SKU: name, Line: Line{ID: "li_" + name, Price: "price_" + name, Product: "prod_" + name, Quantity: quantity, Amount: amount}}
}

// paidFor is a session for the items that was paid by card.
func paidFor(items ...Item) Payment {
	var total int64
	for _, it := range items {
		total += it.Amount
	}
	p := Payment{
		Session: &Session{ID: "cs_1", Mode: "payment", Status: "complete", PaymentStatus: "paid", Currency: "eur", Total: total, CreatedAt: placed},
		Intent:  &Intent{ID: "pi_1", Status: "succeeded", Currency: "eur", Amount: total, Captured: total, Charge: "ch_1", CreatedAt: placed},
	}
	for _, it := range items {
		p.Lines = append(p.Lines, it.Line)
	}
	return p
}

// refunds are of the given amounts, one a second, all succeeded: re_1, re_2, …
func refunds(amounts ...int64) []Refund {
	list := make([]Refund, len(amounts))
	for i, amount := range amounts {
		list[i] = Refund{ID: "re_" + strconv.Itoa(i+1), Status: "succeeded", Amount: amount, CreatedAt: placed.Add(time.Duration(i+1) * time.Second)}
	}
	return list
}

// asked are the kinds and subjects of questions.
func asked(questions Questions) []string {
	var list []string
	for _, q := range questions {
		list = append(list, string(q.Kind)+" "+q.Subject)
	}
	return list
}

func checkVerdict(t *testing.T, v Verdict, payment PaymentState, shares []Share, questions ...string) {
	t.Helper()
	if v.Payment != payment {
		t.Errorf("payment is %s, want %s", v.Payment, payment)
	}
	if diff := cmp.Diff(shares, v.Lines); diff != "" {
		t.Errorf("shares (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(questions, asked(v.Questions)); diff != "" {
		t.Errorf("questions (-want +got):\n%s", diff)
	}
}

func TestKeysAreDueWhenAllTheMoneyCame(t *testing.T) {
	due, pending := []Share{{Due: 2}}, []Share{{Pending: 2}}
	tests := []struct {
		name    string
		change  func(*Payment)
		payment PaymentState
		shares  []Share
		asks    []string
	}{
		{"card", func(*Payment) {}, Paid, due, nil},
		{"free of charge has no PaymentIntent", func(p *Payment) {
			p.Session.PaymentStatus, p.Session.Total, p.Intent = "no_payment_required", 0, nil
		}, Paid, due, nil},
		{"a free session that the buyer has not finished", func(p *Payment) {
			p.Session.Status, p.Session.PaymentStatus, p.Session.Total, p.Intent = "open", "no_payment_required", 0, nil
		}, Pending, pending, nil},
		{"bank debit under way", func(p *Payment) {
			p.Session.PaymentStatus, p.Intent.Status, p.Intent.Captured = "unpaid", "processing", 0
		}, Pending, pending, nil},
		{"voucher not paid yet", func(p *Payment) {
			p.Session.PaymentStatus, p.Intent.Status, p.Intent.Captured = "unpaid", "requires_action", 0
		}, Pending, pending, nil},
		{"authorized, not captured", func(p *Payment) {
			p.Session.PaymentStatus, p.Intent.Status, p.Intent.Captured = "unpaid", "requires_capture", 0
		}, Pending, pending, nil},
		{"captured, and the session has not heard of it", func(p *Payment) {
			p.Session.PaymentStatus = "unpaid"
		}, Paid, due, nil},
		{"paid as the session has it, without a PaymentIntent", func(p *Payment) { p.Intent = nil }, Paid, due, nil},
		{"bank debit failed", func(p *Payment) {
			p.Session.PaymentStatus, p.Intent.Status, p.Intent.Captured = "unpaid", "requires_payment_method", 0
		}, Closed, pending, nil},
		{"first card failed, the buyer may try another", func(p *Payment) {
			p.Session.Status, p.Session.PaymentStatus, p.Intent.Status, p.Intent.Captured = "open", "unpaid", "requires_payment_method", 0
		}, Pending, pending, nil},
		{"authorization canceled", func(p *Payment) {
			p.Session.PaymentStatus, p.Intent.Status, p.Intent.Captured = "unpaid", "canceled", 0
		}, Closed, pending, nil},
		{"session expired", func(p *Payment) {
			p.Session.Status, p.Session.PaymentStatus, p.Intent = "expired", "unpaid", nil
		}, Closed, pending, nil},
		{"session expired while its payment succeeded", func(p *Payment) {
			p.Session.Status, p.Session.PaymentStatus = "expired", "unpaid"
		}, Paid, due, nil},
		{"captured for less", func(p *Payment) { p.Intent.Captured = 1999 }, Pending, pending, []string{"amount_mismatch cs_1"}},
		{"captured for less, session expired", func(p *Payment) {
			p.Session.Status, p.Session.PaymentStatus, p.Intent.Captured = "expired", "unpaid", 1999
		}, Pending, pending, []string{"amount_mismatch cs_1"}},
		{"captured for less, part of it refunded", func(p *Payment) {
			p.Intent.Captured, p.Refunds = 1000, refunds(999)
		}, Pending, pending, []string{"amount_mismatch cs_1"}},
		{"captured for less, all of it refunded", func(p *Payment) {
			p.Intent.Captured, p.Refunds = 1000, refunds(400, 600)
		}, Refunded, []Share{{Revoked: 2}}, nil},
		{"captured for less, the refund of it failed", func(p *Payment) {
			p.Intent.Captured, p.Refunds = 1000, refunds(1000)
			p.Refunds[0].Status = "failed"
		}, Pending, pending, []string{"amount_mismatch cs_1"}},
		{"captured for more", func(p *Payment) { p.Intent.Captured = 2001 }, Paid, due, nil},
		{"shown in another currency", func(p *Payment) {
			p.Session.Currency, p.Session.Total = "jpy", 350_000
		}, Paid, due, nil},
		{"shown in another currency, captured for less", func(p *Payment) {
			p.Session.Currency, p.Session.Total, p.Intent.Captured = "jpy", 1, 1999
		}, Pending, pending, []string{"amount_mismatch cs_1"}},
		{"PaymentIntent without a session", func(p *Payment) { p.Session = nil }, Paid, due, nil},
		{"PaymentIntent without a session, under way", func(p *Payment) {
			p.Session, p.Intent.Status, p.Intent.Captured = nil, "processing", 0
		}, Pending, pending, nil},
		{"PaymentIntent without a session, first card failed", func(p *Payment) {
			p.Session, p.Intent.Status, p.Intent.Captured = nil, "requires_payment_method", 0
		}, Pending, pending, nil},
		{"PaymentIntent without a session, canceled", func(p *Payment) {
			p.Session, p.Intent.Status, p.Intent.Captured = nil, "canceled", 0
		}, Closed, pending, nil},
		{"PaymentIntent without a session, captured for less", func(p *Payment) {
			p.Session, p.Intent.Captured = nil, 1999
		}, Pending, pending, []string{"amount_mismatch pi_1"}},
		{"nothing is known", func(p *Payment) { *p = Payment{} }, Pending, pending, nil},
		{"a status nobody knows", func(p *Payment) {
			p.Session.PaymentStatus, p.Intent.Status, p.Intent.Captured = "thought_about", "thinking", 0
		}, Pending, pending, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			items := []Item{item("game", 2, 2000)}
			p := paidFor(items...)
			tt.change(&p)
			checkVerdict(t, Entitle(p, items, nil, Policy{}), tt.payment, tt.shares, tt.asks...)
		})
	}
}

func TestEachLineHasItsShare(t *testing.T) {
	unmapped := item("new", 3, 300)
	unmapped.SKU = ""
	items := []Item{item("game", 2, 2000), unmapped, item("tool", 0, 0), item("gift", 1, 0)}
	checkVerdict(t, Entitle(paidFor(items...), items, nil, Policy{}), Paid, []Share{{Due: 2}, {Due: 3}, {}, {Due: 1}})
}

func TestDisputesCountByTheirStatus(t *testing.T) {
	tests := []struct {
		statuses []string
		payment  PaymentState
		share    Share
		asks     []string
	}{
		{[]string{"needs_response"}, Disputed, Share{Suspended: 2}, nil},
		{[]string{"under_review"}, Disputed, Share{Suspended: 2}, nil},
		{[]string{"lost"}, Lost, Share{Revoked: 2}, nil},
		{[]string{"won"}, Paid, Share{Due: 2}, nil},
		{[]string{"warning_closed"}, Paid, Share{Due: 2}, nil},
		{[]string{"prevented"}, Paid, Share{Due: 2}, nil},
		{[]string{"warning_needs_response"}, Paid, Share{Due: 2}, []string{"inquiry dp_1"}},
		{[]string{"warning_under_review"}, Paid, Share{Due: 2}, []string{"inquiry dp_1"}},
		{[]string{"charge_refunded"}, Paid, Share{Due: 2}, []string{"unknown_status dp_1"}},
		{[]string{""}, Paid, Share{Due: 2}, []string{"unknown_status dp_1"}},
		{[]string{"won", "needs_response"}, Disputed, Share{Suspended: 2}, nil},
		{[]string{"needs_response", "won"}, Disputed, Share{Suspended: 2}, nil},
		{[]string{"lost", "needs_response"}, Lost, Share{Revoked: 2}, nil},
		{[]string{"under_review", "lost", "won"}, Lost, Share{Revoked: 2}, nil},
		{[]string{"new_word", "warning_needs_response", "under_review"}, Disputed, Share{Suspended: 2},
			[]string{"inquiry dp_2", "unknown_status dp_1"}},
	}
	for _, tt := range tests {
		items := []Item{item("game", 2, 2000)}
		p := paidFor(items...)
		for i, status := range tt.statuses {
			// A dispute of a part of the money is about the whole payment.
			p.Disputes = append(p.Disputes, Dispute{ID: "dp_" + strconv.Itoa(i+1), Status: status, Amount: 500})
		}
		t.Run(strings.Join(tt.statuses, " and "), func(t *testing.T) {
			checkVerdict(t, Entitle(p, items, nil, Policy{}), tt.payment, []Share{tt.share}, tt.asks...)
		})
	}
}

func TestDisputeAndRefund(t *testing.T) {
	items := []Item{item("game", 3, 3000)}
	tests := []struct {
		name    string
		dispute string
		refunds []Refund
		payment PaymentState
		share   Share
	}{
		{"a dispute suspends what a refund left", "needs_response", refunds(1000), Disputed, Share{Revoked: 1, Suspended: 2}},
		{"a dispute that is won gives back what no refund took", "won", refunds(1000), PartRefunded, Share{Revoked: 1, Due: 2}},
		{"a dispute that is lost takes all", "lost", refunds(1000), Lost, Share{Revoked: 3}},
		{"a refund of all needs no dispute", "under_review", refunds(3000), Refunded, Share{Revoked: 3}},
		{"a dispute that is lost after a refund of all", "lost", refunds(3000), Lost, Share{Revoked: 3}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := paidFor(items...)
			p.Refunds = tt.refunds
			p.Disputes = []Dispute{{ID: "dp_1", Status: tt.dispute, Amount: 3000}}
			checkVerdict(t, Entitle(p, items, nil, Policy{}), tt.payment, []Share{tt.share})
		})
	}
}

func TestAWarningIsAnsweredByARefundOrADisputeAndNotByAnInquiry(t *testing.T) {
	asks := "fraud_warning issfr_1"
	tests := []struct {
		name    string
		dispute string
		refund  int64
		payment PaymentState
		share   Share
		asks    []string
	}{
		{"alone", "", 0, Paid, Share{Suspended: 2}, []string{asks}},
		{"an inquiry", "warning_needs_response", 0, Paid, Share{Suspended: 2}, []string{asks, "inquiry dp_1"}},
		{"an inquiry that was closed", "warning_closed", 0, Paid, Share{Suspended: 2}, []string{asks}},
		{"an open dispute", "needs_response", 0, Disputed, Share{Suspended: 2}, nil},
		{"a dispute that was won", "won", 0, Paid, Share{Due: 2}, nil},
		{"a part refunded", "", 1000, PartRefunded, Share{Suspended: 1, Revoked: 1}, []string{asks}},
		{"all refunded", "", 2000, Refunded, Share{Revoked: 2}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			items := []Item{item("game", 2, 2000)}
			p := paidFor(items...)
			p.Warnings = []Warning{{ID: "issfr_1"}}
			if tt.dispute != "" {
				p.Disputes = []Dispute{{ID: "dp_1", Status: tt.dispute, Amount: 2000}}
			}
			if tt.refund > 0 {
				p.Refunds = []Refund{{ID: "re_1", Status: "succeeded", Amount: tt.refund}}
			}
			checkVerdict(t, Entitle(p, items, nil, Policy{SuspendOnWarning: true}), tt.payment, []Share{tt.share}, tt.asks...)
		})
	}
}

func TestWarningsAndReviewsFollowThePolicy(t *testing.T) {
	open := Warning{ID: "issfr_1"}
	due, suspended := Share{Due: 2}, Share{Suspended: 2}
	tests := []struct {
		name     string
		warnings []Warning
		reviews  []Review
		policy   Policy
		share    Share
		asks     []string
	}{
		{"a warning asks", []Warning{open}, nil, Policy{}, due, []string{"fraud_warning issfr_1"}},
		{"a warning suspends where the policy says so", []Warning{open}, nil, Policy{SuspendOnWarning: true}, suspended,
			[]string{"fraud_warning issfr_1"}},
		{"an open review holds the keys back", nil, []Review{{ID: "prv_1", Open: true}}, Policy{}, suspended, nil},
		{"a closed review does not", nil, []Review{{ID: "prv_1"}}, Policy{}, due, nil},
		{"one of two reviews is open", nil, []Review{{ID: "prv_1"}, {ID: "prv_2", Open: true}}, Policy{}, suspended, nil},
		{"an open review does not where the policy says so", nil, []Review{{ID: "prv_1", Open: true}},
			Policy{DeliverInReview: true}, due, nil},
		{"that policy is about reviews only", []Warning{open}, nil, Policy{DeliverInReview: true, SuspendOnWarning: true}, suspended,
			[]string{"fraud_warning issfr_1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			items := []Item{item("game", 2, 2000)}
			p := paidFor(items...)
			p.Warnings, p.Reviews = tt.warnings, tt.reviews
			checkVerdict(t, Entitle(p, items, nil, tt.policy), Paid, []Share{tt.share}, tt.asks...)
		})
	}
}

func TestWhatIsListedTwiceIsAskedOnce(t *testing.T) {
	items := []Item{item("game", 2, 2000)}
	p := paidFor(items...)
	inquiry, warning := Dispute{ID: "dp_1", Status: "warning_needs_response"}, Warning{ID: "issfr_1"}
	p.Disputes, p.Warnings = []Dispute{inquiry, inquiry}, []Warning{warning, warning}
	checkVerdict(t, Entitle(p, items, nil, Policy{}), Paid, []Share{{Due: 2}}, "fraud_warning issfr_1", "inquiry dp_1")
}

func TestAnUnpaidOrderAsksNothingAboutItsMoney(t *testing.T) {
	items := []Item{item("game", 2, 2000)}
	p := paidFor(items...)
	p.Session.PaymentStatus, p.Intent.Status, p.Intent.Captured = "unpaid", "processing", 0
	p.Refunds, p.Disputes = refunds(300), []Dispute{{ID: "dp_1", Status: "new_word"}}
	checkVerdict(t, Entitle(p, items, nil, Policy{}), Pending, []Share{{Pending: 2}})
}
