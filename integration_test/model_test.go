package integration_test

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/internal/stripefake"
	"github.com/keytill/keytill/inventory"
)

// Whatever a payment goes through, and in whatever order, how often and at the same time its events are worked: once all
// have been, the order is what the last truth says.
func TestAnyOrderOfSettlesEndsInTheLastTruth(t *testing.T) {
	t.Parallel()
	if *long {
		defer setFlag(t, "rapid.checks", "2000")()
	}
	w := newTown(t, func(w *town) { w.conns = 24 })
	l := w.open()
	var runs atomic.Int64
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t, w, l, fmt.Sprintf("m%d", runs.Add(1)))
		m.live()
		m.comeTogether()
		m.end()
	})
	w.hold()
}

// setFlag sets a flag for a test. The returned function sets it back.
func setFlag(t *testing.T, name, value string) func() {
	t.Helper()
	was := flag.Lookup(name).Value.String()
	if err := flag.Set(name, value); err != nil {
		t.Fatal(err)
	}
	return func() { _ = flag.Set(name, was) } // it was that before
}

// A model is a sale in a shop with a shelf of its own, which may hold less than is sold.
type model struct {
	*rapid.T
	town   *town
	life   *life
	sale   *sale
	judge  *judge
	pool   inventory.Pool
	keys   int
	events []stripefake.Event // still on their way
	come   []stripefake.Event // recorded, and worked by luck
}

func newModel(t *rapid.T, w *town, l *life, id string) *model {
	m := &model{T: t, town: w, life: l, keys: rapid.IntRange(0, 12).Draw(t, "keys")}
	one, two := "price_"+id+"one", "price_"+id+"two"
	m.pool = w.stock(l.shop, "sku_"+id, m.keys, 1, one, two)
	m.sale = draw(m.roll, w.stripe, id, []offer{{one, m.pool.SKU, 1}, {two, m.pool.SKU, 1}})
	m.judge = newJudge(w.db, m.sale, fulfillment.Policy{})
	m.judge.short = true
	return m
}

func (m *model) roll(n int, what string) int { return rapid.IntRange(0, n-1).Draw(m.T, what) }

// live has things happen to the sale, and events about them come, while older ones are worked and others look by
// themselves.
func (m *model) live() {
	happened, err := m.sale.place()
	m.take(happened, err)
	for range m.roll(8, "turns") {
		m.judge.pass()
		var beside errgroup.Group
		for range m.roll(3, "settles beside") {
			if n := len(m.come); n > 0 && m.roll(2, "by event") == 0 {
				ev := m.come[m.roll(n, "which")]
				beside.Go(func() error { return m.work(ev.ID) })
			} else {
				beside.Go(m.settle)
			}
		}
		_, happened, err := m.sale.happen(m.roll)
		m.take(happened, err)
		m.judge.pass()
		for n := len(m.events); n > 0 && m.roll(2, "comes now") == 0; n = len(m.events) {
			ev := m.events[n-1]
			m.events, m.come = m.events[:n-1], append(m.come, ev)
			m.check(m.deliver(ev))
		}
		m.check(beside.Wait())
	}
}

func (m *model) take(happened []occurrence, err error) {
	m.check(err)
	for _, o := range happened {
		ev, err := m.town.stripe.Event(o.kind, o.id, stripefake.EventOptions{})
		m.check(err)
		m.events = append(m.events, ev)
	}
}

func (m *model) check(err error) {
	m.Helper()
	if err != nil {
		m.Fatal(err)
	}
}

// comeTogether delivers all events in any order, some again, and settles them a few at once.
func (m *model) comeTogether() {
	events := rapid.Permutation(slices.Concat(m.events, m.come)).Draw(m.T, "order of arrival")
	for _, ev := range events {
		if m.roll(3, "again") == 0 {
			events = append(events, ev)
		}
	}
	var working errgroup.Group
	working.SetLimit(1 + m.roll(4, "at once"))
	for _, ev := range events {
		working.Go(func() error {
			if err := m.deliver(ev); err != nil {
				return err
			}
			return m.work(ev.ID)
		})
	}
	m.check(working.Wait())
}

func (m *model) deliver(ev stripefake.Event) error {
	status, _, err := m.town.stripe.Deliver(m.town.ctx, m.life.url+webhookPath, ev)
	if err != nil || status != 200 {
		return fmt.Errorf("deliver %s: %d %w", ev.ID, status, err)
	}
	return nil
}

// work does an event's job, again if another settle was faster, as the queue does.
func (m *model) work(event string) error {
	for {
		err := m.life.shop.Service().SettleEvent(m.town.ctx, inventory.DefaultMerchant, event)
		if !errors.Is(err, fulfillment.ErrStale) {
			return err
		}
	}
}

func (m *model) settle() error {
	_, err := m.life.shop.Settle(m.town.ctx, m.sale.order())
	if errors.Is(err, fulfillment.ErrNoOrder) {
		return nil
	}
	return overtaken(err)
}

// end compares. What events there were must have been enough; only a sale without any needs a settle of its own.
func (m *model) end() {
	if len(m.events)+len(m.come) == 0 {
		m.check(m.settle())
	}
	_, err := m.life.shop.Service().ServeWaiting(m.town.ctx, m.pool.Merchant, m.pool.ID) // the job that a waiting unit leaves
	m.check(err)
	order, err := m.judge.compare(m.town.ctx)
	if err != nil {
		m.Fatalf("%+v\n%v", m.sale, err)
	}
	m.countKeys(order)
}

// countKeys holds that the pool's counts are those of the order's units, and that none waits beside a key.
func (m *model) countKeys(order fulfillment.Order) {
	ledger, err := inventory.Stock(m.town.ctx, m.town.db, m.pool.Merchant, m.pool.ID)
	m.check(err)
	got := ledger[m.pool.ID]
	want := inventory.Counts{}
	byUnit := map[fulfillment.UnitState]inventory.State{fulfillment.UnitFulfilled: inventory.Allocated,
		fulfillment.UnitSuspended: inventory.Suspended, fulfillment.UnitRevoked: inventory.Revoked}
	left := int64(m.keys)
	for _, l := range order.Lines {
		for _, u := range l.Units {
			if u.KeyID != 0 {
				want[byUnit[u.State]]++
				left--
			}
		}
	}
	if want[inventory.Available] = left; left == 0 {
		delete(want, inventory.Available)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		m.Fatalf("the pool has %v, and by its units should have %v", got, want)
	}
	if order.Units()[fulfillment.UnitWaiting] > 0 && left > 0 {
		m.Fatalf("%v wait beside %d keys", order.Units(), left)
	}
}
