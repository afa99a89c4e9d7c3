package fulfillment

import (
	"cmp"
	"slices"
)

// UnitState is what a unit has, in the words of the schema's CHECK.
type UnitState string

const (
	UnitPending   UnitState = "pending"   // not paid yet
	UnitWaiting   UnitState = "waiting"   // due, and the pool has no key for it
	UnitFulfilled UnitState = "fulfilled" // has its key
	UnitSuspended UnitState = "suspended" // its key, if it has one, may not be used for now
	UnitRevoked   UnitState = "revoked"   // its key, if it had one, was taken back
	UnitFailed    UnitState = "failed"    // due, no key, and the pool refuses to wait
)

// UnitStates are all of them, in the order in which they are shown.
var UnitStates = []UnitState{UnitPending, UnitWaiting, UnitFulfilled, UnitSuspended, UnitRevoked, UnitFailed}

// RevokedBy says who took a unit's key. What a person took, a payment does not give back.
type RevokedBy string

const (
	ByPayment RevokedBy = "payment"
	ByPerson  RevokedBy = "person"
)

// unit is a fulfilment row as a settle reads it under the order's lock.
type unit struct {
	line      string
	number    int
	pool      int64
	state     UnitState // empty: the unit has no row yet
	key       int64     // 0: none
	revokedBy RevokedBy
}

// deserved is what the entitlement says of one unit.
type deserved string

const (
	deservesNothingYet deserved = "pending"
	deservesKey        deserved = "due"
	deservesNoUse      deserved = "suspended"
	deservesNothing    deserved = "revoked"
)

// assign says which of a line's units get what the line deserves. Of units that lose, those go first that a person took,
// so that a refund of what support has taken back takes no other; then those that have lost already, so that a second
// settle changes nothing; then those without a key; then the highest number. A unit of quantity that gives several keys
// loses them together: units holds them in order, perUnit for each.
func assign(share Share, units []unit, perUnit int) []deserved {
	groups := make([]group, 0, len(units)/perUnit)
	for start := 0; start+perUnit <= len(units); start += perUnit {
		groups = append(groups, groupOf(start/perUnit, units[start:start+perUnit]))
	}
	slices.SortFunc(groups, group.compare)
	beyond := max(0, share.quantity()-int64(len(groups))) // of a line too large to get all its keys, these lose first
	targets := make([]deserved, len(units))
	for i, g := range groups {
		target := deservesKey
		switch n := int64(i) + beyond; {
		case n < share.Revoked:
			target = deservesNothing
		case n < share.Revoked+share.Suspended:
			target = deservesNoUse
		case n >= share.Revoked+share.Suspended+share.Due:
			target = deservesNothingYet
		}
		for k := range perUnit {
			targets[g.number*perUnit+k] = target
		}
	}
	return targets
}

// group is a unit of quantity: the units that get its keys.
type group struct {
	number int
	lost   loss // the most that one of its units has lost
	keys   int
}

type loss int

const (
	lostToPerson loss = iota
	lostForGood
	lostForNow
	lostNothing
)

func groupOf(number int, units []unit) group {
	g := group{number: number, lost: lostNothing}
	for _, u := range units {
		switch {
		case u.state == UnitRevoked && u.revokedBy == ByPerson:
			g.lost = min(g.lost, lostToPerson)
		case u.state == UnitRevoked:
			g.lost = min(g.lost, lostForGood)
		case u.state == UnitSuspended:
			g.lost = min(g.lost, lostForNow)
		}
		if u.key != 0 {
			g.keys++
		}
	}
	return g
}

// compare puts first what loses first. The same order holds among those that have lost already, so that the one that
// lost last is the first to be restored.
func (g group) compare(other group) int {
	return cmp.Or(cmp.Compare(g.lost, other.lost), cmp.Compare(g.keys, other.keys), cmp.Compare(other.number, g.number))
}

// step is what converging one unit takes.
type step int

const (
	stay    step = iota
	note         // only the unit's row changes
	claim        // a key from the shelf
	restore      // its own key, from revoked or suspended
	suspend      // its key, from allocated or revoked
	revoke       // its key, from allocated or suspended
)

// converge says how a unit comes to what it deserves: what is to be done, and the state it then has. A claim that finds
// no key leaves the unit waiting or failed instead.
func converge(u unit, target deserved) (step, UnitState) {
	if u.state == UnitRevoked && u.revokedBy == ByPerson {
		return stay, UnitRevoked
	}
	switch target {
	case deservesKey:
		switch {
		case u.state == UnitFulfilled, u.state == UnitWaiting, u.state == UnitFailed:
			return stay, u.state
		case u.key != 0:
			return restore, UnitFulfilled
		default:
			return claim, UnitFulfilled
		}
	case deservesNoUse:
		return taking(u, UnitSuspended, suspend)
	case deservesNothing:
		return taking(u, UnitRevoked, revoke)
	default:
		if u.key != 0 {
			// Paid once, and Stripe no longer says so: nobody's key is taken for good on that.
			return taking(u, UnitSuspended, suspend)
		}
		return taking(u, UnitPending, note)
	}
}

func taking(u unit, state UnitState, how step) (step, UnitState) {
	switch {
	case u.state == state:
		return stay, state
	case u.key == 0:
		return note, state
	default:
		return how, state
	}
}
