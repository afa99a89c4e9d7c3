package fulfillment

import (
	"math"
	"math/bits"
	"slices"
	"strings"
)

// losses are what refunds take of each line, in units of quantity.
type losses struct {
	revoked   []int64 // for money that has gone back
	suspended []int64 // for money that is on its way back
	sum       int64   // what has gone back
	whole     bool    // all that was captured has gone back
}

// refundLosses works out what refunds take: those that succeeded revoke, those that are pending suspend. Refund ids are
// the unit of account: the answer comes from all of them, each time anew, from the oldest to the newest:
//
//  1. A refund that names its lines, or for which a person did, takes those.
//  2. The sum of the others takes what it fits: of a one-line order, as many units as it pays for; of several lines, the
//     one combination of units whose amounts make the sum, if there is exactly one and it holds what was taken before.
//  3. What fits nothing takes nothing, and is for a person to say.
//  4. All that was captured is refunded: every unit, whatever the refunds name.
func refundLosses(p Payment, items []Item, answers map[string]string, questions *Questions) losses {
	a := newAttribution(items, p.Intent == nil || p.Session == nil || p.Session.Currency == p.Intent.Currency)
	var coming int64
	for _, r := range p.refundsInOrder() {
		switch r.Status {
		case "succeeded", "pending", "requires_action":
			lines, answered := answers[r.ID]
			if !answered {
				lines = r.Lines
			}
			a.add(r, lines)
			coming = plus(coming, r.Amount)
		default:
			questions.ask(UnknownStatus, r.ID, "refund %s has the status %q, which keytill does not know", r.ID, r.Status)
		}
	}

	l := losses{revoked: make([]int64, len(items)), suspended: make([]int64, len(items)), sum: p.givenBack(), whole: p.allGivenBack()}
	everything := coming > 0 && coming >= p.captured()
	for i, it := range items {
		revoked, taken := a.gone(i), a.taken(i)
		if everything {
			taken = it.Quantity
		}
		if l.whole {
			revoked = it.Quantity
		}
		l.revoked[i], l.suspended[i] = revoked, taken-revoked
	}
	if open := a.open(); len(open) > 0 && !everything {
		questions.ask(UnattributedRefund, p.OrderID(),
			"it is not clear which keys these refunds are for: %s; `keytill refund attribute %s --lines li_…[:N]` says it, or --lines none",
			strings.Join(open, ", "), open[0])
	}
	return l
}

func (p Payment) captured() int64 {
	if p.Intent == nil {
		return 0
	}
	return p.Intent.Captured
}

// givenBack is what has gone back to the buyer for good.
func (p Payment) givenBack() (sum int64) {
	for _, r := range p.refundsInOrder() {
		if r.Status == "succeeded" {
			sum = plus(sum, r.Amount)
		}
	}
	return sum
}

func (p Payment) allGivenBack() bool {
	sum := p.givenBack()
	return sum > 0 && sum >= p.captured()
}

// An attribution says which units refunds take. It takes them one by one, so that a newer refund never gives back what
// an older one took; and by all that may yet succeed, so that success takes no other units than the prospect of it did.
type attribution struct {
	items        []Item
	sameCurrency bool     // the lines' amounts and the refunds' can be compared
	named        tally    // what refunds name themselves, or a person named for them
	fitted       tally    // what the sum of the others fits
	others       int64    // that sum
	unfitted     []Refund // those of the others that came since the sum last fitted
	misnamed     []Refund // those with a name among others that no line has
	refunded     int64    // by all refunds but those that are said to take no key
	budget       int      // steps left for all searches
}

// A tally counts units by line.
type tally struct {
	all  []int64
	gone []int64 // of those, what refunds that have succeeded take
}

func newAttribution(items []Item, sameCurrency bool) *attribution {
	counts := func() tally { return tally{all: make([]int64, len(items)), gone: make([]int64, len(items))} }
	return &attribution{items: items, sameCurrency: sameCurrency, named: counts(), fitted: counts(), budget: searchBudget}
}

// taken is how many of a line's units refunds take, and gone how many of them for good.
func (a *attribution) taken(i int) int64 {
	return min(a.items[i].Quantity, plus(a.named.all[i], a.fitted.all[i]))
}

func (a *attribution) gone(i int) int64 {
	return min(a.items[i].Quantity, plus(a.named.gone[i], a.fitted.gone[i]))
}

// noLines is the answer for a refund that takes no key: goodwill, shipping, a discount given later.
const noLines = "none"

func (a *attribution) add(r Refund, lines string) {
	if strings.TrimSpace(lines) == noLines {
		return
	}
	a.refunded = plus(a.refunded, r.Amount)
	if !a.name(r, parseMentions(lines)) {
		a.others = plus(a.others, r.Amount)
		a.unfitted = append(a.unfitted, r)
	}
	if len(a.unfitted) > 0 && a.sameCurrency {
		a.fit()
	}
}

// name takes the units that a refund's list names, and reports whether it named any.
func (a *attribution) name(r Refund, parts []mention) bool {
	unknown := 0
	for _, part := range parts {
		lines := a.linesCalled(part.name)
		if len(lines) == 0 {
			unknown++
			continue
		}
		quantity := part.quantity
		if quantity == 0 {
			quantity = 1
			if len(parts) == 1 {
				quantity = a.paidFor(r, lines[0])
			}
		}
		a.take(a.named.all, lines, quantity)
		if r.Status == "succeeded" {
			a.take(a.named.gone, lines, quantity)
		}
	}
	if 0 < unknown && unknown < len(parts) {
		a.misnamed = append(a.misnamed, r)
	}
	return unknown < len(parts)
}

