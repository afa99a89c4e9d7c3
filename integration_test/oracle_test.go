package integration_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/keytill/keytill/fulfillment"
)

// What a sale should have come to, worked out from the rules as they are written down, each time from nothing and without
// a thought for speed. It shares no code with what it judges.

// A fate is what each line's units of quantity deserve, and the rest that can be seen of an order.
type fate struct {
	exists   bool // as an order, even if no settle has seen it before
	payment  string
	refunded int64
	lines    []share
	findings []string // kind and subject, sorted
}

type share struct{ pending, due, suspended, revoked int64 }

func (f *fate) find(kind, subject string) {
	if finding := kind + " " + subject; !slices.Contains(f.findings, finding) {
		f.findings = append(f.findings, finding)
		slices.Sort(f.findings)
	}
}

// fate judges the sale as it is at Stripe now.
func (s *sale) fate(policy fulfillment.Policy) fate {
	f := fate{exists: s.ordered(), lines: make([]share, len(s.lines))}
	gone := s.wentBack()
	all := gone > 0 && gone >= s.received

	paid := s.free && s.complete || s.status == "succeeded"
	if paid && !s.free && s.received < s.asked && !all {
		f.find("amount_mismatch", s.order())
		paid = false
	}
	if !paid {
		f.payment = "pending"
		if s.received == 0 && (s.expired || s.status == "canceled" || s.status == "requires_payment_method" && s.session && s.complete) {
			f.payment = "closed"
		}
		for i, l := range s.lines {
			f.lines[i].pending = l.quantity
		}
		return f
	}

	f.refunded = gone
	taken := s.taken()
	for i, l := range s.lines {
		lost, coming := taken.gone[i], taken.all[i]
		if taken.everything {
			coming = l.quantity
		}
		if all {
			lost = l.quantity
		}
		f.lines[i] = share{due: l.quantity - coming, suspended: coming - lost, revoked: lost}
	}
	if taken.unclear && !taken.everything {
		f.find("unattributed_refund", s.order())
	}

	open, lost, answered := false, false, all
	for _, d := range s.disputes {
		switch d.status {
		case "needs_response", "under_review":
			open, answered = true, true
		case "lost":
			lost, answered = true, true
		case "won", "prevented":
			answered = true
		case "warning_closed":
		case "warning_needs_response", "warning_under_review":
			f.find("inquiry", d.id)
		default:
			f.find("unknown_status", d.id)
			answered = true
		}
	}
	held := s.review == "open" && !policy.DeliverInReview
	if s.warned && !answered {
		f.find("fraud_warning", "issfr_"+s.id)
		held = held || policy.SuspendOnWarning
	}
	for i := range f.lines {
		l := &f.lines[i]
		switch {
		case lost:
			*l = share{revoked: l.due + l.suspended + l.revoked}
		case open || held:
			*l = share{suspended: l.due + l.suspended, revoked: l.revoked}
		}
	}
	switch {
	case lost:
		f.payment = "lost"
	case all:
		f.payment = "refunded"
	case open:
		f.payment = "disputed"
	case gone > 0:
		f.payment = "part_refunded"
	default:
		f.payment = "paid"
	}
	return f
}

// ordered: a finished session, or a PaymentIntent that is or may yet be paid.
func (s *sale) ordered() bool {
	if s.session {
		return s.complete
	}
	return slices.Contains([]string{"succeeded", "processing", "requires_capture"}, s.status)
}

func (s *sale) wentBack() (sum int64) {
	for _, r := range s.refunds {
		if r.status == "succeeded" {
			sum += r.amount
		}
	}
	return sum
}

// takings are the units of each line that refunds take.
type takings struct {
	all, gone  []int64 // gone: of them those that were refunded for good
	everything bool
	unclear    bool
}

