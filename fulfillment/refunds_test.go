package fulfillment

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestRefundsTakeUnits(t *testing.T) {
	game3 := []Item{item("game", 3, 3000)}
	pair := []Item{item("a", 1, 1000), item("b", 1, 1000)}
	unlike := []Item{item("a", 1, 2500), item("b", 2, 1400)}
	ask := []string{"unattributed_refund cs_1"}

	// with makes a refund of one with a status, named the lines it names.
	with := func(list []Refund, n int, status, lines string) []Refund {
		list = slices.Clone(list)
		list[n].Status, list[n].Lines = status, lines
		return list
	}
	naming := func(list []Refund, lines ...string) []Refund {
		list = slices.Clone(list)
		for i, l := range lines {
			list[i].Lines = l
		}
		return list
	}
	tests := []struct {
		name    string
		items   []Item
		refunds []Refund
		answers map[string]string
		payment PaymentState
		shares  []Share
		asks    []string
	}{
		// All of it.
		{"all", game3, refunds(3000), nil, Refunded, []Share{{Revoked: 3}}, nil},
		{"all, in parts that fit nothing", unlike, refunds(1, 99, 3800), nil, Refunded, []Share{{Revoked: 1}, {Revoked: 2}}, nil},
		{"all, whatever it names", pair, naming(refunds(2000), "li_a"), nil, Refunded, []Share{{Revoked: 1}, {Revoked: 1}}, nil},
		{"all, whatever a person said", pair, refunds(2000), map[string]string{"re_1": "none"}, Refunded, []Share{{Revoked: 1}, {Revoked: 1}}, nil},
		{"all, lines without a price too", []Item{item("a", 1, 1000), item("gift", 1, 0)}, refunds(1000), nil, Refunded,
			[]Share{{Revoked: 1}, {Revoked: 1}}, nil},
		{"more than all", game3, refunds(3001), nil, Refunded, []Share{{Revoked: 3}}, nil},
		{"all, on its way", game3, with(refunds(3000), 0, "pending", ""), nil, Paid, []Share{{Suspended: 3}}, nil},
		{"all, the larger part on its way", game3, with(refunds(1000, 2000), 1, "pending", ""), nil, PartRefunded,
			[]Share{{Revoked: 1, Suspended: 2}}, nil},

		// By status.
		{"pending", game3, with(refunds(1000), 0, "pending", ""), nil, Paid, []Share{{Suspended: 1, Due: 2}}, nil},
		{"requires_action", game3, with(refunds(1000), 0, "requires_action", ""), nil, Paid, []Share{{Suspended: 1, Due: 2}}, nil},
		{"failed", game3, with(refunds(1000), 0, "failed", ""), nil, Paid, []Share{{Due: 3}}, nil},
		{"canceled", game3, with(refunds(3000), 0, "canceled", "li_game"), nil, Paid, []Share{{Due: 3}}, nil},
		{"unknown", game3, with(refunds(3000), 0, "on_the_moon", ""), nil, Paid, []Share{{Due: 3}}, []string{"unknown_status re_1"}},
		{"one failed, one succeeded", game3, with(refunds(2000, 1000), 0, "failed", ""), nil, PartRefunded, []Share{{Revoked: 1, Due: 2}}, nil},
		{"one pending, one succeeded", game3, with(refunds(1000, 1000), 0, "pending", ""), nil, PartRefunded,
			[]Share{{Revoked: 1, Suspended: 1, Due: 1}}, nil},
		{"a sum that is not all there yet suspends", unlike, with(refunds(2000, 500), 1, "pending", ""), nil, PartRefunded,
			[]Share{{Suspended: 1}, {Due: 2}}, nil},
		{"two refunds name one unit, the older on its way", pair, with(naming(refunds(500, 500), "", "li_a"), 0, "pending", "li_a"), nil,
			PartRefunded, []Share{{Revoked: 1}, {Due: 1}}, nil},

		// One line: the sum over the unit's amount, where that is whole.
		{"one of three", game3, refunds(1000), nil, PartRefunded, []Share{{Revoked: 1, Due: 2}}, nil},
		{"one and another of three", game3, refunds(1000, 1000), nil, PartRefunded, []Share{{Revoked: 2, Due: 1}}, nil},
		{"halves of a unit", game3, refunds(500, 500), nil, PartRefunded, []Share{{Revoked: 1, Due: 2}}, nil},
		{"one and a half", game3, refunds(1500), nil, PartRefunded, []Share{{Due: 3}}, ask},
		{"one, and a half more", game3, refunds(1000, 500), nil, PartRefunded, []Share{{Revoked: 1, Due: 2}}, ask},
		{"less than a unit", game3, refunds(300), nil, PartRefunded, []Share{{Due: 3}}, ask},
		{"an indivisible amount, one unit of it", []Item{item("a", 3, 1000)}, refunds(333), nil, PartRefunded, []Share{{Due: 3}}, ask},
		{"an indivisible amount that is whole for some units", []Item{item("a", 4, 1002)}, refunds(501), nil, PartRefunded,
			[]Share{{Revoked: 2, Due: 2}}, nil},
		{"units of less than a cent", []Item{item("a", 1000, 10)}, refunds(1), nil, PartRefunded, []Share{{Revoked: 100, Due: 900}}, nil},

		// Several lines: the only combination.
		{"fits one line", unlike, refunds(1400), nil, PartRefunded, []Share{{Due: 1}, {Revoked: 2}}, nil},
		{"fits one unit of a line", unlike, refunds(700), nil, PartRefunded, []Share{{Due: 1}, {Revoked: 1, Due: 1}}, nil},
		{"fits units of two lines", unlike, refunds(3200), nil, PartRefunded, []Share{{Revoked: 1}, {Revoked: 1, Due: 1}}, nil},
		{"fits two ways", pair, refunds(1000), nil, PartRefunded, []Share{{Due: 1}, {Due: 1}}, ask},
		{"fits two lines of one price: still two ways", []Item{{SKU: "game", Line: Line{ID: "li_1", Price: "price_game", Quantity: 1, Amount: 1000}},
			{SKU: "game", Line: Line{ID: "li_2", Price: "price_game", Quantity: 1, Amount: 1000}}}, refunds(1000), nil, PartRefunded,
			[]Share{{Due: 1}, {Due: 1}}, ask},
		{"fits one line or two others", []Item{item("a", 1, 1000), item("b", 1, 700), item("c", 1, 300)}, refunds(1000), nil, PartRefunded,
			[]Share{{Due: 1}, {Due: 1}, {Due: 1}}, ask},
		{"fits none", unlike, refunds(1), nil, PartRefunded, []Share{{Due: 1}, {Due: 2}}, ask},
		{"two refunds fit one after the other", unlike, refunds(700, 2500), nil, PartRefunded, []Share{{Revoked: 1}, {Revoked: 1, Due: 1}}, nil},
		{"two that fit two ways together do not give back what the first took", []Item{item("a", 1, 1000), item("b", 1, 700), item("c", 1, 300)},
			refunds(700, 300), nil, PartRefunded, []Share{{Due: 1}, {Revoked: 1}, {Due: 1}}, ask},
		{"a sum that fits another line does not give back what its first part took", []Item{item("a", 1, 1000), item("b", 1, 1600)},
			refunds(1000, 600), nil, PartRefunded, []Share{{Revoked: 1}, {Due: 1}}, ask},
		{"an earlier goodwill hides what a later refund is for", unlike, refunds(300, 1400), nil, PartRefunded, []Share{{Due: 1}, {Due: 2}}, ask},
		{"lines of no amount are not taken by a sum", []Item{item("a", 1, 1000), item("gift", 1, 0), item("b", 1, 500)}, refunds(1000), nil,
			PartRefunded, []Share{{Revoked: 1}, {Due: 1}, {Due: 1}}, nil},
		{"a line without keys fits", []Item{{Line: Line{ID: "li_coffee", Price: "price_coffee", Quantity: 1, Amount: 400}}, item("a", 1, 1000)},
			refunds(400), nil, PartRefunded, []Share{{Revoked: 1}, {Due: 1}}, nil},
		{"a line without keys makes two ways of one", []Item{{Line: Line{ID: "li_coffee", Price: "price_coffee", Quantity: 1, Amount: 1000}},
			item("a", 1, 1000)}, refunds(1000), nil, PartRefunded, []Share{{Due: 1}, {Due: 1}}, ask},

		// The refund names its lines.
		{"by line", pair, naming(refunds(1000), "li_b"), nil, PartRefunded, []Share{{Due: 1}, {Revoked: 1}}, nil},
		{"by price", pair, naming(refunds(1000), "price_b"), nil, PartRefunded, []Share{{Due: 1}, {Revoked: 1}}, nil},
		{"by product", pair, naming(refunds(1000), "prod_b"), nil, PartRefunded, []Share{{Due: 1}, {Revoked: 1}}, nil},
		{"by SKU", pair, naming(refunds(1000), "b"), nil, PartRefunded, []Share{{Due: 1}, {Revoked: 1}}, nil},
		{"by price and quantity", game3, naming(refunds(2000), "price_game:2"), nil, PartRefunded, []Share{{Revoked: 2, Due: 1}}, nil},
		{"the quantity counts, not the amount", game3, naming(refunds(2000), "li_game:1"), nil, PartRefunded, []Share{{Revoked: 1, Due: 2}}, nil},
		{"without a quantity: what it pays for", game3, naming(refunds(2000), "li_game"), nil, PartRefunded, []Share{{Revoked: 2, Due: 1}}, nil},
		{"without a quantity: what it pays for in full", game3, naming(refunds(1999), "li_game"), nil, PartRefunded, []Share{{Revoked: 1, Due: 2}}, nil},
		{"without a quantity: one at least", game3, naming(refunds(10), "li_game"), nil, PartRefunded, []Share{{Revoked: 1, Due: 2}}, nil},
		{"several without a quantity: one each", []Item{item("a", 2, 2000), item("b", 2, 2000)}, naming(refunds(2000), "li_a, li_b"), nil,
			PartRefunded, []Share{{Revoked: 1, Due: 1}, {Revoked: 1, Due: 1}}, nil},
		{"a price on two lines goes over both", []Item{{Line: Line{ID: "li_1", Price: "price_game", Quantity: 1, Amount: 1000}},
			{Line: Line{ID: "li_2", Price: "price_game", Quantity: 3, Amount: 3000}}}, naming(refunds(2000), "price_game"), nil,
			PartRefunded, []Share{{Revoked: 1}, {Revoked: 1, Due: 2}}, nil},
		{"more than there are", game3, naming(refunds(2000), "li_game:9"), nil, PartRefunded, []Share{{Revoked: 3}}, nil},
		{"one line twice", game3, naming(refunds(1000, 1000), "li_game:1", "li_game:1"), nil, PartRefunded, []Share{{Revoked: 2, Due: 1}}, nil},
		{"a name no line has is as if none was said", unlike, naming(refunds(1400), "li_typo"), nil, PartRefunded, []Share{{Due: 1}, {Revoked: 2}}, nil},
		{"a name no line has, and nothing fits", unlike, naming(refunds(1300), "li_typo"), nil, PartRefunded, []Share{{Due: 1}, {Due: 2}}, ask},
		{"one of two names no line has", unlike, naming(refunds(2600), "li_a,li_typo"), nil, PartRefunded, []Share{{Revoked: 1}, {Due: 2}}, ask},
		{"one of two names no line has, and the other is worth it", unlike, naming(refunds(2500), "li_a,li_typo"), nil, PartRefunded,
			[]Share{{Revoked: 1}, {Due: 2}}, nil},
		{"a quantity that cannot be read", unlike, naming(refunds(2500), "li_a:x"), nil, PartRefunded, []Share{{Revoked: 1}, {Due: 2}}, nil},
		{"none", pair, naming(refunds(1000), " none "), nil, PartRefunded, []Share{{Due: 1}, {Due: 1}}, nil},
		{"a line of no amount", []Item{item("a", 1, 1000), item("gift", 2, 0)}, naming(refunds(500), "li_gift"), nil, PartRefunded,
			[]Share{{Due: 1}, {Revoked: 1, Due: 1}}, nil},
		{"named and on its way", game3, with(refunds(2000), 0, "pending", "li_game"), nil, Paid, []Share{{Suspended: 2, Due: 1}}, nil},
		{"what is named is not there for a sum", pair, naming(refunds(1000, 999), "li_b"), nil, PartRefunded, []Share{{Due: 1}, {Revoked: 1}}, ask},
		{"what is named leaves one way for a sum", []Item{item("a", 1, 1000), item("b", 1, 1000), item("c", 1, 5000)},
			naming(refunds(1000, 1000), "", "li_b"), nil, PartRefunded, []Share{{Revoked: 1}, {Revoked: 1}, {Due: 1}}, nil},
		{"named and summed on one line", game3, naming(refunds(1000, 1000), "li_game"), nil, PartRefunded, []Share{{Revoked: 2, Due: 1}}, nil},

		// A person says what a refund is for.
		{"an answer", pair, refunds(1000), map[string]string{"re_1": "li_b"}, PartRefunded, []Share{{Due: 1}, {Revoked: 1}}, nil},
		{"an answer beats what the refund says", pair, naming(refunds(1000), "li_a"), map[string]string{"re_1": "li_b"}, PartRefunded,
			[]Share{{Due: 1}, {Revoked: 1}}, nil},
		{"goodwill", game3, refunds(300), map[string]string{"re_1": "none"}, PartRefunded, []Share{{Due: 3}}, nil},
		{"goodwill of a unit's amount", game3, refunds(1000), map[string]string{"re_1": "none"}, PartRefunded, []Share{{Due: 3}}, nil},
		{"goodwill no longer hides what a later refund is for", unlike, refunds(300, 1400), map[string]string{"re_1": "none"}, PartRefunded,
			[]Share{{Due: 1}, {Revoked: 2}}, nil},
		{"an answer for one of two that make a unit together", pair, refunds(300, 700), map[string]string{"re_2": "li_b"}, PartRefunded,
			[]Share{{Due: 1}, {Revoked: 1}}, nil},
		{"an answer for a refund that failed", game3, with(refunds(1000), 0, "failed", ""), map[string]string{"re_1": "li_game"}, Paid,
			[]Share{{Due: 3}}, nil},
		{"an answer that takes back what a refund named", game3, naming(refunds(1000), "li_game"), map[string]string{"re_1": "none"}, PartRefunded,
			[]Share{{Due: 3}}, nil},

		// Not money.
		{"a refund of nothing", game3, naming(refunds(0), "li_game"), nil, Paid, []Share{{Due: 3}}, nil},
		{"a refund below nothing", game3, refunds(1000, -1000), nil, PartRefunded, []Share{{Revoked: 1, Due: 2}}, nil},
		{"a refund on two pages of the list", game3, append(refunds(1000), refunds(1000)...), nil, PartRefunded, []Share{{Revoked: 1, Due: 2}}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := paidFor(tt.items...)
			p.Refunds = tt.refunds
			checkVerdict(t, Entitle(p, tt.items, tt.answers, Policy{}), tt.payment, tt.shares, tt.asks...)
		})
	}
}

