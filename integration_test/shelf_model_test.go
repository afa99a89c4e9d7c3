package integration_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keytill/keytill/adapter"
	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/internal/stripefake"
	"github.com/keytill/keytill/inventory"
)

// One pool goes through anything that a shelf can go through, and after each step is what a shelf in memory is.
func TestAShelfIsWhatAShelfInMemoryIs(t *testing.T) {
	t.Parallel()
	defer setFlag(t, "rapid.checks", fmt.Sprint(length(25, 500)))()
	w := newTown(t)
	// Every import takes a million ids, so after some thousands of them no id fits into 32 bits.
	_, err := w.db.Exec(w.ctx, `SELECT setval('keytill.key_block', 5000)`)
	w.must(err)
	l := w.open()
	var runs atomic.Int64
	rapid.Check(t, func(t *rapid.T) {
		s := newShelf(t, w, l, fmt.Sprintf("shelf%d", runs.Add(1)))
		t.Repeat(map[string]func(*rapid.T){
			"import": s.importKeys, "buy": s.buy, "reserve": s.reserve, "release": s.release, "time": s.timePasses,
			"quarantine": s.setBatch(inventory.BatchQuarantined), "lift": s.setBatch(inventory.BatchImported),
			"recall": s.setBatch(inventory.BatchRecalled), "revoke": s.revoke, "replace": s.replace, "": s.compare,
		})
	})
	w.hold()
}

// shelfKey is a key of the shelf in memory.
type shelfKey struct {
	state inventory.State
	batch int64
	ref   string    // of the cart that holds it,
	until time.Time // until then
	useBy time.Time // zero: for ever
}

// shelfUnit is a unit that was bought.
type shelfUnit struct {
	order string
	unit  int
	state fulfillment.UnitState
	key   int64
}

// shelf is a pool, and what it should be. Which of the keys on the shelf a unit gets is read of the pool and held to be
// one that was free; everything else is foretold.
type shelf struct {
	*rapid.T
	town *town
	life *life
	pool inventory.Pool

	keys    map[int64]*shelfKey
	units   []*shelfUnit // in the order of payment
	carts   []string
	batches []int64
	gone    map[int64]bool // recalled batches
	named   int
	sold    int
}

func newShelf(t *rapid.T, w *town, l *life, sku string) *shelf {
	return &shelf{T: t, town: w, life: l, pool: w.stock(l.shop, sku, 0, 1, "price_"+sku), keys: make(map[int64]*shelfKey), gone: make(map[int64]bool)}
}

func (s *shelf) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *shelf) service() *fulfillment.Service { return s.life.shop.Service() }

func (s *shelf) today() time.Time { return s.town.clock.now().UTC().Truncate(24 * time.Hour) }

// free are the keys that may be sold now.
func (s *shelf) free() []int64 {
	var free []int64
	for id, k := range s.keys {
		if k.state == inventory.Available && (k.useBy.IsZero() || !k.useBy.Before(s.today())) {
			free = append(free, id)
		}
	}
	return free
}

func (s *shelf) waiting() []*shelfUnit {
	var waiting []*shelfUnit
	for _, u := range s.units {
		if u.state == fulfillment.UnitWaiting {
			waiting = append(waiting, u)
		}
	}
	return waiting
}

// held are the keys that a cart holds.
func (s *shelf) held(ref string) []int64 {
	var held []int64
	for id, k := range s.keys {
		if k.state == inventory.Reserved && k.ref == ref {
			held = append(held, id)
		}
	}
	return held
}

// give gives units a key each of some, as far as those go. Which is which is settled when the pool is read.
func (s *shelf) give(units []*shelfUnit, of []int64) {
	real := s.realUnits()
	for _, u := range units[:min(len(units), len(of))] {
		key := real[place{u.order, u.unit}].key
		if !slices.Contains(of, key) || s.keys[key].state == inventory.Allocated {
			s.Fatalf("%s/%d got key %d, which was not for it", u.order, u.unit, key)
		}
		u.state, u.key = fulfillment.UnitFulfilled, key
		*s.keys[key] = shelfKey{state: inventory.Allocated, batch: s.keys[key].batch}
	}
}

// serve has who waits get what is free: the pool first, then the shelf in memory.
func (s *shelf) serve() {
	_, err := s.service().ServeWaiting(s.town.ctx, s.pool.Merchant, s.pool.ID)
	s.must(err)
	s.give(s.waiting(), s.free())
}

