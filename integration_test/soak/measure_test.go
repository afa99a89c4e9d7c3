package soak_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// A sample is how the steady daemon and its database are at a moment.
type sample struct {
	at time.Time
	health
	conns      int   // of the steady daemon
	dead, live int64 // rows of all tables
}

// measure takes a sample at every tick until ctx ends.
func (d *day) measure(ctx context.Context, every time.Duration) error {
	for ctx.Err() == nil {
		s := sample{at: time.Now()}
		var err error
		if s.health, err = d.steady.health(ctx); err == nil {
			err = d.db.QueryRow(ctx, readSample).Scan(&s.conns, &s.dead, &s.live)
		}
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("measure: %w", err)
		}
		if err == nil {
			d.mu.Lock()
			d.samples = append(d.samples, s)
			d.mu.Unlock()
		}
		wait(ctx, every)
	}
	return nil
}

const readSample = `
SELECT (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'soak-steady'),
       (SELECT coalesce(sum(n_dead_tup), 0)::bigint FROM pg_stat_user_tables),
       (SELECT coalesce(sum(n_live_tup), 0)::bigint FROM pg_stat_user_tables)`

// A series is one figure over the day.
type series []float64

func (s series) median() float64 {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[len(sorted)/2]
}

func (s series) thirds() (first, middle, last series) {
	n := len(s) / 3
	return s[:n], s[n : len(s)-n], s[len(s)-n:]
}

// slope is how much the figure grows from the first value to the last, by the straight line that fits best.
func (s series) slope() float64 {
	var x, y, xx, xy, n float64
	for i, v := range s {
		at := float64(i) / float64(max(1, len(s)-1))
		x, y, xx, xy, n = x+at, y+v, xx+at*at, xy+at*v, n+1
	}
	if n*xx-x*x == 0 {
		return 0
	}
	return (n*xy - x*y) / (n*xx - x*x)
}

// warmUp is the share of a run in which caches fill and pools open.
const warmUp = 5

// figures are the samples after the warm-up, of one figure.
func (d *day) figures(of func(sample) float64) series {
	kept := d.samples[len(d.samples)/warmUp:]
	s := make(series, len(kept))
	for i, k := range kept {
		s[i] = of(k)
	}
	return s
}

// A limit says by how much the last third of a figure may be above the first, or what it may be at most.
type limit struct {
	name   string
	unit   float64
	of     func(sample) float64
	factor float64
	extra  float64
}

// limits hold for a day of any length: a leak that hides below them in half a minute shows in half an hour.
var limits = []limit{
	{"heap (MB)", 1 << 20, func(s sample) float64 { return float64(s.Heap) }, 1.25, 3 << 20},
	{"goroutines", 1, func(s sample) float64 { return float64(s.Goroutines) }, 1.25, 20},
	{"open files", 1, func(s sample) float64 { return float64(s.Files) }, 1.25, 20},
	// The pool's, which come and go, and the one that listens. Those that were cut may take a moment to go.
	{"connections", 1, func(s sample) float64 { return float64(s.conns) }, 0, connsEach + 2},
}

// checkFlat compares the last third of each figure with its first, and tells all of them.
func (d *day) checkFlat() {
	d.t.Helper()
	for _, l := range limits {
		s := d.figures(l.of)
		first, middle, last := s.thirds()
		d.tellf("%-12s %7.1f %7.1f %7.1f, highest %.1f, trend over the run %+.1f", l.name, first.median()/l.unit, middle.median()/l.unit,
			last.median()/l.unit, slices.Max(s)/l.unit, s.slope()/l.unit)
		if bound := first.median()*l.factor + l.extra; last.median() > bound {
			d.t.Errorf("%s: %.1f in the first third and %.1f in the last, above %.1f", l.name, first.median()/l.unit,
				last.median()/l.unit, bound/l.unit)
		}
	}
	dead := d.figures(func(s sample) float64 { return float64(s.dead) })
	first, middle, last := dead.thirds()
	d.tellf("%-12s %7.0f %7.0f %7.0f, highest %.0f beside %d live rows", "dead rows", first.median(), middle.median(), last.median(),
		slices.Max(dead), d.samples[len(d.samples)-1].live)
}

