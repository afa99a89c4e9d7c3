package integration_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/internal/stripefake"
)

// A line of 500 units is one statement where a line of one is, in everything that can happen to it.
func TestSizeOfALineDoesNotChangeTheNumberOfStatements(t *testing.T) {
	t.Parallel()
	counter := &statements{}
	w := newTown(t, func(w *town) { w.tracer = counter })
	l := w.open()
	w.stock(l.shop, "game", 2000, 1, "price_game")
	settle := func(ctx context.Context, session string) fulfillment.Order {
		order, err := l.shop.Settle(ctx, session)
		w.must(err)
		return order
	}
	for _, step := range []struct {
		name   string
		change func(session, intent string, units int)
		state  fulfillment.UnitState
	}{
		{"sold", func(session, _ string, units int) { w.sell(session, fmt.Sprintf("price_game*%d@100", units)) }, fulfillment.UnitFulfilled},
		{"settled again", func(string, string, int) {}, fulfillment.UnitFulfilled},
		{"disputed", func(_, intent string, _ int) {
			w.must(w.stripe.Dispute("dp_"+intent, intent, nil))
		}, fulfillment.UnitSuspended},
		{"won", func(_, intent string, _ int) {
			w.must(w.stripe.Set("dp_"+intent, stripefake.Fields{"status": "won"}))
		}, fulfillment.UnitFulfilled},
		{"refunded", func(_, intent string, _ int) { w.must(w.stripe.Refund("re_"+intent, intent, nil)) }, fulfillment.UnitRevoked},
	} {
		var seen [2][]string
		for i, units := range []int{1, 500} {
			session, intent := fmt.Sprintf("cs_%d", units), fmt.Sprintf("pi_%d", units)
			step.change(session, intent, units)
			if units == 500 && step.name == "sold" {
				w.sell("cs_warm", "price_game*1") // what a pool's second order costs is what the first one of it does not
				settle(w.ctx, "cs_warm")
			}
			ctx, seenHere := counter.count(w.ctx)
			order := settle(ctx, session)
			seen[i] = seenHere()
			if got := order.Units()[step.state]; got != units {
				t.Fatalf("%s: %v of %d units", step.name, order.Units(), units)
			}
		}
		if len(seen[0]) != len(seen[1]) {
			t.Errorf("%s: %d statements for 1 unit, %d for 500:\n%s\n\n%s", step.name, len(seen[0]), len(seen[1]),
				strings.Join(seen[0], "\n"), strings.Join(seen[1], "\n"))
		}
		t.Logf("%s: %d statements", step.name, len(seen[1]))
	}
	w.hold()
}

// Five events of one payment that are there before the first is worked cost one or two readings of Stripe, not five.
func TestFiveEventsOfOnePaymentCostTwoReadsAtMost(t *testing.T) {
	t.Parallel()
	var paths tally
	w := newTown(t, func(w *town) { w.fake.OnRequest = paths.note })
	quiet := w.open() // takes events, and works none
	w.stock(quiet.shop, "game", 5, 1, "price_game")
	w.sell("cs_1", "price_game*1")
	w.must(w.stripe.Refund("re_1", "pi_1", stripefake.Fields{"amount": "100", "metadata.keytill_lines": "none"}))
	for _, about := range [][2]string{{"checkout.session.completed", "cs_1"}, {"payment_intent.succeeded", "pi_1"},
		{"charge.refunded", "ch_1"}, {"refund.created", "re_1"}, {"refund.updated", "re_1"}} {
		w.must(w.tell(quiet, about[0], about[1]))
	}
	w.run()
	w.must(w.settle(w.ctx))
	for path, n := range paths.counts() {
		if n > 2 {
			t.Errorf("%s was read %d times", path, n)
		}
	}
	var done int
	w.must(w.db.QueryRow(w.ctx, `SELECT count(*) FROM keytill.events WHERE state = 'done'`).Scan(&done))
	if done != 5 || len(paths.counts()) == 0 {
		t.Errorf("%d events are done, after %v", done, paths.counts())
	}
	w.hold()
}

// A tally counts Stripe's answers by their path.
type tally struct {
	mu sync.Mutex
	by map[string]int
}

func (p *tally) note(r *http.Request) *stripefake.Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.by == nil {
		p.by = make(map[string]int)
	}
	p.by[r.URL.Path]++
	return nil
}

func (p *tally) counts() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.by
}

// statements counts the statements of marked contexts, each of a batch for itself.
type statements struct{}

var (
	_ pgx.QueryTracer = (*statements)(nil)
	_ pgx.BatchTracer = (*statements)(nil)
)

type countedKey struct{}

type counted struct {
	mu   sync.Mutex
	seen []string
}

// count marks a context; the function returns what was run in it.
func (s *statements) count(ctx context.Context) (context.Context, func() []string) {
	c := &counted{}
	return context.WithValue(ctx, countedKey{}, c), func() []string {
		c.mu.Lock()
		defer c.mu.Unlock()
		return slices.Clone(c.seen)
	}
}

func (s *statements) note(ctx context.Context, sql string) {
	c, ok := ctx.Value(countedKey{}).(*counted)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = append(c.seen, strings.Join(strings.Fields(sql), " "))
}

// TraceQueryStart counts a statement of its own.
func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	s.note(ctx, data.SQL)
	return ctx
}

// TraceQueryEnd does nothing.
func (s *statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart does nothing.
func (s *statements) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

// TraceBatchQuery counts a statement of a batch.
func (s *statements) TraceBatchQuery(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	s.note(ctx, data.SQL)
}

// TraceBatchEnd does nothing.
func (s *statements) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}