func TestRefundedCountsWhatHasGoneBackForGood(t *testing.T) {
	items := []Item{item("game", 9, 9000)}
	p := paidFor(items...)
	p.Refunds = refunds(1, 20, 300, 4000)
	p.Refunds[0].Status, p.Refunds[1].Status, p.Refunds[2].Status = "pending", "failed", "succeeded"
	if v := Entitle(p, items, nil, Policy{}); v.Refunded != 4300 {
		t.Errorf("refunded %d, want 4300", v.Refunded)
	}
}

func TestTheQuestionNamesTheRefunds(t *testing.T) {
	items := []Item{item("a", 1, 1000), item("b", 1, 1600)}
	p := paidFor(items...)
	p.Refunds = refunds(1000, 5, 7)
	v := Entitle(p, items, nil, Policy{})
	if len(v.Questions) != 1 {
		t.Fatalf("questions: %v, want one", v.Questions)
	}
	detail := v.Questions[0].Detail
	if !strings.Contains(detail, "re_2, re_3") || strings.Contains(detail, "re_1") {
		t.Errorf("the question names not the refunds re_2 and re_3 alone: %s", detail)
	}
}

// The buyer saw yen, the money is in euro: only names and the whole say which keys a refund is for.
func TestRefundInAnotherCurrencyThanTheLines(t *testing.T) {
	items := []Item{item("game", 3, 1500)}
	tests := []struct {
		name    string
		amount  int64
		lines   string
		payment PaymentState
		share   Share
		asks    []string
	}{
		{"an amount that would fit", 500, "", PartRefunded, Share{Due: 3}, []string{"unattributed_refund cs_1"}},
		{"an amount as large as the lines'", 1500, "", PartRefunded, Share{Due: 3}, []string{"unattributed_refund cs_1"}},
		{"a line", 1500, "li_game", PartRefunded, Share{Revoked: 1, Due: 2}, nil},
		{"a line and a quantity", 1500, "li_game:2", PartRefunded, Share{Revoked: 2, Due: 1}, nil},
		{"none", 1500, "none", PartRefunded, Share{Due: 3}, nil},
		{"all", 9000, "", Refunded, Share{Revoked: 3}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := paidFor(items...)
			p.Session.Currency, p.Intent.Amount, p.Intent.Captured = "jpy", 9000, 9000
			p.Refunds = refunds(tt.amount)
			p.Refunds[0].Lines = tt.lines
			checkVerdict(t, Entitle(p, items, nil, Policy{}), tt.payment, []Share{tt.share}, tt.asks...)
		})
	}
}

