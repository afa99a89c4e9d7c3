package fulfillment

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/inventory"
)

// A round is the writing half of a settle's transaction, for one order, or for new ones of one merchant that are settled
// together.
type round struct {
	*Service
	lead   *application // what is the same for all: the merchant, the actor, the time, the channels
	apps   []*application
	queued map[int64]bool // pools in which other orders wait
	shelf  []int64        // pools of whose shelf keys were taken, past nobody who waits
}

// converge brings orders, as they were read in this transaction, to what their payments' truth says.
func (s *Service) converge(ctx context.Context, tx pgx.Tx, apps []*application) error {
	r := &round{Service: s, lead: apps[0], apps: apps}
	for _, a := range apps {
		a.plan = makePlan(a.payment, a.lines, a.order.answers, s.policy, a.retry)
	}
	for _, step := range []func(context.Context, pgx.Tx) error{r.writeOrders, r.claimKeys, r.moveKeys, r.writeRest, r.writeDeliveries} {
		if err := step(ctx, tx); err != nil {
			return err
		}
	}
	return nil
}

// orderIDs are the orders of the round.
func (r *round) orderIDs() []string {
	ids := make([]string, len(r.apps))
	for i, a := range r.apps {
		ids[i] = a.order.id
	}
	return ids
}

// claimKeys gets keys for the units that are due and have none: first those that are held for their payment, then from the
// shelf. Units of a pool in which older orders wait, wait behind them, stock or not.
func (r *round) claimKeys(ctx context.Context, tx pgx.Tx) error {
	fromShelf := make(map[int64]*shelfClaim)
	for _, a := range r.apps {
		for _, want := range a.plan.claims {
			if a.order.held[want.pool.ID] > 0 {
				held, err := inventory.ClaimHeld(ctx, tx, a.request(want), a.holdRefs())
				if err != nil {
					return err
				}
				want.units = want.take(held)
			}
			switch {
			case len(want.units) == 0:
			case want.pool.Shortage == inventory.Wait && r.queued[want.pool.ID]:
				a.plan.leave(want.units, UnitWaiting)
			case fromShelf[want.pool.ID] == nil:
				fromShelf[want.pool.ID] = &shelfClaim{pool: want.pool}
				fallthrough
			default:
				fromShelf[want.pool.ID].add(a, want.units)
			}
		}
	}
	// Pools are taken in the order of their ids, as everywhere.
	for _, id := range slices.Sorted(maps.Keys(fromShelf)) {
		if err := r.claimFromShelf(ctx, tx, fromShelf[id]); err != nil {
			return err
		}
	}
	for _, a := range r.apps {
		if err := a.settleHolds(ctx, tx); err != nil {
			return err
		}
	}
	return nil
}

// A shelfClaim is what the round wants of one pool's shelf, the oldest payment first.
type shelfClaim struct {
	pool  inventory.Pool
	units []*unitChange
	of    []*application // of each unit
	req   inventory.Request
}

func (c *shelfClaim) add(a *application, units []*unitChange) {
	for _, u := range units {
		c.units, c.of = append(c.units, u), append(c.of, a)
		c.req.Units = append(c.req.Units, inventory.Unit{Order: a.order.id, Line: u.line, Unit: u.number})
		c.req.Events = append(c.req.Events, a.event)
	}
}

func (r *round) claimFromShelf(ctx context.Context, tx pgx.Tx, c *shelfClaim) error {
	c.req.Merchant, c.req.Pool, c.req.Change, c.req.Patient = r.lead.merchant, c.pool.ID, r.lead.change("paid"), r.lead.patient != nil
	claimed, err := r.claimer.Claim(ctx, tx, c.req)
	if err != nil {
		return err
	}
	for i, key := range claimed {
		c.units[i].key = key.KeyID
	}
	for i := len(claimed); i < len(c.units); {
		a, end := c.of[i], i+1
		for end < len(c.units) && c.of[end] == a {
			end++
		}
		// The last key may have been taken for this payment's own cart, after the look at what is held for it.
		want := claimWanted{pool: c.pool, units: c.units[i:end]}
		held, err := inventory.ClaimHeld(ctx, tx, a.request(want), a.holdRefs())
		if err != nil {
			return err
		}
		a.plan.leave(want.take(held), shortState(c.pool))
		i = end
	}
	if len(claimed) > 0 && c.pool.Shortage == inventory.Wait {
		r.shelf = append(r.shelf, c.pool.ID)
	}
	return nil
}

// settleHolds gives back what is held and was not needed, once a payment is decided.
func (a *application) settleHolds(ctx context.Context, tx pgx.Tx) error {
	decided := a.order.exists && a.order.payment != Pending && a.order.payment != Closed // an earlier settle let go
	if a.plan.verdict.Payment == Pending || decided || a.order.unheld {
		return nil
	}
	return a.letGo(ctx, tx)
}

func (a *application) request(want claimWanted) inventory.Request {
	units := make([]inventory.Unit, len(want.units))
	for i, u := range want.units {
		units[i] = inventory.Unit{Order: a.order.id, Line: u.line, Unit: u.number}
	}
	return inventory.Request{Merchant: a.merchant, Pool: want.pool.ID, Units: units, Change: a.change("paid")}
}

// take gives the first units their keys and returns those that got none.
func (w claimWanted) take(claimed []inventory.Claimed) []*unitChange {
	for i, c := range claimed {
		w.units[i].key = c.KeyID
	}
	return w.units[len(claimed):]
}

func shortState(pool inventory.Pool) UnitState {
	if pool.Shortage == inventory.Fail {
		return UnitFailed
	}
	return UnitWaiting
}

// moveKeys moves the keys that units have already, and their rows must be as they were read.
func (r *round) moveKeys(ctx context.Context, tx pgx.Tx) error {
	for _, a := range r.apps {
		for _, m := range a.plan.moves() {
			if err := inventory.Move(ctx, tx, a.merchant, m.keys, m.from, m.to, a.change(m.reason)); err != nil {
				return err
			}
		}
	}
	return nil
}

// byPayment sorts the oldest payment first.
func byPayment(a, b *application) int {
	at, bt := a.paidAt(), b.paidAt()
	if at == nil || bt == nil {
		return cmp.Compare(a.order.id, b.order.id)
	}
	return cmp.Or(at.Compare(*bt), cmp.Compare(a.order.id, b.order.id))
}
