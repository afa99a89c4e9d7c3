package integration_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/adapter"
	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/inventory"
)

// A pausing tracer runs something before the first statement of a marked context that holds a text.
type pausing struct{}

type pauseKey struct{}

type pause struct {
	before string
	once   sync.Once
	run    func()
}

func pauseBefore(ctx context.Context, text string, run func()) context.Context {
	return context.WithValue(ctx, pauseKey{}, &pause{before: text, run: run})
}

// TraceQueryStart pauses.
func (pausing) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if p, ok := ctx.Value(pauseKey{}).(*pause); ok && strings.Contains(data.SQL, p.before) {
		p.once.Do(p.run)
	}
	return ctx
}

// TraceQueryEnd does nothing.
func (pausing) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

const (
	theClaim = "SET state = 'allocated', order_id = u.order_id"
	theHold  = "SET state = 'reserved', reserved_for = $3"
)

// An order looks whether others wait, and then takes a key. Between the two an older order finds the shelf empty and waits,
// and the key of a cart that was left comes back: it is the older order's.
func TestNoOrderOvertakesOneThatBeganToWaitMeanwhile(t *testing.T) {
	t.Parallel()
	w := newTown(t, func(w *town) { w.tracer = pausing{} })
	l := w.open()
	service := l.shop.Service()
	pool := w.stock(l.shop, "last", 1, 1, "price_last")
	w.sell("cs_older", "price_last*1")
	w.clock.forward(time.Minute)
	w.sell("cs_newer", "price_last*1")
	if _, err := service.Reserve(w.ctx, pool.Merchant, adapter.Reservation{Ref: "cart", Lines: []adapter.ReservationLine{{SKU: "last", Quantity: 1}}}); err != nil {
		t.Fatal(err)
	}
	ctx := pauseBefore(w.ctx, theClaim, func() { w.meanwhile(l, pool) })
	newer, err := l.shop.Settle(ctx, "cs_newer")
	w.must(err)
	if newer.Units()[fulfillment.UnitWaiting] != 1 {
		t.Errorf("the newer order: %v", newer.Units())
	}
	_, err = service.ServeWaiting(w.ctx, pool.Merchant, pool.ID)
	w.must(err)
	older, err := fulfillment.LoadOrder(w.ctx, w.db, pool.Merchant, "cs_older")
	w.must(err)
	if older.Units()[fulfillment.UnitFulfilled] != 1 {
		t.Errorf("the older order: %v", older.Units())
	}
	w.hold()
}

// meanwhile has an order come to wait, and then a cart's key come back.
func (w *town) meanwhile(l *life, pool inventory.Pool) {
	w.t.Helper()
	older, err := l.shop.Settle(w.ctx, "cs_older")
	if err != nil || older.Units()[fulfillment.UnitWaiting] != 1 {
		w.t.Errorf("the older order: %v, %v", older.Units(), err)
	}
	if _, err := l.shop.Service().Release(w.ctx, pool.Merchant, "cart"); err != nil {
		w.t.Error(err)
	}
}

func TestNoCartOvertakesAnOrderThatBeganToWaitMeanwhile(t *testing.T) {
	t.Parallel()
	w := newTown(t, func(w *town) { w.tracer = pausing{} })
	l := w.open()
	service := l.shop.Service()
	pool := w.stock(l.shop, "last", 1, 1, "price_last")
	w.sell("cs_older", "price_last*1")
	line := []adapter.ReservationLine{{SKU: "last", Quantity: 1}}
	if _, err := service.Reserve(w.ctx, pool.Merchant, adapter.Reservation{Ref: "cart", Lines: line}); err != nil {
		t.Fatal(err)
	}
	ctx := pauseBefore(w.ctx, theHold, func() { w.meanwhile(l, pool) })
	if held, err := service.Reserve(ctx, pool.Merchant, adapter.Reservation{Ref: "other", Lines: line}); !errors.Is(err, fulfillment.ErrSoldOut) {
		t.Errorf("%+v, %v", held, err)
	}
	_, err := service.ServeWaiting(w.ctx, pool.Merchant, pool.ID)
	w.must(err)
	w.wantUnits(pool, map[fulfillment.UnitState]int{fulfillment.UnitFulfilled: 1})
	w.hold()
}

// A settle sees that nothing is held for it, and then its own cart takes the last key. It is for nobody else.
func TestTheLastKeyInItsOwnCartIsTheOrders(t *testing.T) {
	t.Parallel()
	w := newTown(t, func(w *town) { w.tracer = pausing{} })
	l := w.open()
	pool := w.stock(l.shop, "last", 1, 1, "price_last")
	w.sell("cs_late", "price_last*1")
	ctx := pauseBefore(w.ctx, theClaim, func() {
		if _, err := l.shop.Service().Reserve(w.ctx, pool.Merchant, adapter.Reservation{Ref: "cs_late",
			Lines: []adapter.ReservationLine{{SKU: "last", Quantity: 1}}}); err != nil {
			t.Error(err)
		}
	})
	order, err := l.shop.Settle(ctx, "cs_late")
	w.must(err)
	if order.Units()[fulfillment.UnitFulfilled] != 1 {
		t.Errorf("the order: %v", order.Units())
	}
	w.hold()
}