// Rows that are dead and not vacuumed: PostgreSQL's own threshold is 50 and a fifth of the live ones for each table.
const (
	deadShare = 0.5
	deadExtra = 100
)

// checkVacuum waits until the rows that died in the day are vacuumed away, in every table. Only what keeps them from it,
// a snapshot that is never let go or a vacuum that does not come, makes that fail.
func (d *day) checkVacuum(ctx context.Context) {
	d.t.Helper()
	var bloated []string
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); wait(ctx, 500*time.Millisecond) {
		rows, err := d.db.Query(ctx, `
SELECT format('%s has %s dead rows beside %s live ones', relname, n_dead_tup, n_live_tup) FROM pg_stat_user_tables
 WHERE n_dead_tup > $1::float8 * n_live_tup + $2::float8`, deadShare, deadExtra)
		d.must(err)
		bloated, err = pgx.CollectRows(rows, pgx.RowTo[string])
		d.must(err)
		if len(bloated) == 0 {
			return
		}
	}
	for _, b := range bloated {
		d.t.Error(b)
	}
}

// checkRest looks for what a daemon with nothing to do must not hold.
func (d *day) checkRest(ctx context.Context) {
	d.t.Helper()
	var held string
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); wait(ctx, 200*time.Millisecond) {
		d.must(d.db.QueryRow(ctx, `
SELECT coalesce(string_agg(application_name || ' ' || state || ': ' || query, E'\n'), '') FROM pg_stat_activity
 WHERE datname = current_database() AND application_name LIKE 'soak-%' AND state LIKE 'idle in transaction%'
   AND now() - state_change > interval '2 seconds'`).Scan(&held))
		if held == "" {
			return
		}
	}
	d.t.Errorf("transactions that nobody ends:\n%s", held)
}

// A timing is how long something took, and when.
type timing struct {
	at   time.Time
	took time.Duration
}

// tellTimings reports percentiles of the day's thirds. They are told and not judged: this machine has other work.
func (d *day) tellTimings(name string, timings []timing) {
	parts := make([]string, 3)
	begin, third := d.began, d.ended.Sub(d.began)/3
	for i := range parts {
		var took series
		for _, t := range timings {
			if at := t.at.Sub(begin); at >= time.Duration(i)*third && at < time.Duration(i+1)*third {
				took = append(took, float64(t.took))
			}
		}
		slices.Sort(took)
		parts[i] = "none"
		if n := len(took); n > 0 {
			p := func(share float64) time.Duration {
				return time.Duration(took[int(share*float64(n-1))]).Round(time.Millisecond)
			}
			parts[i] = fmt.Sprintf("p50 %v p99 %v", p(0.5), p(0.99))
		}
	}
	d.tellf("%-12s %s", name, strings.Join(parts, " | "))
}

// mailTimings are the times from a session's event to its first mail.
func (d *day) mailTimings(ctx context.Context) []timing {
	d.t.Helper()
	rows, err := d.db.Query(ctx, `
SELECT e.received_at, min(d.done_at) FROM keytill.events e
  JOIN keytill.deliveries d ON d.merchant_id = e.merchant_id AND d.order_id = e.object_id AND d.channel = 'email' AND d.state = 'sent'
 WHERE e.type = 'checkout.session.completed' AND NOT e.swept AND d.done_at < $1
 GROUP BY e.event_id, e.received_at`, d.ended)
	d.must(err)
	timings, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (t timing, err error) {
		var done time.Time
		err = row.Scan(&t.at, &done)
		t.took = done.Sub(t.at)
		return t, err
	})
	d.must(err)
	return timings
}
