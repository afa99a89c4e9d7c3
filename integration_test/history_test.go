package integration_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/internal/stripefake"
	"github.com/keytill/keytill/inventory"
)

var (
	histories   = flag.Int("histories", 0, "how many random histories to run; 0: 10,000 in CI (where the variable CI is set) and with -long, else a few hundred")
	historySeed = flag.Uint64("seed", 0, "the seed of the random histories; 0: a new one, which is printed")
	oneHistory  = flag.Int("history", -1, "run this one of the random histories alone")
)

// Random histories of a payment, with lost and stale events, deaths in the midst of work and people who interfere. After
// each settle that read Stripe as it is, the order must be what the oracle makes of it.
func TestRandomHistoriesEndAsTheOracleSays(t *testing.T) {
	t.Parallel()
	seed, n := *historySeed, *histories
	if seed == 0 {
		seed = rand.Uint64()
	}
	if n == 0 {
		n = length(300, 10_000)
		if os.Getenv("CI") != "" {
			n = 10_000
		}
	}
	w := newTown(t, func(w *town) { w.tracer, w.conns = crashes{}, 24 })
	b := newBook(w, seed)
	t.Logf("seed %d", seed)
	if *oneHistory >= 0 {
		b.restock(*oneHistory + 1)
		w.must(b.write(*oneHistory))
		return
	}
	for from := 0; from < n; from += perRestock {
		b.restock(perRestock)
		var group errgroup.Group
		group.SetLimit(12)
		for i := from; i < min(n, from+perRestock); i++ {
			group.Go(func() error {
				if b.failed.Load() {
					return nil
				}
				err := b.write(i)
				if err != nil {
					b.failed.Store(true)
				}
				return err
			})
		}
		w.must(group.Wait())
	}
	t.Logf("%d histories with %d settles, %d of them cut short by a crash", n, b.settles.Load(), b.crashed.Load())
	w.hold()
}

const perRestock = 500

// A book is what all histories share.
type book struct {
	*town
	seed  uint64
	lives []*life // one for each policy
	pools []inventory.Pool

	failed           atomic.Bool
	settles, crashed atomic.Int64
}

var policies = []fulfillment.Policy{{}, {SuspendOnWarning: true}, {DeliverInReview: true}, {SuspendOnWarning: true, DeliverInReview: true}}

var offers = []offer{{"price_a", "game", 1}, {"price_b", "game", 1}, {"price_c", "dlc", 1}, {"price_d", "dlc", 1}, {"price_pair", "pair", 2},
	{"price_none", "", 0}, {"price_unmapped", "", 0}}

func newBook(w *town, seed uint64) *book {
	b := &book{town: w, seed: seed}
	for _, p := range policies {
		w.policy = p
		b.lives = append(b.lives, w.open())
	}
	shop := b.lives[0].shop
	b.pools = []inventory.Pool{w.stock(shop, "game", 0, 1, "price_a", "price_b"), w.stock(shop, "dlc", 0, 1, "price_c", "price_d"),
		w.stock(shop, "pair", 0, 2, "price_pair")}
	w.must(shop.Service().Map(w.ctx, inventory.DefaultMerchant, "price_none", nil, 1))
	return b
}

// restock is for so many histories: nothing here is about shortage.
func (b *book) restock(n int) {
	for _, p := range b.pools {
		b.town.restock(b.lives[0].shop, p, 6*n)
	}
}

// write runs a history.
func (b *book) write(n int) error {
	random := rand.New(rand.NewPCG(b.seed, uint64(n)))
	h := &history{book: b, roll: func(n int, _ string) int { return random.IntN(n) }}
	h.sale = draw(h.roll, b.stripe, fmt.Sprintf("h%d", n), offers)
	choice := h.roll(len(policies), "policy")
	h.life = b.lives[choice]
	h.judge = newJudge(b.db, h.sale, policies[choice])
	if err := h.run(); err != nil {
		return fmt.Errorf("history %d (-run '%s' -seed=%d -history=%d), policy %+v:\n\t%s\n%w", n, "TestRandomHistories", b.seed, n,
			policies[choice], strings.Join(h.log, "\n\t"), err)
	}
	return nil
}

// A history is what happens to one sale.
type history struct {
	*book
	life  *life
	sale  *sale
	judge *judge
	roll  dice
	log   []string

	pending []string           // recorded events that no settle has answered
	late    []stripefake.Event // made, and still on their way
	known   *fulfillment.Order // as last compared; nil: something may have changed since
	refunds int                // that keytill knew then
}

func (h *history) note(format string, args ...any) {
	h.log = append(h.log, fmt.Sprintf(format, args...))
}

func (h *history) run() error {
	happened, err := h.sale.place()
	h.note("placed: %+v", *h.sale)
	if err == nil {
		err = h.tell(happened)
	}
	for range 3 + h.roll(7, "steps") {
		if err == nil {
			err = h.step()
		}
	}
	// In the end everything that was not lost has come, and each job has been tried again.
	for len(h.late) > 0 && err == nil {
		err = h.arrive()
	}
	for len(h.pending) > 0 && err == nil {
		err = h.settleEvent(h.pending[0], false)
	}
	if err == nil {
		err = h.settleRef(false)
	}
	return err
}

