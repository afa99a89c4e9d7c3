package linear_test

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/keytill/keytill/fulfillment"
)

// A shop's one pool has at most maxKeys keys, and at most maxOrders orders of one unit each take from it. It does not wait:
// a unit that finds no key has failed. Only a replacement that finds none waits.
const (
	maxKeys   = 16
	maxOrders = 8
)

// An operation of a client.
type operation string

const (
	settle  operation = "settle"  // by a thank-you page, an event, a sweep
	refund  operation = "refund"  // the whole payment, and then a settle
	restore operation = "restore" // the refund fails, and then a settle
	replace operation = "replace" // a person gives the unit another key
	revoke  operation = "revoke"  // a person takes the key for good
	reserve operation = "reserve" // a cart holds a key
	release operation = "release" // and lets it go
	restock operation = "restock" // new keys
	look    operation = "look"    // at the unit
)

// An input is what a client asks.
type input struct {
	op    operation
	order int
	keys  int // of a restock
}

// An output is what a client was answered.
type output struct {
	unknown bool // the client went away before: it may have been done, or not, or be done later
	refused bool // there was nothing to do it with: no payment to settle, no key to hold, to replace or to revoke
	n       int  // keys that were released
	unit    unit // that was looked at
}

// A unit is what an order has.
type unit struct {
	state fulfillment.UnitState // none: the order is not there
	ended bool                  // a person took the key: no payment gives it back
	key   int8
}

const (
	none    = fulfillment.UnitState("")
	noKey   = int8(-1)
	unseen  = int8(-2) // it has one, and nobody has looked yet which
	nothing = "nothing"
)

// shop is the whole state: how many keys there are and how many units have or had one, which those are that were looked at,
// which carts hold one, and what each unit has. Which key a cart holds is told to nobody, and which one a unit got to nobody
// before a look.
type shop struct {
	keys  int8   // brought so far
	given int8   // of them
	seen  uint16 // the given ones that were looked at
	holds uint8  // the orders whose carts hold one
	units [maxOrders]unit
}

func newShop(keys int) shop {
	s := shop{keys: int8(keys)}
	for i := range s.units {
		s.units[i].key = noKey
	}
	return s
}

// left is how many keys can be had without a hold.
func (s shop) left() int { return int(s.keys-s.given) - bits.OnesCount8(s.holds) }

func (s shop) holding(order int) bool { return s.holds&(1<<order) != 0 }

func (s shop) with(order int, u unit) shop {
	s.units[order] = u
	return s
}

// give is the shop after the unit took a key.
func (s shop) give(order int) []shop {
	s.given++
	return []shop{s.with(order, unit{state: fulfillment.UnitFulfilled, key: unseen})}
}

// look is the shop after a unit was seen like that: its key is then known, and no other unit can have it.
func (s shop) look(order int, as unit) []shop {
	u := s.units[order]
	if u.key == unseen && as.key >= 0 && as.key < s.keys && s.seen&(1<<as.key) == 0 {
		s.seen |= 1 << as.key
		u.key = as.key
	}
	if u != as {
		return nil
	}
	return []shop{s.with(order, u)}
}

// due is the shop after a unit was found to be due a key: first what its cart holds, else one that is left, else it is
// short in one of the given ways.
func (s shop) due(order int, short ...fulfillment.UnitState) []shop {
	if s.holding(order) {
		s.holds &^= 1 << order
		return s.give(order)
	}
	if s.left() > 0 {
		return s.give(order)
	}
	var after []shop
	for _, state := range short {
		after = append(after, s.with(order, unit{state: state, key: noKey}))
	}
	return after
}

