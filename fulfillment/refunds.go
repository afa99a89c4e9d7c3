package fulfillment

// losses are what refunds take of each line, in units of quantity.
type losses struct {
	revoked   []int64 // by refunds that succeeded
	suspended []int64 // by refunds that are on their way
	sum       int64   // what was given back for good
	whole     bool    // all that was captured was given back for good
}

// refundLosses works out what refunds take. The ones that succeeded revoke; those that are pending suspend what they
// would take on top. Refund ids are the unit of account: the answer comes from all of them, each time anew.
func refundLosses(p Payment, items []Item, answers map[string]string, questions *Questions) losses {
	var settled, counted []Refund
	for _, r := range p.refundsInOrder() {
		switch r.Status {
		case "succeeded":
			settled, counted = append(settled, r), append(counted, r)
		case "pending", "requires_action":
			counted = append(counted, r)
		default:
			questions.ask(UnknownStatus, r.ID, "refund %s has the status %q, which keytill does not know", r.ID, r.Status)
		}
	}

	l := losses{sum: sumOf(settled)}
	l.whole = l.sum > 0 && l.sum >= p.captured()
	gone := attribute(p, items, settled, answers)
	total := attribute(p, items, counted, answers)
	l.revoked = gone.taken(items)
	l.suspended = total.taken(items)
	for i := range items {
		l.suspended[i] = max(0, l.suspended[i]-l.revoked[i])
	}
	if rest := total.unexplained; rest > 0 {
		questions.ask(UnattributedRefund, p.OrderID(),
			"refunds of %d %s do not say which keys they are for: `keytill refund attribute re_… --lines li_…[:N]` does, or --lines none",
			rest, p.Intent.Currency)
	}
	return l
}

func (p Payment) captured() int64 {
	if p.Intent == nil {
		return 0
	}
	return p.Intent.Captured
}

func sumOf(refunds []Refund) (sum int64) {
	for _, r := range refunds {
		sum += r.Amount
	}
	return sum
}

// An attribution says which units a list of refunds takes, and what of them it cannot explain.
type attribution struct {
	named       []int64 // by line: what refunds name themselves, or a person named for them
	fitted      []int64 // by line: what the sum of the others fits
	unexplained int64   // the sum of the others, where it fits nothing more
}

func (a attribution) taken(items []Item) []int64 {
	taken := make([]int64, len(items))
	for i, it := range items {
		taken[i] = min(it.Quantity, a.named[i]+a.fitted[i])
	}
	return taken
}

// attribute goes through the refunds from the oldest to the newest, so that one more refund never gives a unit back:
//
//  1. All that was captured is refunded: every unit.
//  2. A refund that names its lines, or for which a person did, takes those.
//  3. The sum of the others takes what it fits: of a one-line order, as many units as it pays for; of several lines, the
//     one combination of units whose amounts make the sum, if there is exactly one and it holds what was taken before.
//  4. What fits nothing takes nothing, and is for a person to say.
func attribute(p Payment, items []Item, refunds []Refund, answers map[string]string) attribution {
	a := attribution{named: make([]int64, len(items)), fitted: make([]int64, len(items))}
	if sum := sumOf(refunds); sum > 0 && sum >= p.captured() {
		for i, it := range items {
			a.named[i] = it.Quantity
		}
		return a
	}
	comparable := p.Session == nil || p.Session.Currency == p.Intent.Currency
	var unnamed, refunded int64
	for _, r := range refunds {
		list, answered := answers[r.ID]
		if !answered {
			list = r.Lines
		}
		if list == noLines {
			continue
		}
		refunded += r.Amount
		if !a.name(items, r, list) {
			unnamed += r.Amount
		}
		if unnamed == 0 || !comparable {
			a.unexplained = unnamed
			continue
		}
		fit, ok := fitting(items, a.named, a.fitted, unnamed)
		if ok {
			a.fitted, a.unexplained = fit, 0
		} else {
			a.unexplained = unnamed - worth(items, a.fitted)
		}
	}
	// Where the named units are worth all that was given back, nothing is left to ask.
	if comparable && worth(items, a.named) >= refunded {
		a.unexplained = 0
	}
	return a
}

// noLines is a person's answer for a refund that takes no key: goodwill, shipping, a discount given later.
const noLines = "none"

// name takes the units that a refund's list names, and reports whether it named any. A part without a quantity means
// the units the refund pays for where it stands alone, else one.
func (a *attribution) name(items []Item, r Refund, list string) bool {
	parts := parseMentions(list)
	named := false
	for _, part := range parts {
		quantity := part.quantity
		for i, it := range items {
			if it.ID != part.name && it.Price != part.name && it.Product != part.name && it.SKU != part.name {
				continue
			}
			named = true
			if quantity == 0 {
				quantity = 1
				if len(parts) == 1 && !it.Unpriced && it.Amount > 0 {
					quantity = max(1, r.Amount*it.Quantity/it.Amount)
				}
			}
			take := min(quantity, it.Quantity-a.named[i])
			a.named[i] += take
			quantity -= take
			if quantity == 0 {
				break
			}
		}
	}
	return named
}

// worth is the amount of n units of each line.
func worth(items []Item, units []int64) (sum int64) {
	for i, it := range items {
		if units[i] > 0 && it.Quantity > 0 && !it.Unpriced {
			sum += it.Amount * units[i] / it.Quantity
		}
	}
	return sum
}

// fitting finds the one combination of units, out of those no refund names, that is worth the sum and holds what an
// earlier sum took. It reports false where there is none or more than one.
func fitting(items []Item, named, before []int64, sum int64) ([]int64, bool) {
	for _, it := range items {
		if it.Unpriced {
			return nil, false
		}
	}
	s := search{items: items, named: named, dead: make(map[reached]bool), budget: searchBudget}
	fit, ways := s.from(0, sum)
	if ways != 1 {
		return nil, false
	}
	for i := range items {
		if fit[i] < before[i] {
			return nil, false
		}
	}
	return fit, true
}

// searchBudget bounds the work for one sum. An order with so many combinations fits in more than one way in practice,
// and a person is asked.
const searchBudget = 200_000

// search counts, up to two, the ways to make a sum of units from a line on.
type search struct {
	items  []Item
	named  []int64
	dead   map[reached]bool // sums that cannot be made from a line on
	budget int
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
		if s.budget--; s.budget < 0 {
			return nil, 2
		}
		value, whole := s.items[line].value(n)
		if value > sum || n > 0 && value == 0 {
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
	return it.Amount * n / it.Quantity, it.Amount*n%it.Quantity == 0
}
