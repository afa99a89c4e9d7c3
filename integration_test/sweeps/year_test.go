package sweeps_test

import (
	"flag"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/integration_test/shoptest"
	"github.com/keytill/keytill/inventory"
	"github.com/keytill/keytill/reconcile"
)

var yearSeed = flag.Uint64("year", 0, "the seed of the simulated year, to see one again; 0: a new one")

// An outage is a time in which keytill is not there: events are lost, and there is no sweep.
type outage struct{ from, to time.Time }

// A step of the year.
type step struct {
	at     time.Time
	sale   *sale
	change change
	sweep  bool
}

// A year of a shop: 5 % of the events are lost, and keytill is away for an hour, a day and a month; bank debits take two
// weeks, refunds fail, disputes are won and lost, Stripe answers 429 and 500 at random. Each sweep must have repaired all
// that could be known before it, less the grace; and at the end every unit is what an oracle says that never heard of
// keytill.
func TestAYearOfAShop(t *testing.T) {
	t.Parallel()
	seed := *yearSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d: go test ./integration_test/sweeps -run TestAYearOfAShop -year %d", seed, seed)
	y := newYear(t, seed, length(1000, 20_000), time.Duration(length(24, 1))*time.Hour)
	y.live()
	y.finish()
}

type year struct {
	*shoptest.Shop
	random  *rand.Rand
	every   time.Duration
	begin   time.Time
	sales   []*sale
	steps   []step
	outages []outage

	unseen map[*sale]bool // a change of theirs was told to nobody yet, and no sweep has repaired it
	told   struct{ events, lost, sweeps, repaired, late int }
	latest time.Duration
}

func newYear(t *testing.T, seed uint64, sales int, every time.Duration) *year {
	y := &year{Shop: shoptest.Open(t, shoptest.Config{Seed: seed, Keys: 4 * sales}), random: rand.New(rand.NewPCG(seed, 1)), every: every, unseen: make(map[*sale]bool)}
	y.begin = y.Now().Add(time.Hour)
	y.Faults(0.01)
	end := y.begin.Add(365 * day)
	for _, length := range []time.Duration{time.Hour, day, 30 * day} {
		from := y.begin.Add(time.Duration(y.random.Int64N(int64(320 * day))))
		y.outages = append(y.outages, outage{from, from.Add(length)})
	}
	for n := range sales {
		s := &sale{n: n}
		y.sales = append(y.sales, s)
		at := y.begin.Add(time.Duration(y.random.Int64N(int64(365 * day))))
		for _, c := range s.plan(y.random, y.Stripe) {
			if when := at.Add(c.after); when.Before(end) {
				y.steps = append(y.steps, step{at: when, sale: s, change: c})
			}
		}
	}
	for at := y.begin.Add(every); at.Before(end.Add(2 * every)); at = at.Add(every) {
		y.steps = append(y.steps, step{at: at, sweep: true})
	}
	slices.SortStableFunc(y.steps, func(a, b step) int { return a.at.Compare(b.at) })
	return y
}

func (y *year) away(at time.Time) bool {
	return slices.ContainsFunc(y.outages, func(o outage) bool { return !at.Before(o.from) && at.Before(o.to) })
}

func (y *year) live() {
	for _, s := range y.steps {
		y.GoTo(s.at)
		switch {
		case s.sweep && y.away(s.at):
		case s.sweep:
			y.sweep()
		default:
			y.happen(s)
		}
		if y.T.Failed() {
			y.T.FailNow()
		}
	}
}

// happen changes Stripe and tells keytill, or does not.
func (y *year) happen(s step) {
	y.Must(s.change.do())
	s.sale.changed = s.at
	heard := true
	for _, event := range s.change.tells {
		y.told.events++
		if y.away(s.at) || y.random.Float64() < 0.05 {
			y.told.lost++
			heard = false
			_, err := y.Stripe.Happened(event[0], event[1])
			y.Must(err)
			continue
		}
		y.Deliver(event[0], event[1])
	}
	if !heard || y.UnitsOf(s.sale.order) != s.sale.units() {
		y.unseen[s.sale] = true
	}
}

// sweep sweeps, and checks that what could be known by then is repaired.
func (y *year) sweep() {
	y.WorkPending()
	started := y.Now()
	report, err := y.Sweeper.Sweep(y.T.Context(), inventory.DefaultMerchant, reconcile.Options{})
	if err != nil || !report.OK() {
		y.T.Logf("sweep of %s: %v, %+v", started.Format(time.DateTime), err, report.Payments)
	}
	y.told.sweeps++
	y.told.repaired += report.Repaired
	for s := range y.unseen {
		if s.changed.After(started.Add(-shoptest.Grace - time.Second)) {
			continue
		}
		if got, want := y.UnitsOf(s.order), s.units(); got != want {
			y.T.Errorf("%s: %+v a sweep after it could be known (changed %s, swept %s), want %+v", s.order, got,
				s.changed.Format(time.DateTime), started.Format(time.DateTime), want)
			continue
		}
		if late := started.Sub(s.changed); late > y.every+shoptest.Grace+time.Second && !y.wasAway(s.changed, started) {
			y.T.Errorf("%s was repaired %s after it could be known", s.order, late)
		} else if !y.wasAway(s.changed, started) {
			y.latest = max(y.latest, late)
		}
		delete(y.unseen, s)
	}
}

func (y *year) wasAway(from, to time.Time) bool {
	return slices.ContainsFunc(y.outages, func(o outage) bool { return o.from.Before(to) && from.Before(o.to) })
}

// finish holds every order against the oracle, and the database against the invariants.
func (y *year) finish() {
	y.T.Logf("%d payments, %d events of which %d were lost, %d sweeps, %d repairs, the latest %s after it could be known; Stripe was called %d times",
		len(y.sales), y.told.events, y.told.lost, y.told.sweeps, y.told.repaired, y.latest, y.Stripe.Calls(""))
	if len(y.unseen) > 0 {
		y.T.Errorf("%d sales were never repaired", len(y.unseen))
	}
	orders := 0
	for _, s := range y.sales {
		want := s.units()
		if got := y.UnitsOf(s.order); got != want {
			y.T.Errorf("%s: %+v, want %+v", s.order, got, want)
		}
		if want != (shoptest.Units{}) {
			orders++
		}
	}
	var kept int
	y.Must(y.DB.QueryRow(y.T.Context(), `SELECT count(*) FROM keytill.orders`).Scan(&kept))
	if kept != orders {
		y.T.Errorf("%d orders, want %d", kept, orders)
	}
	breaches, err := fulfillment.Check(y.T.Context(), y.DB, y.Now(), time.Minute)
	y.Must(err)
	for _, b := range breaches {
		y.T.Error(b)
	}
}