// step is what an operation may come to: every shop that there may be after it, if the answer fits.
func (s shop) step(in input, out output) []shop {
	switch u := s.units[in.order]; in.op {
	case settle:
		if out.refused { // it is not paid yet
			if u.state != none {
				return nil
			}
			return []shop{s}
		}
		return s.settle(in.order)
	case refund:
		return s.refund(in.order)
	case restore:
		switch {
		case u.ended || u.state != fulfillment.UnitRevoked:
			return []shop{s}
		case u.key != noKey:
			return []shop{s.with(in.order, unit{state: fulfillment.UnitFulfilled, key: u.key})}
		default:
			return s.due(in.order, fulfillment.UnitFailed)
		}
	case replace, revoke:
		return s.person(in, out)
	case reserve:
		return s.reserve(in.order, out)
	case release:
		if s.holding(in.order) != (out.n == 1) && !out.unknown {
			return nil
		}
		s.holds &^= 1 << in.order
		return []shop{s}
	case restock:
		s.keys += int8(in.keys)
		return s.serve()
	default:
		return s.look(in.order, out.unit)
	}
}

func (s shop) settle(order int) []shop {
	switch s.units[order].state {
	case none:
		return s.due(order, fulfillment.UnitFailed)
	case fulfillment.UnitWaiting:
		return s.due(order, fulfillment.UnitWaiting, fulfillment.UnitFailed)
	default:
		return []shop{s}
	}
}

func (s shop) refund(order int) []shop {
	u := s.units[order]
	switch {
	case u.ended || u.state == fulfillment.UnitRevoked:
		return []shop{s}
	case u.state == none:
		s.holds &^= 1 << order // what the cart held is not needed
	}
	return []shop{s.with(order, unit{state: fulfillment.UnitRevoked, key: u.key})}
}

// person takes a key for good, and it may be followed by another.
func (s shop) person(in input, out output) []shop {
	u := s.units[in.order]
	has := u.state == fulfillment.UnitFulfilled
	if out.refused || !has {
		if has || !out.refused && !out.unknown {
			return nil
		}
		return []shop{s}
	}
	if in.op == revoke {
		return []shop{s.with(in.order, unit{state: fulfillment.UnitRevoked, ended: true, key: u.key})}
	}
	if s.left() > 0 {
		return s.give(in.order)
	}
	return []shop{s.with(in.order, unit{state: fulfillment.UnitWaiting, key: noKey})}
}

func (s shop) reserve(order int, out output) []shop {
	waits := slices.ContainsFunc(s.units[:], func(u unit) bool { return u.state == fulfillment.UnitWaiting })
	switch {
	case s.holding(order):
		if out.refused {
			return nil
		}
		return []shop{s}
	case s.left() > 0 && !out.refused:
		s.holds |= 1 << order
		return []shop{s}
	case out.refused && (s.left() <= 0 || waits), out.unknown:
		return []shop{s}
	default:
		return nil
	}
}

// serve gives keys to those who wait, in any order, as far as they go.
func (s shop) serve() []shop {
	var after []shop
	for i, u := range s.units {
		if u.state == fulfillment.UnitWaiting && s.left() > 0 {
			after = append(after, s.give(i)[0].serve()...)
		}
	}
	if after == nil {
		return []shop{s}
	}
	return after
}

// model is the shop as the checker knows it.
func model(keys int) porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{newShop(keys)} },
		Step: func(state, in, out any) []any {
			s, o := state.(shop), out.(output)
			seen := make(map[shop]bool)
			after := s.step(in.(input), o)
			if o.unknown {
				after = append(after, s)
			}
			var states []any
			for _, next := range after {
				if !seen[next] {
					seen[next] = true
					states = append(states, next)
				}
			}
			return states
		},
		Equal:             func(a, b any) bool { return a.(shop) == b.(shop) },
		DescribeOperation: func(in, out any) string { return describe(in.(input), out.(output)) },
	}
	return m.ToModel()
}

func describe(in input, out output) string {
	what := fmt.Sprintf("%s %d", in.op, in.order)
	if in.op == restock {
		what = fmt.Sprintf("%s of %d", in.op, in.keys)
	}
	switch {
	case out.unknown:
		return what + ": nobody knows"
	case out.refused:
		return what + ": refused"
	case in.op == look && out.unit.state == none:
		return what + ": " + nothing
	case in.op == look:
		return fmt.Sprintf("%s: %s, key %d", what, out.unit.state, out.unit.key)
	case in.op == release:
		return fmt.Sprintf("%s: %d", what, out.n)
	}
	return what
}