// Of a PaymentIntent that sells several things, only the whole amount is known.
func TestRefundOfLinesWithoutAmounts(t *testing.T) {
	tests := []struct {
		name   string
		sells  string
		refund Refund
		shares []Share
		asks   []string
	}{
		{"several things, a sum", "price_game:3,tool", Refund{Amount: 1000}, []Share{{Due: 3}, {Due: 1}}, []string{"unattributed_refund pi_1"}},
		{"several things, by name", "price_game:3,tool", Refund{Amount: 2000, Lines: "price_game"}, []Share{{Revoked: 1, Due: 2}, {Due: 1}}, nil},
		{"several things, by line and quantity", "price_game:2,tool", Refund{Amount: 1000, Lines: "line_1:2"}, []Share{{Revoked: 2}, {Due: 1}}, nil},
		{"several things, all", "price_game:2,tool", Refund{Amount: 3000}, []Share{{Revoked: 2}, {Revoked: 1}}, nil},
		{"one thing, a sum", "price_game:3", Refund{Amount: 2000}, []Share{{Revoked: 2, Due: 1}}, nil},
		{"one thing, goodwill", "price_game:3", Refund{Amount: 200}, []Share{{Due: 3}}, []string{"unattributed_refund pi_1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := Payment{Intent: &Intent{ID: "pi_1", Status: "succeeded", Currency: "eur", Amount: 3000, Captured: 3000, Lines: tt.sells}}
			var items []Item
			for _, l := range p.lines() {
				items = append(items, Item{Line: l})
			}
			tt.refund.ID, tt.refund.Status = "re_1", "succeeded"
			p.Refunds = []Refund{tt.refund}
			v := Entitle(p, items, nil, Policy{})
			checkVerdict(t, v, v.Payment, tt.shares, tt.asks...)
		})
	}
}

