package integration_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/keytill/keytill/adapter"
	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/inventory"
)

// buy settles an order.
func (w *town) buy(l *life, session string) error {
	_, err := l.shop.Settle(w.ctx, session)
	return overtaken(err)
}

// giveBack refunds an order whole and settles it.
func (w *town) giveBack(l *life, session string) error {
	id := strings.TrimPrefix(session, "cs_")
	if err := w.stripe.Refund("re_"+id, "pi_"+id, nil); err != nil {
		return err
	}
	return w.buy(l, session)
}

// bring imports so many keys named on from a number.
func (w *town) bring(l *life, pool inventory.Pool, name string, n int) error {
	var file strings.Builder
	for i := range n {
		fmt.Fprintf(&file, "%s-%s-%d\n", pool.SKU, name, i)
	}
	_, _, err := l.shop.Service().Import(w.ctx, inventory.Import{Pool: pool, File: strings.NewReader(file.String()), FileName: name, Actor: "test"})
	return err
}

// cart reserves a key, which may turn out to be sold out.
func (w *town) cart(l *life, pool inventory.Pool, ref string, lasts time.Duration) error {
	_, err := l.shop.Service().Reserve(w.ctx, pool.Merchant, adapter.Reservation{Ref: ref, For: lasts,
		Lines: []adapter.ReservationLine{{SKU: pool.SKU, Quantity: 1}}})
	if errors.Is(err, fulfillment.ErrSoldOut) {
		return nil
	}
	return err
}

// atRest serves who waits, as the jobs would that nobody works here, and checks what must hold.
func (w *town) atRest(l *life, pool inventory.Pool, keys int64) {
	w.t.Helper()
	_, err := l.shop.Service().ServeWaiting(w.ctx, pool.Merchant, pool.ID)
	w.must(err)
	w.hold()
	stock, err := inventory.Stock(w.ctx, w.db, pool.Merchant, pool.ID)
	w.must(err)
	var sum int64
	for _, n := range stock[pool.ID] {
		sum += n
	}
	if sum != keys {
		w.t.Errorf("%d keys, want %d: %v", sum, keys, stock[pool.ID])
	}
}

// together runs each function in a goroutine of its own.
func (w *town) together(each ...func() error) {
	w.t.Helper()
	var group errgroup.Group
	for _, run := range each {
		group.Go(run)
	}
	w.must(group.Wait())
}

// sold makes so many paid sessions of a price, and returns their ids.
func (w *town) sold(prefix, price string, n int) []string {
	w.t.Helper()
	sessions := make([]string, n)
	for i := range sessions {
		sessions[i] = fmt.Sprintf("cs_%s_%d", prefix, i)
		w.sell(sessions[i], price+"*1")
	}
	return sessions
}

func TestImportBesideClaimsAndRefunds(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	l := w.open()
	rounds(t, 2, 50, func(t *testing.T, round int) {
		name := fmt.Sprintf("a%d", round)
		pool := w.stock(l.shop, name, 10, 1, "price_"+name)
		sessions := w.sold(name, "price_"+name, 24)
		tasks := []func() error{
			func() error { return w.bring(l, pool, "first", 6) },
			func() error { return w.bring(l, pool, "second", 6) },
			func() error { return inventory.Fold(w.ctx, w.db, pool.Merchant, pool.ID) },
		}
		for i, session := range sessions {
			tasks = append(tasks, func() error {
				if err := w.buy(l, session); err != nil || i%3 > 0 {
					return err
				}
				return w.giveBack(l, session)
			})
		}
		w.together(tasks...)
		w.atRest(l, pool, 22)
	})
}

func TestReserveBesideExpiryAndClaimOfTheLastKey(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	l := w.open()
	rounds(t, 3, 50, func(t *testing.T, round int) {
		name := fmt.Sprintf("b%d", round)
		pool := w.stock(l.shop, name, 1, 1, "price_"+name)
		w.must(w.cart(l, pool, name+"-left", time.Microsecond)) // has run out by now
		sessions := w.sold(name, "price_"+name, 2)
		w.together(
			func() error { return w.cart(l, pool, name+"-one", time.Minute) },
			func() error { return w.cart(l, pool, name+"-two", time.Minute) },
			func() error { return w.buy(l, sessions[0]) },
			func() error { return w.buy(l, sessions[1]) },
			func() error { _, err := l.shop.Service().TidyShelf(w.ctx); return err },
			func() error { _, err := l.shop.Service().Release(w.ctx, pool.Merchant, name+"-left"); return err },
		)
		w.atRest(l, pool, 1)
		stock, err := inventory.StockByRows(w.ctx, w.db, pool.Merchant, pool.ID)
		w.must(err)
		units, _ := w.units(pool.ID)
		if c := stock[pool.ID]; c[inventory.Available] != 0 || c[inventory.Allocated] != int64(units[fulfillment.UnitFulfilled]) {
			t.Errorf("keys %v, units %v", c, units)
		}
	})
}

