package wire

import (
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keytill/keytill/fulfillment"
)

// judge holds keytill's promises against the database, as everybody else sees it.
func (r *round) judge(when string, grace time.Duration) {
	r.t.Helper()
	breaches, err := fulfillment.Check(r.t.Context(), r.shop.DB, r.shop.Now(), grace)
	r.shop.Must(err)
	for _, sql := range []string{eventsWithoutJob, deliveriesWithoutJob, jobsWithoutDelivery, toldTwice} {
		breaches = append(breaches, collect[string](r.world, sql)...)
	}
	r.mu.Lock()
	answered := slices.Clone(r.answered)
	r.mu.Unlock()
	for _, id := range collect[string](r.world, answeredAndLost, answered) {
		breaches = append(breaches, "event "+id+" was answered 200 and is not recorded")
	}
	for _, breach := range breaches {
		r.t.Errorf("%s: %s", when, breach)
	}
}

const (
	// What is pending has a job that works it. Nothing here works jobs, so none is done but by the round's own hand.
	eventsWithoutJob = `
SELECT format('event %s is pending and no job settles it', event_id) FROM keytill.events e
 WHERE state = 'pending' AND NOT swept
   AND NOT EXISTS (SELECT FROM keytill.river_job j WHERE j.kind = 'settle' AND j.args->>'event_id' = e.event_id
                      OR j.kind = 'spread' AND j.args->'event_ids' ? e.event_id)`

	deliveriesWithoutJob = `
SELECT format('delivery %s is pending and no job sends it', delivery_id) FROM keytill.deliveries d
 WHERE state = 'pending'
   AND NOT EXISTS (SELECT FROM keytill.river_job j
                    WHERE j.kind = 'deliver' AND (j.args->>'delivery_id')::bigint = d.delivery_id
                       OR j.kind = 'spread_deliveries'
                          AND j.args->'deliveries' @> jsonb_build_array(jsonb_build_object('delivery_id', d.delivery_id)))`

	jobsWithoutDelivery = `
SELECT format('job %s sends delivery %s, which was not committed', id, args->>'delivery_id') FROM keytill.river_job j
 WHERE j.kind = 'deliver'
   AND NOT EXISTS (SELECT FROM keytill.deliveries d WHERE d.delivery_id = (j.args->>'delivery_id')::bigint)`

	// No operation here changes a unit twice in the same way.
	toldTwice = `
SELECT format('%s of order %s over %s is told %s times', type, order_id, channel, count(*)) FROM keytill.deliveries
 WHERE order_id IS NOT NULL
 GROUP BY order_id, channel, type, units
HAVING count(*) > 1`

	answeredAndLost = `SELECT id FROM unnest($1::text[]) AS a (id) WHERE NOT EXISTS (SELECT FROM keytill.events e WHERE e.event_id = id)`
)

// wantUnits compares an order's units, and that each that is fulfilled or suspended has a key of its own.
func (r *round) wantUnits(order string, want shopUnits) {
	r.t.Helper()
	states := collect[string](r.world, `SELECT state FROM keytill.fulfilments WHERE order_id = $1 ORDER BY line_id, unit`, order)
	if diff := cmp.Diff([]string(want), states); diff != "" {
		r.t.Errorf("order %s (-want +got):\n%s", order, diff)
	}
}

// shopUnits are the states of an order's units.
type shopUnits []string

func units(n int, state fulfillment.UnitState) shopUnits {
	return slices.Repeat(shopUnits{string(state)}, n)
}

// wantDone wants all of the round's events to be settled.
func (r *round) wantDone() {
	r.t.Helper()
	for _, open := range collect[string](r.world, `SELECT event_id || ' is ' || state FROM keytill.events WHERE event_id = ANY ($1) AND state <> 'done'`, r.events) {
		r.t.Errorf("event %s", open)
	}
}

// wantTold compares what is told of an order, by channel and type.
func (r *round) wantTold(order string, want ...string) {
	r.t.Helper()
	told := collect[string](r.world, `SELECT channel || ' ' || type FROM keytill.deliveries WHERE order_id = $1 ORDER BY 1`, order)
	if diff := cmp.Diff(want, told); diff != "" {
		r.t.Errorf("told of order %s (-want +got):\n%s", order, diff)
	}
}

// keyOf is the key of an order's first unit.
func (r *round) keyOf(order string) int64 {
	r.t.Helper()
	keys := collect[int64](r.world, `SELECT coalesce(key_id, 0) FROM keytill.fulfilments WHERE order_id = $1 ORDER BY line_id, unit LIMIT 1`, order)
	if len(keys) == 0 {
		return 0
	}
	return keys[0]
}

// wantCount is an error unless a query's count is as wanted.
func (r *round) wantCount(what string, want int64, sql string, args ...any) {
	r.t.Helper()
	if got := collect[int64](r.world, sql, args...)[0]; got != want {
		r.t.Errorf("%d %s, want %d", got, what, want)
	}
}
