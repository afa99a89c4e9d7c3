package fulfillment

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/keytill/keytill/inventory"
)

var (
	refundStatuses  = []string{"succeeded", "succeeded", "succeeded", "pending", "requires_action", "failed", "canceled", "new_word"}
	disputeStatuses = []string{"needs_response", "under_review", "lost", "won", "warning_closed", "prevented", "warning_needs_response",
		"warning_under_review", "new_word"}
)

// drawItems are a few lines whose amounts often add up to one another's.
func drawItems(t *rapid.T) []Item {
	n := rapid.IntRange(1, 5).Draw(t, "lines")
	items := make([]Item, n)
	for i := range items {
		quantity := rapid.Int64Range(0, 4).Draw(t, "quantity")
		unit := rapid.SampledFrom([]int64{0, 100, 200, 300, 500, 700, 1000}).Draw(t, "unit amount")
		items[i] = item(string('a'+rune(i)), quantity, quantity*unit)
		switch rapid.IntRange(0, 9).Draw(t, "kind") {
		case 0:
			items[i].Amount += 1 // indivisible
		case 1:
			items[i].Price = "price_a"
		case 2:
			items[i].SKU = ""
		}
	}
	return items
}

// drawRefund is one that was made n seconds after the order, of an amount that fits some units more often than not.
func drawRefund(t *rapid.T, items []Item, n int) Refund {
	r := Refund{ID: fmt.Sprintf("re_%03d", n), CreatedAt: placed.Add(time.Duration(n) * time.Second),
		Status: rapid.SampledFrom(refundStatuses).Draw(t, "status")}
	r.Amount = rapid.Int64Range(1, 400).Draw(t, "goodwill")
	if rapid.IntRange(0, 3).Draw(t, "fits") > 0 {
		it := rapid.SampledFrom(items).Draw(t, "of")
		if value, _ := it.value(min(it.Quantity, rapid.Int64Range(1, 3).Draw(t, "units"))); value > 0 {
			r.Amount = value
		}
	}
	r.Lines = drawLines(t)
	return r
}

func drawLines(t *rapid.T) string {
	return rapid.SampledFrom([]string{"", "", "", "", "li_a", "li_b:2", "price_a", "price_a:3", "c", "li_a,li_b", "li_c,typo", "typo", "none"}).Draw(t, "names")
}

// drawPayment is a payment that may have come to anything, and a person's answers about its refunds.
func drawPayment(t *rapid.T, items []Item) (Payment, map[string]string) {
	p := paidFor(items...)
	switch rapid.IntRange(0, 11).Draw(t, "shape") {
	case 0:
		p.Session.PaymentStatus, p.Intent.Status, p.Intent.Captured = "unpaid", "processing", 0
	case 1:
		p.Intent.Captured /= 2
	case 2:
		p.Session.Currency, p.Session.Total = "jpy", p.Session.Total*160
	case 3:
		p.Session = nil
	case 4:
		p.Session.PaymentStatus, p.Intent = "no_payment_required", nil
	}
	answers := make(map[string]string)
	for n := range rapid.IntRange(0, 5).Draw(t, "refunds") {
		r := drawRefund(t, items, n)
		p.Refunds = append(p.Refunds, r)
		if rapid.IntRange(0, 5).Draw(t, "answered") == 0 {
			answers[r.ID] = drawLines(t)
		}
	}
	for n := range rapid.IntRange(0, 2).Draw(t, "disputes") {
		p.Disputes = append(p.Disputes, Dispute{ID: "dp_" + strconv.Itoa(n), Status: rapid.SampledFrom(disputeStatuses).Draw(t, "dispute")})
	}
	for n := range rapid.IntRange(0, 2).Draw(t, "warnings") {
		p.Warnings = append(p.Warnings, Warning{ID: "issfr_" + strconv.Itoa(n)})
	}
	for n := range rapid.IntRange(0, 2).Draw(t, "reviews") {
		p.Reviews = append(p.Reviews, Review{ID: "prv_" + strconv.Itoa(n), Open: rapid.Bool().Draw(t, "open")})
	}
	return p, answers
}

func drawPolicy(t *rapid.T) Policy {
	return Policy{SuspendOnWarning: rapid.Bool().Draw(t, "suspend on warning"), DeliverInReview: rapid.Bool().Draw(t, "deliver in review")}
}

func TestOrderAndRepetitionOfListsDoNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		items := drawItems(t)
		p, answers := drawPayment(t, items)
		policy := drawPolicy(t)
		want := Entitle(p, items, answers, policy)
		other := p
		other.Refunds = rapid.Permutation(slices.Concat(p.Refunds, p.Refunds)).Draw(t, "refunds in another order")
		other.Disputes = rapid.Permutation(slices.Concat(p.Disputes, p.Disputes)).Draw(t, "disputes in another order")
		other.Warnings = rapid.Permutation(slices.Concat(p.Warnings, p.Warnings)).Draw(t, "warnings in another order")
		other.Reviews = rapid.Permutation(slices.Concat(p.Reviews, p.Reviews)).Draw(t, "reviews in another order")
		if diff := cmp.Diff(want, Entitle(other, items, answers, policy)); diff != "" {
			t.Fatalf("in another order (-want +got):\n%s", diff)
		}
	})
}

// Whatever comes, the rule book has an answer, and it is about each unit once.
func TestEntitleIsTotal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		amount := rapid.OneOf(rapid.Int64(), rapid.Int64Range(-3, 3000))
		word := func(label string, words ...string) string {
			return rapid.OneOf(rapid.SampledFrom(words), rapid.String()).Draw(t, label)
		}
		when := rapid.Custom(func(t *rapid.T) time.Time { return placed.Add(time.Duration(rapid.Int64().Draw(t, "after"))) })
		var items []Item
		for range rapid.IntRange(0, 4).Draw(t, "lines") {
			items = append(items, Item{SKU: word("sku", "", "game"), Line: Line{ID: word("line", "", "li_a"), Price: word("price", "", "price_a"),
				Quantity: amount.Draw(t, "quantity"), Amount: amount.Draw(t, "amount"), Unpriced: rapid.IntRange(0, 5).Draw(t, "unpriced") == 0}})
		}
		var p Payment
		if rapid.Bool().Draw(t, "has session") {
			p.Session = &Session{ID: word("session", "cs_1"), Status: word("status", "open", "complete", "expired"),
				PaymentStatus: word("payment status", "paid", "unpaid", "no_payment_required"), Currency: word("currency", "eur"),
				Total: amount.Draw(t, "total")}
		}
		if p.Session == nil || rapid.Bool().Draw(t, "has intent") {
			p.Intent = &Intent{ID: "pi_1", Status: word("intent status", "succeeded", "canceled", "requires_payment_method"),
				Currency: word("intent currency", "eur"), Amount: amount.Draw(t, "intent amount"), Captured: amount.Draw(t, "captured"),
				Lines: word("sells", "price_a", "price_a:2,li_a")}
		}
		answers := make(map[string]string)
		for range rapid.IntRange(0, 4).Draw(t, "refunds") {
			r := Refund{ID: word("refund", "re_1", "re_2"), Status: word("refund status", refundStatuses...), Amount: amount.Draw(t, "refunded"),
				Lines: word("names", "", "li_a", "price_a:2", "li_a,game", "none"), CreatedAt: when.Draw(t, "created")}
			p.Refunds = append(p.Refunds, r)
			if rapid.IntRange(0, 3).Draw(t, "answered") == 0 {
				answers[r.ID] = word("answer", "", "li_a:3", "none")
			}
		}
		for range rapid.IntRange(0, 2).Draw(t, "disputes") {
			p.Disputes = append(p.Disputes, Dispute{ID: "dp_1", Status: word("dispute", disputeStatuses...)})
		}
		v := Entitle(p, items, answers, drawPolicy(t))
		for i, s := range v.Lines {
			if min(s.Pending, s.Due, s.Suspended, s.Revoked) < 0 || s.quantity() != max(0, items[i].Quantity) {
				t.Fatalf("line %d of %d units has the share %+v", i, items[i].Quantity, s)
			}
		}
		if v.Refunded < 0 || len(v.Lines) != len(items) {
			t.Fatalf("verdict %+v", v)
		}
	})
}

// notLess fails where a line has less taken than before, for good or at all.
func notLess(t *rapid.T, what string, before, after Verdict) {
	for i, was := range before.Lines {
		is := after.Lines[i]
		if is.Revoked < was.Revoked || is.Revoked+is.Suspended < was.Revoked+was.Suspended {
			t.Fatalf("%s gave something back on line %d: %+v, and before %+v", what, i, is, was)
		}
	}
}