func TestRestockBesideNewOrdersAndQuarantine(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	l := w.open()
	rounds(t, 2, 50, func(t *testing.T, round int) {
		name := fmt.Sprintf("c%d", round)
		pool := w.stock(l.shop, name, 5, 1, "price_"+name)
		sessions := w.sold(name, "price_"+name, 16)
		quarantine := func(state inventory.BatchState) error {
			_, err := l.shop.Service().SetBatchState(w.ctx, pool, 0, state, somebody)
			if errors.Is(err, inventory.ErrBatchState) {
				return nil
			}
			return err
		}
		tasks := []func() error{
			func() error { return w.bring(l, pool, "first", 5) },
			func() error {
				return errors.Join(quarantine(inventory.BatchQuarantined), quarantine(inventory.BatchImported), quarantine(inventory.BatchQuarantined))
			},
			func() error { return w.bring(l, pool, "second", 5) },
			func() error { _, err := l.shop.Service().ServeWaiting(w.ctx, pool.Merchant, pool.ID); return err },
		}
		for _, session := range sessions {
			tasks = append(tasks, func() error { return w.buy(l, session) })
		}
		w.together(tasks...)
		w.atRest(l, pool, 15)
		w.must(quarantine(inventory.BatchImported))
		w.atRest(l, pool, 15)
	})
}

// rotation is the keyset before a rotation and in the midst of it.
func rotation(t *testing.T) (old, promoted *inventory.Keyset) {
	t.Helper()
	old, err := inventory.NewKeyset()
	if err != nil {
		t.Fatal(err)
	}
	added, err := old.WithNewKeys()
	if err != nil {
		t.Fatal(err)
	}
	if promoted, err = added.Promoted(); err != nil {
		t.Fatal(err)
	}
	return old, promoted
}

func TestRotationBesideEverything(t *testing.T) {
	t.Parallel()
	rounds(t, 1, 50, func(t *testing.T, round int) {
		// A database of its own for each, since a rotation is of all of it, and closed when the round is over.
		t.Run(fmt.Sprint(round), rotateBesideEverything)
	})
}

func rotateBesideEverything(t *testing.T) {
	w := newTown(t)
	var promoted *inventory.Keyset
	w.keyset, promoted = rotation(t)
	before := w.open()
	pool := w.stock(before.shop, "game", 300, 1, "price_game")
	for _, session := range w.sold("early", "price_game", 3) {
		w.must(w.buy(before, session))
	}
	w.keyset = promoted
	l := w.open()
	service := l.shop.Service()
	ctx, cancel := context.WithCancel(w.ctx)
	tasks := []func() error{
		func() error { // killed once
			defer cancel()
			_, err := promoted.Rotate(ctx, w.db, func(p inventory.RotationProgress) {
				if p.Done > 0 {
					cancel()
				}
			})
			if !errors.Is(err, context.Canceled) {
				return fmt.Errorf("the first rotation: %v", err)
			}
			_, err = promoted.Rotate(w.ctx, w.db, nil)
			return err
		},
		func() error { return w.bring(l, pool, "more", 50) },
		func() error { return w.bring(l, pool, "yet-more", 50) },
		func() error { return w.giveBack(l, "cs_early_1") },
		func() error {
			_, err := service.SetBatchState(w.ctx, pool, 0, inventory.BatchQuarantined, somebody)
			if err == nil {
				_, err = service.SetBatchState(w.ctx, pool, 0, inventory.BatchImported, somebody)
			}
			return err
		},
		func() error { _, err := inventory.Rebuild(w.ctx, w.db, pool.Merchant, pool.ID); return err },
		func() error { _, err := service.TidyShelf(w.ctx); return err },
		func() error {
			return service.ReplaceKey(w.ctx, pool.Merchant, fulfillment.UnitRef{Order: "cs_early_2", Unit: 1}, somebody)
		},
	}
	for i, session := range w.sold("late", "price_game", 20) {
		tasks = append(tasks, func() error { return w.buy(l, session) })
		ref := fmt.Sprintf("cart-%d", i)
		tasks = append(tasks, func() error {
			if err := w.cart(l, pool, ref, time.Minute); err != nil || i%2 > 0 {
				return err
			}
			_, err := service.Release(w.ctx, pool.Merchant, ref)
			return err
		})
	}
	w.together(tasks...)
	_, err := promoted.Rotate(w.ctx, w.db, nil)
	w.must(err)
	w.atRest(l, pool, 400)
	w.must(promoted.Unused(w.ctx, w.db))
	last, err := promoted.WithoutOldKeys()
	w.must(err)
	w.opensAll(last, pool)
}

// opensAll checks that a keyset opens every key of a pool.
func (w *town) opensAll(keyset *inventory.Keyset, pool inventory.Pool) {
	w.t.Helper()
	ids, err := w.keyIDs(pool)
	w.must(err)
	texts, err := keyset.Texts(w.ctx, w.db, pool.Merchant, ids)
	w.must(err)
	seen := make(map[string]bool)
	for _, text := range texts {
		seen[text] = true
	}
	if len(texts) != len(ids) || len(seen) != len(ids) {
		w.t.Errorf("%d texts, %d of them different, of %d keys", len(texts), len(seen), len(ids))
	}
}

func (w *town) keyIDs(pool inventory.Pool) ([]int64, error) {
	rows, err := w.db.Query(w.ctx, `SELECT key_id FROM keytill.keys WHERE merchant_id = $1 AND pool_id = $2 ORDER BY key_id`, pool.Merchant, pool.ID)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}
