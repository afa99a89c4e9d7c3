package soak_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/internal/jobs"
	"github.com/keytill/keytill/internal/pgserver"
	"github.com/keytill/keytill/internal/pgtest"
	"github.com/keytill/keytill/internal/smtptest"
	"github.com/keytill/keytill/internal/stripefake"
	"github.com/keytill/keytill/inventory"
)

// A busy day: sales, refunds, disputes and imports, while Stripe errs, connections are cut, the mail server is down, a
// snapshot is held, and one of two daemons is stopped and killed. At its end every unit is what its sale says, every key
// was told to one buyer, and the daemon that lived through it holds no more than at its beginning.
func TestABusyDayLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	d := open(t)
	d.live(length())
	d.drain()
	d.check()
}

// A day is the shop, what lies around it, and what happens there.
type day struct {
	t        *testing.T
	seed     uint64
	clock    ahead
	db       *pgxpool.Pool
	stripe   *stripefake.Server
	mail     *smtptest.Server
	pool     inventory.Pool
	service  *fulfillment.Service // an operator's: it imports
	steady   *daemon
	restless *daemon

	stripeFaults, noSupply atomic.Bool
	keys                   atomic.Int64 // imported
	began, ended           time.Time

	mu      sync.Mutex
	sales   []*sale
	events  struct{ told, lost, repeated int }
	ingest  []timing
	samples []sample
	played  map[string]int
	report  strings.Builder
}

func (a *ahead) by() time.Duration { return time.Duration(a.Load()) }

// connsEach is how many connections a daemon's pool has at most.
const connsEach = 10

func open(t *testing.T) *day {
	t.Helper()
	d := &day{t: t, seed: *seed, played: make(map[string]int)}
	if d.seed == 0 {
		d.seed = rand.Uint64()
	}
	t.Logf("seed %d", d.seed)
	// Vacuum comes soon, as on a database with a million rows, and not once a minute.
	server := pgtest.Server(t, pgserver.Config{Fast: true, Settings: map[string]string{"autovacuum_naptime": "1s"}})
	d.db = pgtest.Pool(t, server.URL())
	d.stripe = stripefake.Start(stripefake.Config{Now: d.clock.now, OnRequest: d.fault})
	t.Cleanup(d.stripe.Close)
	d.mail = smtptest.Start()
	t.Cleanup(d.mail.Close)
	keyset, err := inventory.NewKeyset()
	d.must(err)
	text, err := keyset.Marshal()
	d.must(err)
	logger := slog.New(slog.DiscardHandler)
	inserter, err := jobs.NewInserter(d.db, d.clock.now, logger)
	d.must(err)
	d.service, err = fulfillment.New(fulfillment.Config{DB: d.db, Jobs: inserter, Keyset: keyset, Now: d.clock.now, Logger: logger})
	d.must(err)
	start := func(name string) *daemon {
		m := &daemon{t: t, name: name, env: []string{
			fmt.Sprintf("KEYTILL_DATABASE_URL=%s&application_name=soak-%s&pool_max_conns=%d", server.URL(), name, connsEach),
			"KEYTILL_STRIPE_API_KEY=" + d.stripe.APIKey(), "KEYTILL_STRIPE_API_URL=" + d.stripe.URL(),
			"KEYTILL_STRIPE_WEBHOOK_SECRETS=" + strings.Join(d.stripe.Secrets(), ","), "KEYTILL_KEYSET=" + string(text),
			"KEYTILL_LISTEN=127.0.0.1:0", "KEYTILL_SMTP_URL=" + d.mail.URL(), "KEYTILL_MAIL_FROM=Shop <shop@example.com>",
			"KEYTILL_RECONCILE_EVERY=10s", "KEYTILL_RECONCILE_GRACE=5s", "KEYTILL_LOG=info",
		}}
		d.must(m.start(0))
		t.Cleanup(func() {
			if err := m.end(false); err != nil {
				t.Error(err)
			}
			if t.Failed() {
				t.Logf("the end of what daemon %s said:\n%s", name, m.now().tail())
			}
		})
		return m
	}
	d.stock()
	d.steady, d.restless = start("steady"), start("restless")
	return d
}

func (d *day) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

// stock opens the one pool.
func (d *day) stock() {
	d.t.Helper()
	d.pool = inventory.Pool{Merchant: inventory.DefaultMerchant, SKU: "game", Name: "Game", Shortage: inventory.Wait, CreatedAt: d.clock.now()}
	d.must(pgx.BeginFunc(d.t.Context(), d.db, func(tx pgx.Tx) (err error) {
		d.pool, err = inventory.CreatePool(d.t.Context(), tx, d.pool)
		return err
	}))
	d.must(d.service.Map(d.t.Context(), inventory.DefaultMerchant, "price_game", &d.pool, 1))
	d.must(d.supply(d.t.Context(), 100))
}

// supply imports so many new keys.
func (d *day) supply(ctx context.Context, n int) error {
	var file strings.Builder
	for range n {
		fmt.Fprintf(&file, "GAME-%08d\n", d.keys.Add(1))
	}
	_, _, err := d.service.Import(ctx, inventory.Import{Pool: d.pool, File: strings.NewReader(file.String()), FileName: "keys",
		Actor: "supplier", At: d.clock.now()})
	return err
}