func TestMoreMoneyBackNeverGivesAUnitBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		items := drawItems(t)
		p, answers := drawPayment(t, items)
		policy := drawPolicy(t)
		before := Entitle(p, items, answers, policy)

		more := p
		more.Refunds = append(slices.Clone(p.Refunds), drawRefund(t, items, len(p.Refunds)))
		notLess(t, "one more refund", before, Entitle(more, items, answers, policy))

		for i, r := range p.Refunds {
			if r.Status == "pending" || r.Status == "requires_action" {
				settled := p
				settled.Refunds = slices.Clone(p.Refunds)
				settled.Refunds[i].Status = "succeeded"
				notLess(t, "the success of "+r.ID, before, Entitle(settled, items, answers, policy))
			}
		}
	})
}

func TestARefundThatFailedIsAsIfItHadNeverBeen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		items := drawItems(t)
		p, answers := drawPayment(t, items)
		policy := drawPolicy(t)
		failed := p
		r := drawRefund(t, items, rapid.IntRange(0, 9).Draw(t, "when"))
		r.ID, r.Status = "re_failed", rapid.SampledFrom([]string{"failed", "canceled"}).Draw(t, "end")
		failed.Refunds = append(slices.Clone(p.Refunds), r)
		if diff := cmp.Diff(Entitle(p, items, answers, policy), Entitle(failed, items, answers, policy)); diff != "" {
			t.Fatalf("with a refund that failed (-without +with):\n%s", diff)
		}
	})
}

// The search for a combination agrees with trying them all.
func TestOneRefundTakesTheOnlyCombination(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		items := drawItems(t)
		p := paidFor(items...)
		r := drawRefund(t, items, 0)
		r.Status, r.Lines = "succeeded", ""
		p.Refunds = []Refund{r}
		if r.Amount >= p.Intent.Captured {
			t.Skip("all of it")
		}
		var fits [][]int64
		var try func(units []int64, sum *big.Rat)
		try = func(units []int64, sum *big.Rat) {
			if len(units) == len(items) {
				if sum.Sign() == 0 {
					fits = append(fits, slices.Clone(units))
				}
				return
			}
			it := items[len(units)]
			for n := int64(0); n <= it.Quantity && (n == 0 || it.Amount > 0); n++ {
				worth := new(big.Rat)
				if n > 0 {
					worth.SetFrac64(it.Amount*n, it.Quantity)
				}
				if worth.IsInt() {
					try(append(units, n), new(big.Rat).Sub(sum, worth))
				}
			}
		}
		try(nil, new(big.Rat).SetInt64(r.Amount))
		v := Entitle(p, items, nil, Policy{})
		for i, s := range v.Lines {
			want := int64(0)
			if len(fits) == 1 {
				want = fits[0][i]
			}
			if s.Revoked != want {
				t.Fatalf("line %d lost %d units for %d; the combinations are %v", i, s.Revoked, r.Amount, fits)
			}
		}
		if asks := len(v.Questions) > 0; asks != (len(fits) != 1) {
			t.Fatalf("%d combinations, questions %v", len(fits), v.Questions)
		}
	})
}

func TestPortion(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		some := rapid.OneOf(rapid.Int64Min(1), rapid.Int64Min(math.MaxInt64/2), rapid.Int64Range(1, 5))
		a, b, c := some.Draw(t, "a")-1, some.Draw(t, "b")-1, some.Draw(t, "c")
		quotient, rest := new(big.Int).QuoRem(new(big.Int).Mul(big.NewInt(a), big.NewInt(b)), big.NewInt(c), new(big.Int))
		got, whole := portion(a, b, c)
		if quotient.IsInt64() && (got != quotient.Int64() || whole != (rest.Sign() == 0)) {
			t.Fatalf("%d·%d÷%d is %d (%t), want %s rest %s", a, b, c, got, whole, quotient, rest)
		}
		if !quotient.IsInt64() && (got != math.MaxInt64 || whole) {
			t.Fatalf("%d·%d÷%d is %d (%t), want the largest number", a, b, c, got, whole)
		}
	})
}

// sale is an order as settles without a database see it: lines with their units, and the truth they are settled by.
type sale struct {
	payment Payment
	lines   []line
	policy  Policy
}

