package integration_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/inventory"
)

// A judge compares what keytill has made of a sale with what the oracle says, and remembers what cannot be seen from the
// sale alone: which keys were given, and what persons took.
type judge struct {
	db     *pgxpool.Pool
	sale   *sale
	policy fulfillment.Policy
	short  bool // the shelf may be empty: what is due may wait

	seen    bool            // the sale was an order before
	perhaps bool            // … if a settle was committed of which nobody knows
	keys    map[place]int64 // the key of each unit that has had one
	most    []int64         // by line: the most keys that were due at once, since a key once given stays the unit's
	maybe   []int64         // … by a settle of which nobody knows whether it was committed
	person  []int64         // by line: units of quantity that a person took
}

type place struct {
	line string
	unit int
}

func newJudge(db *pgxpool.Pool, s *sale, policy fulfillment.Policy) *judge {
	return &judge{db: db, sale: s, policy: policy, keys: make(map[place]int64), most: make([]int64, len(s.lines)),
		maybe: make([]int64, len(s.lines)), person: make([]int64, len(s.lines))}
}

// seenOrder is an order as far as it is compared.
type seenOrder struct {
	Payment  string
	Refunded int64
	Units    []map[fulfillment.UnitState]int64 // by line
	Findings []string
	Open     int // events that should be done
}

// compare is to be called after a settle that read Stripe as it is now.
func (j *judge) compare(ctx context.Context) (fulfillment.Order, error) {
	want := j.sale.fate(j.policy)
	order, err := fulfillment.LoadOrder(ctx, j.db, inventory.DefaultMerchant, j.sale.order())
	if !want.exists && !j.seen && !(j.perhaps && err == nil) {
		if !errors.Is(err, fulfillment.ErrNoOrder) {
			return order, fmt.Errorf("nothing was bought, and there is an order %v: %w", order.ID, err)
		}
		return order, nil
	}
	if err != nil {
		return order, err
	}
	j.seen = true
	got, err := j.see(ctx, order)
	if err != nil {
		return order, err
	}
	if diff := cmp.Diff(j.wanted(want), got); diff != "" {
		return order, fmt.Errorf("the order is not as the oracle says (-oracle +keytill):\n%s", diff)
	}
	return order, j.compareKeys(order, want)
}

func (j *judge) wanted(f fate) seenOrder {
	w := seenOrder{Payment: f.payment, Refunded: f.refunded, Findings: f.findings}
	for i, l := range j.sale.lines {
		units := make(map[fulfillment.UnitState]int64)
		if share := f.lines[i].without(j.person[i]); l.has() {
			for state, n := range map[fulfillment.UnitState]int64{fulfillment.UnitPending: share.pending, fulfillment.UnitFulfilled: share.due,
				fulfillment.UnitSuspended: share.suspended, fulfillment.UnitRevoked: share.revoked + j.person[i]} {
				if n > 0 {
					units[state] = n * l.perUnit
				}
			}
		}
		w.Units = append(w.Units, units)
	}
	return w
}

func (j *judge) see(ctx context.Context, order fulfillment.Order) (seenOrder, error) {
	s := seenOrder{Payment: string(order.Payment), Refunded: order.Refunded}
	if len(order.Lines) != len(j.sale.lines) {
		return s, fmt.Errorf("the order has %d lines of %d", len(order.Lines), len(j.sale.lines))
	}
	for i, l := range order.Lines {
		if l.ID != j.sale.lines[i].id {
			return s, fmt.Errorf("line %d is %s, not %s", i, l.ID, j.sale.lines[i].id)
		}
		units := make(map[fulfillment.UnitState]int64)
		for _, u := range l.Units {
			state := u.State
			if state == fulfillment.UnitWaiting && j.short {
				state = fulfillment.UnitFulfilled
			}
			units[state]++
		}
		s.Units = append(s.Units, units)
	}
	rows, err := j.db.Query(ctx, `SELECT kind || ' ' || subject FROM keytill.findings WHERE order_id = $1 AND closed_at IS NULL`, order.ID)
	if err != nil {
		return s, err
	}
	if s.Findings, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
		return s, err
	}
	if slices.Sort(s.Findings); len(s.Findings) == 0 {
		s.Findings = nil
	}
	err = j.db.QueryRow(ctx, `SELECT count(*) FROM keytill.events WHERE state = 'pending' AND (payment = ANY ($1) OR object_id = ANY ($1))`,
		j.sale.refs()).Scan(&s.Open)
	return s, err
}

// compareKeys holds that a unit keeps its key, that no key is given where none was due, and that none is lost.
func (j *judge) compareKeys(order fulfillment.Order, want fate) error {
	var problems []string
	for i, l := range order.Lines {
		given := int64(0)
		for _, u := range l.Units {
			at := place{l.ID, u.Unit}
			had := j.keys[at]
			switch {
			case had != 0 && had != u.KeyID:
				problems = append(problems, fmt.Sprintf("unit %s/%d had key %d and has %d", l.ID, u.Unit, had, u.KeyID))
			case u.KeyID != 0:
				j.keys[at] = u.KeyID
				given++
			}
		}
		j.most[i] = max(j.most[i], j.due(want, i))
		if !j.short && (given < j.most[i] || given > max(j.most[i], j.maybe[i])) {
			problems = append(problems, fmt.Sprintf("line %s has %d keys, and at most %d were due at once", l.ID, given, j.most[i]))
		}
		j.most[i], j.maybe[i] = given, 0
	}
	if problems != nil {
		return errors.New(strings.Join(problems, "\n"))
	}
	return nil
}

// due is how many keys a line may hold: those that are due, and those that a person took.
func (j *judge) due(f fate, line int) int64 {
	return (f.lines[line].without(j.person[line]).due + j.person[line]) * j.sale.lines[line].perUnit
}

// wonder is after a settle of which nobody knows whether it was committed.
func (j *judge) wonder() {
	f := j.sale.fate(j.policy)
	for i := range j.maybe {
		j.maybe[i] = max(j.maybe[i], j.due(f, i))
	}
	j.perhaps = j.perhaps || f.exists
}

// pass is while settles that are under way may see the sale as it is now, and make an order of what comes to nothing later.
func (j *judge) pass() { j.perhaps = j.perhaps || j.sale.fate(j.policy).exists }
