package integration_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/adapter"
	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/internal/pgtest"
	"github.com/keytill/keytill/internal/stripefake"
	"github.com/keytill/keytill/inventory"
)

// A town is a scenario's world for tests in Go: a database and a Stripe, nobody to tell, and keytills that the test
// starts and ends.
type town struct {
	*scenario
	t *testing.T

	conns  int32 // of each keytill to the database
	tracer pgx.QueryTracer
	policy fulfillment.Policy
	fake   stripefake.Config
}

func newTown(t *testing.T, change ...func(*town)) *town {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	clock := &clock{}
	url := pgtest.NewURL(t)
	w := &town{t: t, conns: dbConns, scenario: &scenario{ctx: ctx, clock: clock, url: url, db: pgtest.Pool(t, url), log: &logBuffer{},
		numbered: make(map[int64]int)}}
	for _, c := range change {
		c(w)
	}
	w.fake.Now = clock.now
	w.stripe = stripefake.Start(w.fake)
	var err error
	w.keyset, err = inventory.NewKeyset()
	t.Cleanup(func() {
		w.stripe.Close()
		cancel()
		if t.Failed() {
			t.Logf("the end of keytill's log:\n%s", w.log.tail())
		}
	})
	w.must(err)
	return w
}

// must ends the test, from any goroutine of it that may.
func (w *town) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// open makes a keytill that takes events, and works no jobs.
func (w *town) open() *life {
	w.t.Helper()
	l := newLife(w.clock.now())
	config, err := w.config(l, w.stripe.URL())
	w.must(err)
	l.shop, err = adapter.New(w.ctx, config)
	w.must(err)
	front := httptest.NewServer(l.shop.Handler())
	l.url = front.URL
	w.t.Cleanup(func() {
		front.Close()
		l.pool.Close()
		l.cut()
	})
	return l
}

// run starts a keytill that lives until the test ends it or ends.
func (w *town) run() *life {
	w.t.Helper()
	l := newLife(w.clock.now())
	stripe, err := newWire(strings.TrimPrefix(w.stripe.URL(), "http://"), &l.cutter)
	w.must(err)
	l.wires = append(l.wires, stripe)
	config, err := w.config(l, "http://"+stripe.addr())
	w.must(err)
	w.must(l.launch(w.ctx, config))
	w.t.Cleanup(func() {
		select {
		case <-l.ended: // the test has ended it
		default:
			w.stripe.Close() // what hangs in Stripe would keep it from stopping
			if err := l.stop(); err != nil {
				w.t.Errorf("stop keytill: %v", err)
			}
		}
	})
	w.life = l
	return l
}

// config has a keytill call Stripe as often as it likes, since waiting for one's turn is no race.
func (w *town) config(l *life, stripe string) (adapter.Config, error) {
	if err := l.connect(w.ctx, w.url, w.conns, w.tracer); err != nil {
		return adapter.Config{}, err
	}
	return adapter.Config{
		Pool: l.pool,
		Stripe: adapter.Stripe{APIKey: w.stripe.APIKey(), WebhookSecrets: w.stripe.Secrets(), URL: stripe,
			PerSecond: 100_000},
		Keyset: w.keyset, Policy: w.policy, Reconcile: adapter.Reconcile{Every: -1}, Now: w.clock.now, Logger: w.logger(),
	}, nil
}

// stock makes a pool with so many keys, from which each of the prices hands out perUnit.
func (w *town) stock(shop *adapter.Shop, sku string, keys, perUnit int, prices ...string) inventory.Pool {
	w.t.Helper()
	p := inventory.Pool{Merchant: inventory.DefaultMerchant, SKU: sku, Shortage: inventory.Wait, CreatedAt: w.clock.now()}
	w.must(pgx.BeginFunc(w.ctx, w.db, func(tx pgx.Tx) (err error) {
		p, err = inventory.CreatePool(w.ctx, tx, p)
		return err
	}))
	for _, price := range prices {
		w.must(shop.Service().Map(w.ctx, p.Merchant, price, &p, perUnit))
	}
	w.restock(shop, p, keys)
	return p
}

func (w *town) restock(shop *adapter.Shop, p inventory.Pool, keys int) {
	w.t.Helper()
	if keys == 0 {
		return
	}
	_, _, err := shop.Service().Import(w.ctx, inventory.Import{Pool: p, File: strings.NewReader(strings.Join(w.nameKeys(p, keys), "\n")),
		FileName: p.SKU, Actor: "test"})
	w.must(err)
}

// sell makes a finished and paid session at Stripe.
func (w *town) sell(session string, items ...string) {
	w.t.Helper()
	parsed, err := stripefake.ParseItems(items...)
	w.must(err)
	w.must(w.stripe.Session(session, parsed, nil))
}

// tell delivers an event of a type about an object to a keytill.
func (w *town) tell(l *life, kind, id string) error {
	ev, err := w.stripe.Event(kind, id, stripefake.EventOptions{})
	if err != nil {
		return err
	}
	status, body, err := w.stripe.Deliver(w.ctx, l.url+webhookPath, ev)
	if err != nil {
		return err
	}
	return wantStatus(200, status, body)
}

// hold checks that keytill's promises hold.
func (w *town) hold() {
	w.t.Helper()
	breaches, err := fulfillment.Check(w.ctx, w.db, w.clock.now(), 0)
	w.must(err)
	for _, b := range breaches {
		w.t.Error(b)
	}
}

// units counts the units of a pool by state, and how many different keys they have.
func (w *town) units(pool int64) (counts map[fulfillment.UnitState]int, keys int) {
	w.t.Helper()
	rows, err := w.db.Query(w.ctx, `SELECT state, count(*)::int FROM keytill.fulfilments WHERE pool_id = $1 GROUP BY state`, pool)
	w.must(err)
	counts = make(map[fulfillment.UnitState]int)
	var (
		state fulfillment.UnitState
		n     int
	)
	_, err = pgx.ForEachRow(rows, []any{&state, &n}, func() error {
		counts[state] = n
		return nil
	})
	w.must(err)
	w.must(w.db.QueryRow(w.ctx, `SELECT count(DISTINCT key_id)::int FROM keytill.fulfilments WHERE pool_id = $1`, pool).Scan(&keys))
	return counts, keys
}

// wantUnits compares the units of a pool, of which each that is fulfilled has a key of its own.
func (w *town) wantUnits(pool inventory.Pool, want map[fulfillment.UnitState]int) {
	w.t.Helper()
	got, keys := w.units(pool.ID)
	if fmt.Sprint(got) != fmt.Sprint(want) || keys != want[fulfillment.UnitFulfilled] {
		w.t.Errorf("the units of %s are %v with %d keys, want %v", pool.SKU, got, keys, want)
	}
}
