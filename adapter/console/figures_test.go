package console_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/internal/pg"
	"github.com/keytill/keytill/inventory"
)

// counted is what the rows themselves say.
type counted struct{ Sold, Tried, SoldOut, Waiting int64 }

const countRows = `
SELECT (SELECT count(*) FROM keytill.movements m WHERE m.pool_id = p.pool_id AND to_state = 'allocated' AND from_state IN ('available', 'reserved')),
       (SELECT count(*) FROM keytill.reservation_attempts a WHERE a.pool_id = p.pool_id),
       (SELECT count(*) FROM keytill.reservation_attempts a WHERE a.pool_id = p.pool_id AND result = 'sold_out'),
       (SELECT count(*) FROM keytill.fulfilments f WHERE f.pool_id = p.pool_id AND state = 'waiting')
  FROM keytill.pools p WHERE p.sku = 'game'`

// figuresAgree compares what pages are told with the rows, for the pool and its batch.
func (s *shop) figuresAgree(when string) {
	s.t.Helper()
	ctx := s.t.Context()
	s.must(pg.InSnapshot(ctx, s.db, func(tx pgx.Tx) error {
		now := time.Now()
		pool, err := inventory.PoolBySKU(ctx, tx, "default", "game")
		if err != nil {
			return err
		}
		told, err := fulfillment.OverviewOf(ctx, tx, pool, now)
		if err != nil {
			return err
		}
		batch, err := inventory.BatchByID(ctx, tx, "default", pool.ID, 1)
		if err != nil {
			return err
		}
		var want counted
		if err := tx.QueryRow(ctx, countRows).Scan(&want.Sold, &want.Tried, &want.SoldOut, &want.Waiting); err != nil {
			return err
		}
		rows, err := inventory.StockByRows(ctx, tx, "default", pool.ID)
		if err != nil {
			return err
		}
		days := now.Sub(pool.CreatedAt).Hours() / 24
		got := counted{int64(told.SoldPerDay*days + 0.5), told.Reservations, int64(told.SoldOutRate*float64(told.Reservations) + 0.5), told.Waiting}
		if diff := cmp.Diff(want, got); diff != "" {
			s.t.Errorf("%s, the pool (-rows +told):\n%s", when, diff)
		}
		for what, counts := range map[string]inventory.Counts{"pool": told.Counts, "batch": batch.Counts} {
			if diff := cmp.Diff(rows[pool.ID], counts); diff != "" {
				s.t.Errorf("%s, the %s's keys (-rows +told):\n%s", when, what, diff)
			}
		}
		return nil
	}))
}

func TestFiguresAreThoseOfTheRowsWheneverTheyAreFolded(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("game", "The Game", manyKeys(40)...)
	ctx, service := t.Context(), s.shop.Service()
	s.figuresAgree("never folded")
	var work errgroup.Group
	for worker := range 3 {
		work.Go(func() error {
			for i := range 8 {
				_, err := service.Reserve(ctx, "default", fulfillment.Reservation{Ref: fmt.Sprintf("cart-%d-%d", worker, i), Lines: []fulfillment.ReservationLine{{SKU: "game", Quantity: 1}}})
				if err != nil && !errors.Is(err, fulfillment.ErrSoldOut) {
					return err
				}
				if i%2 == 0 {
					s.sell(fmt.Sprintf("cs_%d_%d", worker, i), "buyer@example.com", fmt.Sprintf("price_game*2@500#li_%d_%d", worker, i))
				}
				if i%3 == worker {
					if err := service.FoldFigures(ctx); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	done := make(chan error, 1)
	go func() { done <- work.Wait() }()
	for running := true; running; {
		select {
		case err := <-done:
			s.must(err)
			running = false
		case <-time.After(50 * time.Millisecond):
			s.figuresAgree("under way")
		}
	}
	s.sell("cs_more", "buyer@example.com", "price_game*20@500#li_more") // and some of it waits
	s.figuresAgree("with a tail")
	s.must(service.FoldFigures(ctx))
	s.figuresAgree("folded")

	// A backup that is restored where transaction ids are lower.
	s.exec(`UPDATE keytill.movements SET xid = (xid::text::bigint + 50000000)::text::xid8`, `UPDATE keytill.reservation_attempts SET xid = (xid::text::bigint + 50000000)::text::xid8`,
		`UPDATE keytill.stock SET horizon = (horizon::text::bigint + 50000000)::text::xid8`, `UPDATE keytill.pool_figures SET horizon = (horizon::text::bigint + 50000000)::text::xid8`)
	s.sell("cs_after", "buyer@example.com", "price_game*1@500#li_after")
	s.must(inventory.FoldAll(ctx, s.db))
	s.must(service.FoldFigures(ctx))
	s.figuresAgree("restored")
	s.must(service.FoldFigures(ctx))
	s.figuresAgree("restored, and folded again")
}

// Where more waits than is counted at once, pages show what was counted last, and in a shop of very many pools the sums of
// the last minute, with the pools that need somebody most as they stand.
func TestWhatIsTooMuchToCountIsOfTheLastMinute(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.exec(grow(1, 203, 1, 700, 3)...)
	ctx, now := t.Context(), time.Now()
	first := func() fulfillment.PoolOverview {
		pools, err := fulfillment.Overview(ctx, s.db, "default", "", 1, now)
		s.must(err)
		return pools[0]
	}
	if p := first(); p.Waiting != 278 || p.CountedAt != nil {
		t.Errorf("before any minute %d wait, counted at %v", p.Waiting, p.CountedAt)
	}
	s.must(s.shop.Service().FoldFigures(ctx))
	s.exec(`UPDATE keytill.fulfilments SET state = 'failed' WHERE state = 'waiting' AND unit = 2`)
	if p := first(); p.Waiting != 278 || p.CountedAt == nil || p.Held.Under5m != 0 {
		t.Errorf("within the minute %d wait, counted at %v", p.Waiting, p.CountedAt)
	}
	shop, err := fulfillment.Shop(ctx, s.db, "default", 3, now)
	s.must(err)
	if shop.Pools != 203 || shop.Waiting != 278 || shop.CountedAt == nil || len(shop.Neediest) != 3 || shop.Neediest[0].SKU != "sku-000001" || shop.Neediest[1].SKU != "sku-000002" {
		t.Errorf("the shop: %+v", shop)
	}
	s.must(s.shop.Service().FoldFigures(ctx))
	if p := first(); p.Waiting != 139 {
		t.Errorf("a minute later %d wait", p.Waiting)
	}
	s.exec(`UPDATE keytill.fulfilments SET state = 'failed' WHERE state = 'waiting' AND order_id <> 'cs_5'`, `DELETE FROM keytill.reservations`)
	if p := first(); p.Waiting != 1 || p.CountedAt != nil {
		t.Errorf("of what is counted at once %d wait, counted at %v", p.Waiting, p.CountedAt)
	}
}