func (s *sale) clone() *sale {
	c := *s
	c.payment.Refunds, c.payment.Disputes = slices.Clone(s.payment.Refunds), slices.Clone(s.payment.Disputes)
	c.lines = slices.Clone(s.lines)
	for i := range c.lines {
		c.lines[i].units = slices.Clone(s.lines[i].units)
	}
	return &c
}

// settle converges the units as a settle does; the shelf gives keys to the first claims only.
func (s *sale) settle(t *rapid.T, stock int) {
	p := makePlan(s.payment, s.lines, nil, s.policy, false)
	changes := make(map[string]*unitChange)
	for _, u := range p.changed {
		changes[u.line+"/"+strconv.Itoa(u.number)] = u
	}
	for i := range s.lines {
		for n, u := range s.lines[i].units {
			change := changes[u.line+"/"+strconv.Itoa(u.number)]
			if change == nil {
				continue
			}
			if from, to := keyStates[u.state], keyStates[change.next]; change.step > claim && !inventory.CanMove(from, to) {
				t.Fatalf("unit %+v: no key moves from %s to %s", u, from, to)
			}
			if u.revokedBy == ByPerson {
				t.Fatalf("unit %+v becomes %s, though a person took its key", u, change.next)
			}
			stocked := false
			if change.step == claim {
				stocked = stock > 0
				stock--
			}
			s.lines[i].units[n] = after(u, change.step, change.next, stocked)
		}
	}
	s.check(t, p.verdict)
	if again := makePlan(s.payment, s.lines, nil, s.policy, false); len(again.changed) != 0 {
		t.Fatalf("a second settle changes %+v", *again.changed[0])
	}
}

// check compares the units with what the verdict says of their lines.
func (s *sale) check(t *rapid.T, v Verdict) {
	for i, l := range s.lines {
		counts := make(map[UnitState]int64)
		byPerson := int64(0)
		for _, u := range l.units {
			counts[u.state]++
			if u.revokedBy == ByPerson {
				byPerson++
			}
			switch live := u.state == UnitFulfilled || u.state == UnitSuspended && u.key != 0; {
			case live && u.revokedBy != "":
				t.Fatalf("unit %+v is live and revoked", u)
			case u.state == UnitFulfilled && u.key == 0, u.key != 0 && u.key != theKey+int64(u.number):
				t.Fatalf("unit %+v has not its own key", u)
			case u.key != 0 && keyStates[u.state] == "":
				t.Fatalf("unit %+v holds a key that it has no use for", u)
			}
		}
		share, per := v.Lines[i], int64(l.perUnit)
		due, revoked := counts[UnitFulfilled]+counts[UnitWaiting], counts[UnitRevoked]
		// A unit whose payment Stripe no longer calls paid keeps its key, suspended.
		held, mayHold := counts[UnitSuspended]+counts[UnitPending], share.Suspended+share.Pending
		if due > share.Due*per || held > mayHold*per || revoked > share.Revoked*per+byPerson {
			t.Fatalf("line %s has %v and deserves %+v of %d keys each", l.ID, counts, share, per)
		}
		if byPerson == 0 && (due != share.Due*per || held != mayHold*per || revoked != share.Revoked*per) {
			t.Fatalf("line %s has %v and deserves %+v of %d keys each", l.ID, counts, share, per)
		}
		if counts[UnitSuspended] > 0 && share.Suspended == 0 && slices.ContainsFunc(l.units, func(u unit) bool {
			return u.state == UnitSuspended && u.key == 0
		}) {
			t.Fatalf("line %s has suspended units without keys, and deserves %+v", l.ID, share)
		}
	}
}

func (s *sale) units() []string {
	var list []string
	for _, l := range s.lines {
		for _, u := range l.units {
			list = append(list, fmt.Sprintf("%s/%d %s %d %s", u.line, u.number, u.state, u.key, u.revokedBy))
		}
	}
	return list
}