// keepSupplied imports keys when few are left, but while there is no supply.
func (d *day) keepSupplied(ctx context.Context) error {
	for ; ctx.Err() == nil; wait(ctx, 500*time.Millisecond) {
		var left int
		if err := d.db.QueryRow(ctx, `SELECT count(*) FROM (SELECT FROM keytill.keys WHERE state = 'available' LIMIT 30) AS few`).
			Scan(&left); err != nil {
			return err
		}
		if left < 30 && !d.noSupply.Load() {
			if err := d.supply(ctx, 60); err != nil {
				return fmt.Errorf("import: %w", err)
			}
		}
	}
	return nil
}

// live lets the day happen.
func (d *day) live(length time.Duration) {
	d.t.Helper()
	d.began = time.Now()
	ctx, cancel := context.WithTimeout(d.t.Context(), length)
	defer cancel()
	each := min(max(length/40, 500*time.Millisecond), 8*time.Second) // so that all troubles come several times
	group, ctx := errgroup.WithContext(ctx)
	alive := func(err error) error {
		if ctx.Err() != nil {
			return nil // the day is over
		}
		return err
	}
	group.Go(func() error { return alive(d.keepSupplied(ctx)) })
	group.Go(func() error { return alive(d.measure(ctx, min(max(length/120, 250*time.Millisecond), 5*time.Second))) })
	random := rand.New(rand.NewPCG(d.seed, 0))
	group.Go(func() error { return d.makeTrouble(ctx, random, each) })
	group.Go(func() error {
		for n := 1; ctx.Err() == nil; n++ {
			s := newSale(n, d.seed)
			d.mu.Lock()
			d.sales = append(d.sales, s)
			d.mu.Unlock()
			group.Go(func() error { return s.live(ctx, d) })
			wait(ctx, time.Duration(float64(time.Second) / *rate))
		}
		return nil
	})
	d.must(group.Wait())
	d.ended = time.Now()
}

// tell has Stripe send an event, once or more, until a daemon has taken it; some are lost on their way.
func (d *day) tell(ctx context.Context, random *rand.Rand, kind, id string) {
	ctx = context.WithoutCancel(ctx) // what Stripe has to tell it tells, though the day ends
	if random.Float64() < lostShare {
		_, err := d.stripe.Happened(kind, id)
		if err != nil {
			d.t.Error(err)
		}
		d.mu.Lock()
		d.events.lost++
		d.mu.Unlock()
		return
	}
	event, err := d.stripe.Event(kind, id, stripefake.EventOptions{})
	if err != nil {
		d.t.Error(err)
		return
	}
	copies := 1 + random.IntN(5)/4
	for range copies {
		if err := d.deliver(ctx, event); err != nil {
			d.t.Error(err)
		}
	}
	d.mu.Lock()
	d.events.told++
	d.events.repeated += copies - 1
	d.mu.Unlock()
}

// deliver posts an event to either daemon until it is answered 200, as Stripe does, and notes how long that took.
func (d *day) deliver(ctx context.Context, event stripefake.Event) error {
	var last error
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		to := d.steady
		if rand.IntN(2) == 0 {
			to = d.restless
		}
		began := time.Now()
		status, _, err := d.stripe.Deliver(ctx, to.now().webhook, event)
		if err == nil && status == http.StatusOK {
			d.mu.Lock()
			d.ingest = append(d.ingest, timing{began, time.Since(began)})
			d.mu.Unlock()
			return nil
		}
		last = errors.Join(err, fmt.Errorf("answered %d", status))
	}
	return fmt.Errorf("event %s was never taken: %w", event.ID, last)
}

const (
	// drainPatience is longer than what a job whose process was killed has to wait for its rescue, once the clock is ahead.
	drainPatience = 4 * time.Minute

	// drainNews is after how long it is told what there is still to do.
	drainNews = time.Minute
)

// drain lets the daemons catch up. The clock goes ahead, so that what waits for its next try, or for the rescue from a
// process that was killed, waits no longer.
func (d *day) drain() {
	d.t.Helper()
	ctx := d.t.Context()
	began := time.Now()
	d.must(d.supply(ctx, 3*len(d.sales)))
	d.clock.Store(int64(time.Hour))
	d.must(d.steady.setAhead(ctx, time.Hour))
	d.must(d.restless.setAhead(ctx, time.Hour))
	var differ []string
	for told := false; time.Since(began) < drainPatience; {
		if differ = d.differences(ctx); len(differ) == 0 {
			d.tellf("caught up after %v", time.Since(began).Round(time.Second))
			return
		}
		if !told && time.Since(began) > drainNews {
			told = true
			d.tellOpenJobs(ctx)
		}
		wait(ctx, 500*time.Millisecond)
	}
	for i, line := range differ {
		if i == 10 {
			d.t.Errorf("and %d more", len(differ)-i)
			break
		}
		d.t.Error(line)
	}
	d.tellOpenJobs(ctx)
}