// taken goes through the refunds that count, from the oldest on.
func (s *sale) taken() takings {
	n := len(s.lines)
	named, namedGone, fits, fitsGone := make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
	var counting, nameless, speaking, coming int64
	var waiting, misnamed []*saleRefund // those that fit nothing so far, and those with a name that is nobody's
	for _, r := range s.refunds {
		if r.status == "failed" || r.status == "canceled" {
			continue
		}
		coming += r.amount
		list := r.lines
		if r.answered {
			list = r.answer
		}
		if list == "none" {
			continue
		}
		speaking += r.amount
		known, unknown := s.name(r, list, named)
		if r.status == "succeeded" {
			s.name(r, list, namedGone)
		}
		switch {
		case !known:
			nameless += r.amount
			waiting = append(waiting, r)
		case unknown:
			misnamed = append(misnamed, r)
		}
		if len(waiting) == 0 {
			continue
		}
		ways := s.ways(nameless, named)
		if len(ways) != 1 || slices.ContainsFunc(index(n), func(i int) bool { return ways[0][i] < fits[i] }) {
			continue
		}
		for i := range n {
			if !slices.ContainsFunc(waiting, func(r *saleRefund) bool { return r.status != "succeeded" }) {
				fitsGone[i] += ways[0][i] - fits[i]
			}
			fits[i] = ways[0][i]
		}
		waiting = nil
	}
	t := takings{all: make([]int64, n), gone: make([]int64, n), everything: coming > 0 && coming >= s.received}
	for i, l := range s.lines {
		t.all[i], t.gone[i] = min(l.quantity, named[i]+fits[i]), min(l.quantity, namedGone[i]+fitsGone[i])
		if !l.unpriced && !s.foreign {
			counting += t.all[i] * l.each
		}
	}
	enough := !s.foreign && counting >= speaking
	t.unclear = len(waiting)+len(misnamed) > 0 && !enough
	return t
}

func index(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// name adds the units that a refund's list names, and reports whether it names lines of this sale, and others.
func (s *sale) name(r *saleRefund, list string, counts []int64) (known, unknown bool) {
	parts := strings.Split(list, ",")
	for _, part := range parts {
		name, number, counted := strings.Cut(part, ":")
		var mine []int
		for i, l := range s.lines {
			if name != "" && (name == l.id || name == l.price || name == l.product || name == l.sku) {
				mine = append(mine, i)
			}
		}
		if len(mine) == 0 {
			unknown = unknown || name != ""
			continue
		}
		known = true
		units := int64(1)
		if counted {
			units, _ = strconv.ParseInt(number, 10, 64)
		} else if l := s.lines[mine[0]]; len(parts) == 1 && !s.foreign && !l.unpriced && l.each > 0 {
			units = max(1, r.amount/l.each)
		}
		for ; units > 0; units-- {
			for _, i := range mine {
				if counts[i] < s.lines[i].quantity {
					counts[i]++
					break
				}
			}
		}
	}
	return known, unknown
}

// ways are all combinations of units that are worth the sum, out of those that no refund names.
func (s *sale) ways(sum int64, named []int64) (ways [][]int64) {
	if s.foreign || slices.ContainsFunc(s.lines, func(l saleLine) bool { return l.unpriced }) {
		return nil
	}
	combinations := [][]int64{nil}
	for i, l := range s.lines {
		var longer [][]int64
		for _, c := range combinations {
			for n := int64(0); n <= l.quantity-named[i] && (n == 0 || l.each > 0); n++ {
				longer = append(longer, append(slices.Clone(c), n))
			}
		}
		combinations = longer
	}
	for _, c := range combinations {
		var worth int64
		for i, n := range c {
			worth += n * s.lines[i].each
		}
		if worth == sum {
			ways = append(ways, c)
		}
	}
	return ways
}

// without says what a line's units of quantity come to where a person took some: those are the first that count as lost,
// and lost they stay.
func (s share) without(person int64) share {
	for _, lost := range []*int64{&s.revoked, &s.suspended, &s.due, &s.pending} {
		n := min(person, *lost)
		*lost -= n
		person -= n
		if person == 0 {
			break
		}
	}
	return s
}

func (s share) String() string {
	return fmt.Sprintf("pending:%d due:%d suspended:%d revoked:%d", s.pending, s.due, s.suspended, s.revoked)
}