func (h *history) step() error {
	switch h.roll(8, "step") {
	case 0:
		if len(h.late) > 0 {
			return h.arrive()
		}
	case 1:
		if h.known != nil && len(h.known.Lines) > 0 {
			if err := h.interfere(); err != nil {
				return err
			}
		}
	default:
		what, happened, err := h.sale.happen(h.roll)
		if what != "" {
			h.note("%s: %+v", what, happened)
			h.known = nil
		}
		if err == nil {
			err = h.tell(happened)
		}
		if err != nil {
			return err
		}
	}
	if h.roll(3, "settle") == 0 {
		return nil
	}
	crash := h.roll(4, "crash") == 0
	if len(h.pending) > 0 && h.roll(2, "by event") == 0 {
		return h.settleEvent(h.pending[h.roll(len(h.pending), "which")], crash)
	}
	return h.settleRef(crash)
}

// tell has each event be lost, come, or come later with what it says now.
func (h *history) tell(happened []occurrence) error {
	for _, o := range happened {
		fortune := h.roll(5, "fortune")
		if fortune == 0 {
			if _, err := h.stripe.Happened(o.kind, o.id); err != nil {
				return err
			}
			continue
		}
		ev, err := h.stripe.Event(o.kind, o.id, stripefake.EventOptions{})
		if err != nil {
			return err
		}
		if h.late = append(h.late, ev); fortune == 1 {
			continue
		}
		if err := h.deliver(len(h.late) - 1); err != nil {
			return err
		}
	}
	return nil
}

// arrive delivers one of the events that are on their way.
func (h *history) arrive() error { return h.deliver(h.roll(len(h.late), "which")) }

// deliver delivers an event, which may come again later.
func (h *history) deliver(n int) error {
	ev := h.late[n]
	status, body, err := h.stripe.Deliver(h.ctx, h.life.url+webhookPath, ev)
	if err != nil || status != 200 {
		return fmt.Errorf("deliver %s: %d %s %w", ev.ID, status, body, err)
	}
	h.note("%s comes", ev.Type)
	h.pending = append(h.pending, ev.ID)
	if h.roll(4, "again") > 0 {
		h.late = append(h.late[:n:n], h.late[n+1:]...)
	}
	return nil
}

// settleEvent does what a job does. An event that was answered before costs nothing and changes nothing.
func (h *history) settleEvent(id string, crash bool) error {
	var open bool
	if err := h.db.QueryRow(h.ctx, `SELECT state = 'pending' FROM keytill.events WHERE event_id = $1`, id).Scan(&open); err != nil {
		return err
	}
	ctx, crashed := h.ctx, func() bool { return false }
	if crash {
		ctx, crashed = crashAt(h.ctx, 1+h.roll(28, "statement"))
	}
	h.note("settle event %s, open %t, crash %t", id, open, crash)
	h.settles.Add(1)
	err := h.life.shop.Service().SettleEvent(ctx, inventory.DefaultMerchant, id)
	if crashed() {
		if err := h.died(err); err != nil || !open {
			return err
		}
		return h.keptItsWord(id)
	}
	if err != nil {
		return err
	}
	for i, p := range h.pending {
		if p == id {
			h.pending = append(h.pending[:i:i], h.pending[i+1:]...)
			break
		}
	}
	if !open {
		return nil
	}
	return h.compare()
}

// settleRef does what a thank-you page or a sweep does, by any id of the payment.
func (h *history) settleRef(crash bool) error {
	refs := h.sale.refs()
	ref := refs[h.roll(len(refs), "ref")]
	ctx, crashed := h.ctx, func() bool { return false }
	if crash {
		ctx, crashed = crashAt(h.ctx, 1+h.roll(28, "statement"))
	}
	h.note("settle %s, crash %t", ref, crash)
	h.settles.Add(1)
	_, err := h.life.shop.Settle(ctx, ref)
	if crashed() {
		return h.died(err)
	}
	if err != nil && !errors.Is(err, fulfillment.ErrNoOrder) {
		return err
	}
	return h.compare()
}

// died is after a crash, which may have come after the commit: only the next settle says what is so.
func (h *history) died(err error) error {
	h.crashed.Add(1)
	h.note("crashed: %v", err)
	h.known = nil
	h.judge.wonder()
	return nil
}

// keptItsWord is after a crash: an event that is done by then is done with all that it led to.
func (h *history) keptItsWord(event string) error {
	var done bool
	if err := h.db.QueryRow(h.ctx, `SELECT state = 'done' FROM keytill.events WHERE event_id = $1`, event).Scan(&done); err != nil || !done {
		return err
	}
	h.note("and it was done")
	return h.compare()
}

func (h *history) compare() error {
	order, err := h.judge.compare(h.ctx)
	h.known, h.refunds = &order, len(h.sale.refunds)
	return err
}
