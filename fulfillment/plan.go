package fulfillment

import (
	"cmp"
	"maps"
	"slices"

	"github.com/keytill/keytill/inventory"
)

// line is a line of an order with what its price hands out and the units it has, one for each key it may get.
type line struct {
	Line
	pool    *inventory.Pool // nil: no keys here, or not mapped
	perUnit int
	mapped  bool // false: nobody has said what the price hands out
	stored  bool // the line has a row
	remap   bool // the row has no pool yet, and now the price is mapped
	units   []unit
}

// maxUnits bounds the keys of one line, so that a quantity typed wrong cannot empty a database's memory.
const maxUnits = 100_000

// keys are how many keys the line may get, in whole units of quantity.
func (l *line) keys() int {
	return int(min(l.Quantity, l.most())) * l.perUnit
}

// most is the largest quantity that a line gets keys for.
func (l *line) most() int64 { return int64(maxUnits / l.perUnit) }

// pad gives a mapped line a unit for each key it may get; those without a row have no state.
func (l *line) pad() {
	if l.pool == nil {
		return
	}
	for n := len(l.units); n < l.keys(); n++ {
		l.units = append(l.units, unit{line: l.ID, number: n + 1, pool: l.pool.ID})
	}
}

// plan is what converging an order takes: which units change and how.
type plan struct {
	verdict Verdict
	changed []*unitChange
	claims  []claimWanted
	units   []unit           // all units, as they were
	skus    map[int64]string // of the pools
}

// unitChange is a unit with what it becomes.
type unitChange struct {
	unit
	sku  string
	step step
	next UnitState
}

// claimWanted are the units that are due a key of one pool, in the order's order.
type claimWanted struct {
	pool  inventory.Pool
	units []*unitChange
}

// makePlan compares what each unit has with what it deserves. With retry, units that failed for want of stock are as if
// they had never been tried.
func makePlan(p Payment, lines []line, answers map[string]string, policy Policy, retry bool) plan {
	items := make([]Item, len(lines))
	for i, l := range lines {
		items[i] = Item{Line: l.Line}
		if l.pool != nil {
			items[i].SKU = l.pool.SKU
		}
	}
	made := plan{verdict: Entitle(p, items, answers, policy), skus: make(map[int64]string)}
	wanted := make(map[int64]*claimWanted)
	for i, l := range lines {
		if due := made.verdict.Lines[i].Due; l.pool != nil && due > l.most() {
			made.verdict.ask(Shortage, l.ID, "line %s is due %d units, and keytill hands out keys for %d of one line: refund the rest",
				l.ID, due, l.most())
		}
		made.units = append(made.units, l.units...)
		if l.pool != nil {
			made.skus[l.pool.ID] = l.pool.SKU
		}
		targets := assign(made.verdict.Lines[i], l.units, l.perUnit)
		for n, u := range l.units {
			now := u
			if retry && u.state == UnitFailed {
				now.state = UnitPending
			}
			step, next := converge(now, targets[n])
			if step == stay {
				continue
			}
			change := &unitChange{unit: u, sku: l.pool.SKU, step: step, next: next}
			made.changed = append(made.changed, change)
			if step == claim {
				if wanted[l.pool.ID] == nil {
					wanted[l.pool.ID] = &claimWanted{pool: *l.pool}
				}
				wanted[l.pool.ID].units = append(wanted[l.pool.ID].units, change)
			}
		}
	}
	// Pools are taken in the order of their ids, as everywhere.
	for _, id := range slices.Sorted(maps.Keys(wanted)) {
		made.claims = append(made.claims, *wanted[id])
	}
	return made
}

// leave gives units that got no key the state of those that lack one. Units that are in it already do not change.
func (p *plan) leave(units []*unitChange, state UnitState) {
	for _, u := range units {
		u.step, u.next = note, state
	}
}

// keyMove is a move of the keys of some units.
type keyMove struct {
	from, to inventory.State
	reason   string
	keys     []int64
}

// keyStates are the states of a unit's key, by the unit's own.
var keyStates = map[UnitState]inventory.State{
	UnitFulfilled: inventory.Allocated,
	UnitSuspended: inventory.Suspended,
	UnitRevoked:   inventory.Revoked,
}

// moves are the moves of keys that units have already, grouped so that each is one statement.
func (p *plan) moves() []keyMove {
	byEnds := make(map[[2]inventory.State]*keyMove)
	for _, u := range p.changed {
		if u.step != restore && u.step != suspend && u.step != revoke {
			continue
		}
		ends := [2]inventory.State{keyStates[u.state], keyStates[u.next]}
		if byEnds[ends] == nil {
			byEnds[ends] = &keyMove{from: ends[0], to: ends[1], reason: p.reason(u.step)}
		}
		byEnds[ends].keys = append(byEnds[ends].keys, u.key)
	}
	moves := make([]keyMove, 0, len(byEnds))
	for _, m := range byEnds {
		moves = append(moves, *m)
	}
	slices.SortFunc(moves, func(a, b keyMove) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) })
	return moves
}

func (p *plan) reason(s step) string {
	switch {
	case s == restore:
		return "restored"
	case s == suspend && p.verdict.Payment == Disputed:
		return "dispute"
	case s == suspend:
		return "payment in question"
	case p.verdict.Payment == Lost:
		return "dispute lost"
	default:
		return "refund"
	}
}

// holds counts the order's units by the state they end in.
func (p *plan) holds() map[UnitState]int {
	counts := make(map[UnitState]int)
	for _, u := range p.units {
		if u.state != "" {
			counts[u.state]++
		}
	}
	for _, u := range p.changed {
		if u.state != "" {
			counts[u.state]--
		}
		counts[u.next]++
	}
	return counts
}