// checkSale runs a sale through a random life, and settles after each thing that happens to it. A person may take keys by
// hand; and what was paid may turn out not to be, after which the units no longer know which of them lost first.
func checkSale(t *rapid.T, withPerson, withDoubt bool) {
	s := &sale{policy: drawPolicy(t)}
	items := drawItems(t)
	for i, it := range items {
		l := line{Line: it.Line, perUnit: rapid.IntRange(1, 3).Draw(t, "keys per unit"), mapped: true}
		l.pool = &inventory.Pool{ID: int64(i % 2), SKU: it.SKU}
		l.pad()
		s.lines = append(s.lines, l)
	}
	s.payment = paidFor(items...)
	stock := rapid.IntRange(0, 20)
	made := 0
	newRefund := func(t *rapid.T) Refund {
		made++
		return drawRefund(t, items, made)
	}
	actions := map[string]func(*rapid.T){
		"pay": func(t *rapid.T) {
			s.payment.Session.PaymentStatus, s.payment.Intent.Status, s.payment.Intent.Captured = "paid", "succeeded", s.payment.Intent.Amount
		},
		"refund": func(t *rapid.T) { s.payment.Refunds = append(s.payment.Refunds, newRefund(t)) },
		"refund goes on": func(t *rapid.T) {
			if n := len(s.payment.Refunds); n > 0 {
				s.payment.Refunds[rapid.IntRange(0, n-1).Draw(t, "which")].Status = rapid.SampledFrom(refundStatuses).Draw(t, "status")
			}
		},
		"dispute": func(t *rapid.T) {
			s.payment.Disputes = []Dispute{{ID: "dp_1", Status: rapid.SampledFrom(disputeStatuses).Draw(t, "status")}}
		},
		"review": func(t *rapid.T) { s.payment.Reviews = []Review{{ID: "prv_1", Open: rapid.Bool().Draw(t, "open")}} },
		"warning": func(t *rapid.T) {
			s.payment.Warnings = []Warning{{ID: "issfr_1"}}
		},
		"restock": func(t *rapid.T) {
			stock := stock.Draw(t, "stock")
			for i := range s.lines {
				for n, u := range s.lines[i].units {
					if u.state == UnitWaiting && stock > 0 {
						s.lines[i].units[n].state, s.lines[i].units[n].key = UnitFulfilled, theKey+int64(u.number)
						stock--
					}
				}
			}
		},
		"": func(t *rapid.T) { s.settle(t, stock.Draw(t, "stock")) },
	}
	if withPerson {
		actions["a person revokes"] = func(t *rapid.T) {
			for i := range s.lines {
				for n, u := range s.lines[i].units {
					if (u.state == UnitFulfilled || u.state == UnitSuspended) && u.key != 0 && rapid.IntRange(0, 4).Draw(t, "this") == 0 {
						s.lines[i].units[n].state, s.lines[i].units[n].revokedBy = UnitRevoked, ByPerson
					}
				}
			}
			s.settle(t, 0)
		}
	}
	if withDoubt {
		actions["doubt"] = func(t *rapid.T) {
			if len(s.payment.Refunds) == 0 {
				s.payment.Session.PaymentStatus, s.payment.Intent.Status, s.payment.Intent.Captured = "unpaid", "processing", 0
			}
		}
		t.Repeat(actions)
		return
	}
	// A refund that comes and fails leaves each unit what it had, its own key above all.
	actions["refund fails"] = func(t *rapid.T) {
		r := newRefund(t)
		with := s.clone()
		with.payment.Refunds = append(with.payment.Refunds, r)
		with.settle(t, 0)
		with.payment.Refunds[len(with.payment.Refunds)-1].Status = "failed"
		with.settle(t, 0)
		if diff := cmp.Diff(s.units(), with.units()); diff != "" {
			t.Fatalf("after a refund that failed (-before +after):\n%s", diff)
		}
	}
	actions["dispute is won"] = func(t *rapid.T) {
		if len(s.payment.Warnings) > 0 {
			return // the dispute answers the warning, and winning it does not ask again
		}
		with := s.clone()
		with.payment.Disputes = append(with.payment.Disputes, Dispute{ID: "dp_2", Status: "needs_response"})
		with.settle(t, 0)
		with.payment.Disputes[len(with.payment.Disputes)-1].Status = "won"
		with.settle(t, 0)
		if diff := cmp.Diff(s.units(), with.units()); diff != "" {
			t.Fatalf("after a dispute that was won (-before +after):\n%s", diff)
		}
	}
	t.Repeat(actions)
}

func TestUnitsFollowTheMoney(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { checkSale(t, false, false) })
}

func TestWhatAPersonTookStaysTaken(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { checkSale(t, true, false) })
}

func TestUnitsFollowTheMoneyThroughDoubt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { checkSale(t, true, true) })
}
