package integration_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/adapter"
	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/inventory"
)

// Keys that somebody merely holds locks on are not sold: a unit that finds nothing else waits for what becomes of them, and
// is not told to wait for a restock.
func TestLockedKeysAreNotSoldOut(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		keys, buys    int
		taken         bool // the holder keeps what it holds
		want, stocked int
	}{
		{name: "given back", keys: 3, buys: 2, want: 2, stocked: 3},
		{name: "taken", keys: 3, buys: 2, taken: true, want: 0, stocked: 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newTown(t)
			l := w.open()
			pool := w.stock(l.shop, "game", c.keys, 1, "price_game")
			w.sell("cs_1", fmt.Sprintf("price_game*%d", c.buys))

			holder, err := w.db.Begin(w.ctx)
			w.must(err)
			defer func() { _ = holder.Rollback(context.Background()) }()
			w.takeAll(holder, pool)
			settled := w.settleAside(l.shop, "cs_1")
			w.awaitBlocked(settled)
			if c.taken {
				w.must(holder.Commit(w.ctx))
			} else {
				w.must(holder.Rollback(w.ctx))
			}
			got := settled.wait(t)
			if n := got.Units()[fulfillment.UnitFulfilled]; n != c.want || got.Units()[fulfillment.UnitWaiting] != c.buys-c.want {
				t.Errorf("units %v, want %d fulfilled of %d", got.Units(), c.want, c.buys)
			}
			stock, err := inventory.Stock(w.ctx, w.db, pool.Merchant, pool.ID)
			w.must(err)
			if n := stock[pool.ID][inventory.Available]; n != int64(c.stocked-c.want) {
				t.Errorf("%d keys are left, want %d", n, c.stocked-c.want)
			}
			w.hold()
		})
	}
}

// The same with another buyer for the holder, who has claimed the last key and stands before its commit.
func TestTheLastKeyGoesToWhoeverCommits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name        string
		dies        bool
		first, then fulfillment.UnitState
	}{
		{"the first commits", false, fulfillment.UnitFulfilled, fulfillment.UnitWaiting},
		{"the first dies", true, fulfillment.UnitWaiting, fulfillment.UnitFulfilled},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newGate(c.dies)
			w := newTown(t, func(w *town) { w.tracer = g })
			l := w.open()
			pool := w.stock(l.shop, "game", 1, 1, "price_game")
			w.sell("cs_1", "price_game*1")
			w.sell("cs_2", "price_game*1")
			t.Cleanup(g.open)

			first := w.settleAsideIn(context.WithValue(w.ctx, gated{}, true), l.shop, "cs_1")
			g.await(t)
			then := w.settleAside(l.shop, "cs_2")
			w.awaitBlocked(then)
			g.open()
			if err := first.err(t); (err != nil) != c.dies {
				t.Errorf("the first settle: %v", err)
			}
			if got := then.wait(t).Units(); got[c.then] != 1 {
				t.Errorf("the second order's unit: %v, want %s", got, c.then)
			}
			again, err := l.shop.Settle(w.ctx, "cs_1")
			w.must(err)
			if again.Units()[c.first] != 1 {
				t.Errorf("the first order's unit: %v, want %s", again.Units(), c.first)
			}
			w.wantUnits(pool, map[fulfillment.UnitState]int{fulfillment.UnitFulfilled: 1, fulfillment.UnitWaiting: 1})
			w.hold()
		})
	}
}

// takeAll takes every key of a pool off the shelf, in a transaction that is still open.
func (w *town) takeAll(tx pgx.Tx, pool inventory.Pool) {
	w.t.Helper()
	_, err := tx.Exec(w.ctx, `
WITH gone AS (
    UPDATE keytill.keys SET state = 'quarantined' WHERE merchant_id = $1 AND pool_id = $2 AND state = 'available' RETURNING key_id
)
INSERT INTO keytill.movements (merchant_id, pool_id, key_id, from_state, to_state, reason, actor, at)
SELECT $1, $2, key_id, 'available', 'quarantined', 'held', 'test', now() FROM gone`, pool.Merchant, pool.ID)
	w.must(err)
}

// aside is a settle that runs beside the test.
type aside struct {
	done  chan struct{}
	order fulfillment.Order
	fault error
}

func (w *town) settleAside(shop *adapter.Shop, ref string) *aside {
	return w.settleAsideIn(w.ctx, shop, ref)
}

func (w *town) settleAsideIn(ctx context.Context, shop *adapter.Shop, ref string) *aside {
	a := &aside{done: make(chan struct{})}
	go func() {
		defer close(a.done)
		a.order, a.fault = shop.Settle(ctx, ref)
	}()
	return a
}

const asideTimeout = 30 * time.Second

func (a *aside) err(t *testing.T) error {
	t.Helper()
	select {
	case <-a.done:
		return a.fault
	case <-time.After(asideTimeout):
		t.Fatal("the settle does not end")
		return nil
	}
}

func (a *aside) wait(t *testing.T) fulfillment.Order {
	t.Helper()
	if err := a.err(t); err != nil {
		t.Fatal(err)
	}
	return a.order
}

// awaitBlocked waits until a transaction waits for another one's lock. It is an error if the settle ends before.
func (w *town) awaitBlocked(a *aside) {
	w.t.Helper()
	for deadline := time.Now().Add(asideTimeout); time.Now().Before(deadline); time.Sleep(pollEvery) {
		select {
		case <-a.done:
			w.t.Fatalf("it ended while the keys were locked: %v, %v", a.order.Units(), a.fault)
		default:
		}
		var blocked bool
		w.must(w.db.QueryRow(w.ctx, `
SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&blocked))
		if blocked {
			return
		}
	}
	w.t.Fatal("nothing waits for the locked keys")
}

// gated marks the context of the settle that a gate stops.
type gated struct{}

// A gate stops a marked settle before its commit, which the settle then does, or never gets to.
type gate struct {
	reached, opened chan struct{}
	open            func()
	cut             bool
	once            sync.Once
	dead            atomic.Bool
}

func newGate(cut bool) *gate {
	g := &gate{reached: make(chan struct{}), opened: make(chan struct{}), cut: cut}
	g.open = sync.OnceFunc(func() { close(g.opened) })
	return g
}

var _ pgx.QueryTracer = (*gate)(nil)

// TraceQueryStart stops at the commit.
func (g *gate) TraceQueryStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if ctx.Value(gated{}) == nil || data.SQL != "commit" && !g.dead.Load() {
		return ctx
	}
	g.once.Do(func() { close(g.reached) })
	<-g.opened
	if g.cut {
		g.dead.Store(true) // and whatever it tries next does not come through either
		_ = conn.PgConn().Conn().Close()
	}
	return ctx
}

// TraceQueryEnd does nothing.
func (g *gate) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (g *gate) await(t *testing.T) {
	t.Helper()
	select {
	case <-g.reached:
	case <-time.After(asideTimeout):
		t.Fatal("the settle does not come to its commit")
	}
}