// linesCalled are the lines that a name means: two lines can hold one price.
func (a *attribution) linesCalled(name string) (lines []int) {
	for i, it := range a.items {
		if name == it.ID || name == it.Price || name == it.Product || name == it.SKU {
			lines = append(lines, i)
		}
	}
	return lines
}

// paidFor is what a refund that names one line and no quantity means: the units it pays for in full, and at least one.
func (a *attribution) paidFor(r Refund, line int) int64 {
	it := a.items[line]
	if !a.sameCurrency || it.Unpriced || it.Amount == 0 {
		return 1
	}
	units, _ := portion(r.Amount, it.Quantity, it.Amount)
	return max(1, units)
}

// take counts a quantity of the lines, of the first as far as it goes.
func (a *attribution) take(counts []int64, lines []int, quantity int64) {
	for _, i := range lines {
		n := min(quantity, a.items[i].Quantity-counts[i])
		counts[i] += n
		quantity -= n
	}
}

// fit takes what the sum of the refunds that name nothing fits, if it fits in one way only.
func (a *attribution) fit() {
	units, ok := a.combination()
	if !ok {
		return
	}
	settled := !slices.ContainsFunc(a.unfitted, func(r Refund) bool { return r.Status != "succeeded" })
	for i, n := range units {
		if settled {
			a.fitted.gone[i] += n - a.fitted.all[i]
		}
		a.fitted.all[i] = n
	}
	a.unfitted = nil
}

// open are the ids of the refunds that a person must look at. Where the units that are taken are worth all that was
// given back, nothing is left to ask.
func (a *attribution) open() (ids []string) {
	var worth int64
	for i, it := range a.items {
		if n := a.taken(i); n > 0 && !it.Unpriced && a.sameCurrency {
			amount, _ := portion(it.Amount, n, it.Quantity)
			worth = plus(worth, amount)
		}
	}
	if worth >= a.refunded && a.sameCurrency {
		return nil
	}
	for _, r := range slices.Concat(a.unfitted, a.misnamed) {
		ids = append(ids, r.ID)
	}
	return ids
}

// combination finds the one combination of units, out of those no refund names, that is worth the sum of the others and
// holds what an earlier sum took. It reports false where there is none or more than one.
func (a *attribution) combination() ([]int64, bool) {
	if slices.ContainsFunc(a.items, func(it Item) bool { return it.Unpriced }) {
		return nil, false
	}
	s := search{items: a.items, named: a.named.all, dead: make(map[reached]bool), budget: &a.budget}
	units, ways := s.from(0, a.others)
	if ways != 1 {
		return nil, false
	}
	for i, n := range a.fitted.all {
		if units[i] < n {
			return nil, false
		}
	}
	return units, true
}

// searchBudget bounds the work for one order. An order with so many combinations fits in more than one way in practice,
// and a person is asked.
const searchBudget = 200_000

// search counts, up to two, the ways to make a sum of units from a line on.
type search struct {
	items  []Item
	named  []int64
	dead   map[reached]bool // sums that cannot be made from a line on
	budget *int
}

type reached struct {
	line int
	sum  int64
}

// from returns the combination if there is one, and how many there are: 0, 1, or 2 for more, or for too many to count.
func (s *search) from(line int, sum int64) ([]int64, int) {
	if line == len(s.items) {
		if sum == 0 {
			return make([]int64, len(s.items)), 1
		}
		return nil, 0
	}
	if s.dead[reached{line, sum}] {
		return nil, 0
	}
	var found []int64
	for n := int64(0); n <= s.items[line].Quantity-s.named[line]; n++ {
		if *s.budget--; *s.budget < 0 {
			return nil, 2
		}
		value, whole := s.items[line].value(n)
		if value > sum || n > 0 && s.items[line].Amount == 0 {
			break // units without a price make no sum, so no sum takes them
		}
		if !whole {
			continue
		}
		fit, ways := s.from(line+1, sum-value)
		if ways == 0 {
			continue
		}
		if ways > 1 || found != nil {
			return nil, 2
		}
		fit[line] = n
		found = fit
	}
	if found == nil {
		s.dead[reached{line, sum}] = true
		return nil, 0
	}
	return found, 1
}

// value is the amount of n of a line's units, and whether it is a whole number of the currency's minor unit.
func (it Item) value(n int64) (int64, bool) {
	if n == 0 {
		return 0, true
	}
	return portion(it.Amount, n, it.Quantity)
}

// portion is a·b÷c rounded down, and whether nothing was lost by that. The product of an amount and a quantity may be
// larger than an int64. None of the three is negative, and c is not 0.
func portion(a, b, c int64) (int64, bool) {
	high, low := bits.Mul64(uint64(a), uint64(b))
	if high >= uint64(c) {
		return math.MaxInt64, false
	}
	quotient, rest := bits.Div64(high, low, uint64(c))
	if quotient > math.MaxInt64 {
		return math.MaxInt64, false
	}
	return int64(quotient), rest == 0
}

// plus adds two numbers of which none is negative, and stops at the largest.
func plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