func (s *shelf) putBack(keys []int64) {
	for _, id := range keys {
		s.keys[id].state, s.keys[id].ref = inventory.Available, ""
	}
}

func (s *shelf) importKeys(t *rapid.T) {
	n := rapid.IntRange(1, 4).Draw(t, "keys")
	var useBy time.Time
	var file strings.Builder
	file.WriteString("key,until\n")
	day := ""
	if rapid.Bool().Draw(t, "expire") {
		useBy = s.today().Add(24 * time.Hour)
		day = useBy.Format(time.DateOnly)
	}
	for range n {
		s.named++
		fmt.Fprintf(&file, "%s-%d,%s\n", s.pool.SKU, s.named, day)
	}
	report, _, err := s.service().Import(s.town.ctx, inventory.Import{Pool: s.pool, File: strings.NewReader(file.String()), FileName: "keys.csv",
		UseByColumn: "until", Actor: "test"})
	s.must(err)
	for id, k := range s.realKeys() {
		if s.keys[id] == nil {
			s.keys[id] = &shelfKey{state: inventory.Available, batch: report.Batch, useBy: useBy}
			if k.batch != report.Batch {
				s.Fatalf("key %d is of batch %d, not %d", id, k.batch, report.Batch)
			}
		}
	}
	s.batches = append(s.batches, report.Batch)
	s.serve()
}

// buy is a new order, of a cart or of none. Holds that have run out are there for whoever needs them.
func (s *shelf) buy(t *rapid.T) {
	n := rapid.IntRange(1, 3).Draw(t, "units")
	ref := ""
	if len(s.carts) > 0 && rapid.Bool().Draw(t, "of a cart") {
		ref = rapid.SampledFrom(s.carts).Draw(t, "cart")
	}
	s.sold++
	order := fmt.Sprintf("cs_%s_%d", s.pool.SKU, s.sold)
	s.town.clock.forward(2 * time.Second) // payments are told apart by the second
	items, err := stripefake.ParseItems(fmt.Sprintf("price_%s*%d", s.pool.SKU, n))
	s.must(err)
	s.must(s.town.stripe.Session(order, items, stripefake.Fields{"client_reference_id": ref}))
	queued := len(s.waiting()) > 0
	held, free := s.held(ref), s.free()
	if ref == "" {
		held = nil
	}
	_, err = s.life.shop.Settle(s.town.ctx, order)
	s.must(err)
	var units []*shelfUnit
	for i := range n {
		units = append(units, &shelfUnit{order: order, unit: i + 1, state: fulfillment.UnitWaiting})
	}
	s.units = append(s.units, units...)
	s.give(units, held)
	rest := units[min(len(units), len(held)):]
	if !queued {
		s.give(rest, free)
	}
	s.putBack(s.held(ref)) // what was held and not bought
	s.serve()
}

func (s *shelf) reserve(t *rapid.T) {
	n := rapid.IntRange(1, 3).Draw(t, "keys")
	ref := fmt.Sprintf("%s-cart-%d", s.pool.SKU, rapid.IntRange(1, 3).Draw(t, "cart"))
	got, err := s.service().Reserve(s.town.ctx, s.pool.Merchant, adapter.Reservation{Ref: ref, Lines: []adapter.ReservationLine{{SKU: s.pool.SKU, Quantity: n}}})
	held, free := s.held(ref), s.free()
	missing := n - len(held)
	if soldOut := missing > 0 && (len(s.waiting()) > 0 || len(free) < missing); soldOut != errors.Is(err, fulfillment.ErrSoldOut) {
		s.Fatalf("%d keys for a cart that holds %d, %d free: %v", n, len(held), len(free), err)
	} else if soldOut {
		return
	}
	s.must(err)
	if !slices.Contains(s.carts, ref) {
		s.carts = append(s.carts, ref)
	}
	for id, k := range s.realKeys() {
		if k.ref != ref {
			if slices.Contains(held, id) {
				s.putBack([]int64{id})
			}
			continue
		}
		if !slices.Contains(held, id) && !slices.Contains(free, id) {
			s.Fatalf("cart %s got key %d, which was not free", ref, id)
		}
		s.keys[id].state, s.keys[id].ref, s.keys[id].until = inventory.Reserved, ref, got.ExpiresAt
	}
	if len(s.held(ref)) != n {
		s.Fatalf("cart %s holds %d keys, not %d", ref, len(s.held(ref)), n)
	}
	s.serve()
}

