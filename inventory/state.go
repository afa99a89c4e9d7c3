package inventory

import "slices"

// State is what a key is, in the words of the schema's CHECK.
type State string

const (
	Available   State = "available"   // on the shelf, anyone's
	Reserved    State = "reserved"    // held for a reference until a time
	Allocated   State = "allocated"   // a paid unit's
	Suspended   State = "suspended"   // a unit's whose payment is in question
	Revoked     State = "revoked"     // taken back, never sold again
	Expired     State = "expired"     // past its last date of use
	Quarantined State = "quarantined" // kept off the shelf by a person
)

// States are all of them, in the order in which a key usually meets them.
var States = []State{Available, Reserved, Allocated, Suspended, Revoked, Expired, Quarantined}

// moves is the one table of legal moves. Everything that changes a key's state names its origin in a guarded UPDATE.
var moves = map[State][]State{
	Available:   {Reserved, Allocated, Revoked, Expired, Quarantined},
	Reserved:    {Available, Allocated, Revoked, Expired, Quarantined},
	Allocated:   {Suspended, Revoked},
	Suspended:   {Allocated, Revoked},
	Revoked:     {Allocated, Suspended}, // a refund that failed, a dispute that was won: the unit's own key back
	Quarantined: {Available, Revoked},
	Expired:     {},
}

// CanMove reports whether a key may go from one state to the other.
func CanMove(from, to State) bool { return slices.Contains(moves[from], to) }

// Live reports whether a key in this state belongs to a unit: no unit may have two live keys.
func (s State) Live() bool { return s == Allocated || s == Suspended }