func TestAmountsThatNoProductHolds(t *testing.T) {
	const huge = math.MaxInt64
	items := []Item{item("a", huge, huge), item("b", 2, huge-1)}
	p := paidFor(items[0])
	p.Refunds = refunds(huge/2, 7)
	p.Refunds[0].Lines = "li_a"
	v := Entitle(p, items, nil, Policy{})
	if got := v.Lines[0].Revoked; got != huge/2+7 {
		t.Errorf("revoked %d units of one minor unit each, want %d", got, int64(huge/2+7))
	}
	p.Refunds = refunds(huge-8, huge-8)
	if v = Entitle(p, items, nil, Policy{}); v.Payment != Refunded || v.Refunded != huge || v.Lines[0] != (Share{Revoked: huge}) {
		t.Errorf("refunds of more than a number holds: %s, %d refunded, shares %+v, want all", v.Payment, v.Refunded, v.Lines)
	}
}

// Many amounts have more combinations than anybody can try; the work is bounded and a person is asked.
func TestWorkForManyLinesIsBounded(t *testing.T) {
	var items []Item
	for i := range int64(130) {
		items = append(items, item(strconv.FormatInt(i, 10), 1+i%3, (1+i%3)*(100_003+i*i*7919)))
	}
	p := paidFor(items...)
	for i := range int64(100) {
		p.Refunds = append(p.Refunds, Refund{ID: "re_" + strconv.FormatInt(i, 10), Status: "succeeded", Amount: 100_003 + i*i*31,
			CreatedAt: placed.Add(time.Duration(i) * time.Second)})
	}
	start := time.Now()
	v := Entitle(p, items, nil, Policy{})
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("took %v", took)
	}
	if len(v.Questions) != 1 || v.Questions[0].Kind != UnattributedRefund {
		t.Errorf("questions: %v, want what the refunds are for", v.Questions)
	}
	var refunded int64
	for i, s := range v.Lines {
		refunded += items[i].Amount / items[i].Quantity * s.Revoked
	}
	if refunded > v.Refunded {
		t.Errorf("took units of %d for refunds of %d", refunded, v.Refunded)
	}
}

// A line of many units is no reason to ask.
func TestOneLargeLineIsWithinTheBudget(t *testing.T) {
	items := []Item{item("game", maxUnits, maxUnits*999)}
	p := paidFor(items...)
	p.Refunds = refunds(999 * (maxUnits - 1))
	checkVerdict(t, Entitle(p, items, nil, Policy{}), PartRefunded, []Share{{Revoked: maxUnits - 1, Due: 1}})
}

// All lines but one: there are more ways to pick lines than anybody can try, and few sums they can come to.
func TestSumsThatWereTriedAreRemembered(t *testing.T) {
	var items []Item
	want := make([]Share, 31)
	for i := range want {
		items, want[i] = append(items, item(strconv.Itoa(i), 1, 200)), Share{Revoked: 1}
	}
	items[30].Amount, want[30] = 101, Share{Due: 1}
	p := paidFor(items...)
	p.Refunds = refunds(30 * 200)
	checkVerdict(t, Entitle(p, items, nil, Policy{}), PartRefunded, want)
}