func (s *shelf) release(t *rapid.T) {
	if len(s.carts) == 0 {
		t.Skip("no cart")
	}
	ref := rapid.SampledFrom(s.carts).Draw(t, "cart")
	released, err := s.service().Release(s.town.ctx, s.pool.Merchant, ref)
	s.must(err)
	if held := s.held(ref); released != len(held) {
		s.Fatalf("%d of %d keys released", released, len(held))
	}
	s.putBack(s.held(ref))
	s.serve()
}

// timePasses ends holds and keys. The sweeper comes twice: a key that comes back outdated leaves with its next round.
func (s *shelf) timePasses(t *rapid.T) {
	s.town.clock.forward(rapid.SampledFrom([]time.Duration{time.Minute, 16 * time.Minute, 25 * time.Hour}).Draw(t, "time"))
	for range 2 {
		_, err := s.service().TidyShelf(s.town.ctx)
		s.must(err)
	}
	for id, k := range s.keys {
		if k.state == inventory.Reserved && !k.until.After(s.town.clock.now()) {
			s.putBack([]int64{id})
		}
	}
	s.give(s.waiting(), s.free())
	for _, k := range s.keys {
		if k.state == inventory.Available && !k.useBy.IsZero() && k.useBy.Before(s.today()) {
			k.state = inventory.Expired
		}
	}
}

func (s *shelf) setBatch(state inventory.BatchState) func(*rapid.T) {
	return func(t *rapid.T) {
		if len(s.batches) == 0 {
			t.Skip("no batch")
		}
		batch := rapid.SampledFrom(s.batches).Draw(t, "batch")
		_, err := s.service().SetBatchState(s.town.ctx, s.pool, batch, state, somebody)
		if refused := s.gone[batch] && state != inventory.BatchRecalled; refused != errors.Is(err, inventory.ErrBatchState) {
			s.Fatalf("batch %d, recalled %v, to %s: %v", batch, s.gone[batch], state, err)
		} else if refused {
			return
		}
		s.must(err)
		for _, k := range s.keys {
			if k.batch != batch {
				continue
			}
			switch {
			case state == inventory.BatchQuarantined && (k.state == inventory.Available || k.state == inventory.Reserved):
				k.state, k.ref = inventory.Quarantined, ""
			case state == inventory.BatchImported && k.state == inventory.Quarantined:
				k.state = inventory.Available
			case state == inventory.BatchRecalled && (k.state == inventory.Available || k.state == inventory.Reserved || k.state == inventory.Quarantined):
				k.state, k.ref = inventory.Revoked, ""
			}
		}
		s.gone[batch] = s.gone[batch] || state == inventory.BatchRecalled
		s.serve()
	}
}

// takeBack picks a unit with a key and takes that away for good.
func (s *shelf) takeBack(t *rapid.T, act func(ref fulfillment.UnitRef) error) *shelfUnit {
	var fulfilled []*shelfUnit
	for _, u := range s.units {
		if u.state == fulfillment.UnitFulfilled {
			fulfilled = append(fulfilled, u)
		}
	}
	if len(fulfilled) == 0 {
		t.Skip("nothing is sold")
	}
	u := rapid.SampledFrom(fulfilled).Draw(t, "unit")
	s.must(act(fulfillment.UnitRef{Order: u.order, Unit: u.unit}))
	s.keys[u.key].state = inventory.Revoked
	return u
}

func (s *shelf) revoke(t *rapid.T) {
	s.takeBack(t, func(ref fulfillment.UnitRef) error {
		return s.service().RevokeKey(s.town.ctx, s.pool.Merchant, ref, somebody)
	}).state = fulfillment.UnitRevoked
}

func (s *shelf) replace(t *rapid.T) {
	free := s.free()
	u := s.takeBack(t, func(ref fulfillment.UnitRef) error {
		return s.service().ReplaceKey(s.town.ctx, s.pool.Merchant, ref, somebody)
	})
	u.state, u.key = fulfillment.UnitWaiting, 0
	s.give([]*shelfUnit{u}, free)
	s.serve()
}