// tellOpenJobs logs what the queue has not done, to find out why.
func (d *day) tellOpenJobs(ctx context.Context) {
	d.t.Helper()
	rows, err := d.db.Query(ctx, `
SELECT format('job %s %s is %s after %s tries, attempted %s by %s, scheduled %s: %s', kind, args, state, attempt, attempted_at,
              attempted_by[array_length(attempted_by, 1)], scheduled_at, errors[array_length(errors, 1)])
  FROM keytill.river_job WHERE finalized_at IS NULL OR state = 'discarded' ORDER BY id LIMIT 20`)
	d.must(err)
	open, err := pgx.CollectRows(rows, pgx.RowTo[string])
	d.must(err)
	d.t.Logf("at %s the queue has, among others:\n%s", d.clock.now().Format(time.RFC3339), strings.Join(open, "\n"))
}

// differences are the sales whose units are not as they should be, and deliveries that are still to come.
func (d *day) differences(ctx context.Context) []string {
	d.t.Helper()
	got := make(map[string]units)
	var (
		order string
		u     units
	)
	rows, err := d.db.Query(ctx, `
SELECT order_id, count(*) FILTER (WHERE state = 'pending'), count(*) FILTER (WHERE state = 'fulfilled'),
       count(*) FILTER (WHERE state = 'suspended'), count(*) FILTER (WHERE state = 'revoked')
  FROM keytill.fulfilments GROUP BY order_id`)
	d.must(err)
	_, err = pgx.ForEachRow(rows, []any{&order, &u.pending, &u.fulfilled, &u.suspended, &u.revoked}, func() error {
		got[order] = u
		return nil
	})
	d.must(err)
	var differ []string
	for _, s := range d.sales {
		if want := s.want(); got[s.session] != want {
			differ = append(differ, fmt.Sprintf("%s is %+v, want %+v", s.session, got[s.session], want))
		}
	}
	rows, err = d.db.Query(ctx, `
SELECT format('a mail about %s is %s after %s tries: %s', order_id, state, attempts, last_error) FROM keytill.deliveries
 WHERE state IN ('pending', 'failed')
 UNION ALL
SELECT format('event %s is %s after %s tries: %s', event_id, state, attempts, note) FROM keytill.events WHERE state = 'pending'`)
	d.must(err)
	open, err := pgx.CollectRows(rows, pgx.RowTo[string])
	d.must(err)
	return append(differ, open...)
}

var keyText = regexp.MustCompile(`GAME-\d{8}`)

// check holds the promises against the database, the mails, and what was measured.
func (d *day) check() {
	d.t.Helper()
	ctx := d.t.Context()
	breaches, err := fulfillment.Check(ctx, d.db, d.clock.now(), time.Minute)
	d.must(err)
	for _, b := range breaches {
		d.t.Error(b)
	}
	d.checkMails()
	d.checkFlat()
	d.checkRest(ctx)
	d.checkVacuum(ctx)
	d.tellTimings("webhook", d.ingest)
	d.tellTimings("until mail", d.mailTimings(ctx))
	var orders, sweeps int
	d.must(d.db.QueryRow(ctx, `SELECT (SELECT count(*) FROM keytill.orders), (SELECT count(*) FROM keytill.sweeps WHERE ended_at IS NOT NULL)`).
		Scan(&orders, &sweeps))
	d.tellf("%d orders of %d keys, %d events told, %d of them again, %d lost; %d mails; %d sweeps; Stripe called %d times", orders, d.keys.Load(),
		d.events.told, d.events.repeated, d.events.lost, d.mail.Count(), sweeps, d.stripe.Calls(""))
	d.tellf("troubles: %s; lives of the restless daemon: %d", d.playedTroubles(), d.restless.lives)
	d.t.Logf("%v of a busy day at %v sales a second (first | middle | last third after the warm-up):\n%s", length(), *rate, d.report.String())
	for _, trouble := range troubles {
		if d.played[trouble.name] == 0 {
			d.t.Errorf("it never happened: %s", trouble.name)
		}
	}
	if orders < 10 {
		d.t.Errorf("only %d orders: that was no busy day", orders)
	}
}

// checkMails looks that every key was told to one buyer alone, and that each sale that has keys had a mail with them.
func (d *day) checkMails() {
	d.t.Helper()
	told := make(map[string]string)
	keys := make(map[string]map[string]bool)
	for _, m := range d.mail.Messages() {
		for _, key := range keyText.FindAllString(m.Text, -1) {
			to := m.To[0]
			if other, ok := told[key]; ok && other != to {
				d.t.Errorf("key %s was told to %s and to %s", key, other, to)
			}
			told[key] = to
			if keys[to] == nil {
				keys[to] = make(map[string]bool)
			}
			keys[to][key] = true
		}
	}
	for _, s := range d.sales {
		if want := s.want().fulfilled; len(keys[s.email]) < want {
			d.t.Errorf("%s has %d units and was told %d keys", s.session, want, len(keys[s.email]))
		}
	}
}

// tellf adds a line to the report.
func (d *day) tellf(format string, args ...any) { fmt.Fprintf(&d.report, "  "+format+"\n", args...) }
