package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/internal/pg"
	"github.com/keytill/keytill/internal/stripefake"
	"github.com/keytill/keytill/inventory"
)

// story is what happens, step by step. It keeps what was done, so that the checks can ask whether that is what is.
type story struct {
	Config
	*stage
	ctx   context.Context // of the whole run; a story is no longer than that
	began time.Time
	now   Progress
	since time.Time

	pool    inventory.Pool
	keys    keyMaker
	shelf   []string // texts that were imported, in order
	postman *postman

	bought   []purchase // in order; the last one is the late one
	held     []purchase // whose session's event is held up on its way
	rushed   span       // from the first webhook of the rush to its last key
	refunded purchase
	before   census // three days ago
	after    census
}

// step tells how a step goes.
func (s *story) step(title string, run func() (string, error)) error {
	s.now, s.since = Progress{Step: title}, time.Now()
	s.Progress(s.now)
	note, err := run()
	if err != nil {
		return err
	}
	s.now.Over, s.now.Note, s.now.Took = true, note, time.Since(s.since)
	s.Progress(s.now)
	return nil
}

func (s *story) count(done, total int) {
	s.now.Done, s.now.Total = done, total
	s.Progress(s.now)
}

// stock makes a pool, says which price sells it, and imports a supplier's file.
func (s *story) stock() (string, error) {
	err := pg.InTx(s.ctx, s.db, func(tx pgx.Tx) (err error) {
		s.pool, err = inventory.CreatePool(s.ctx, tx, inventory.Pool{Merchant: inventory.DefaultMerchant, SKU: sku, Name: "Nebula",
			CreatedAt: s.clock.Now()})
		return err
	})
	if err != nil {
		return "", err
	}
	if err := s.stripe.Price(price, stripefake.Fields{"unit_amount": fmt.Sprint(amount)}); err != nil {
		return "", err
	}
	if err := s.shop.Service().Map(s.ctx, inventory.DefaultMerchant, price, &s.pool, 1); err != nil {
		return "", err
	}
	s.keys, s.postman = newKeyMaker(), newPostman(s.stage)
	report, _, err := s.importKeys("keys.txt", s.keys.make(s.Keys))
	return fmt.Sprintf("%s imported, encrypted, onto the shelf", plural(report.New, "key")), err
}

// importKeys imports a file as the import command does.
func (s *story) importKeys(file string, texts []string) (inventory.Report, int, error) {
	s.shelf = append(s.shelf, texts...)
	return s.shop.Service().Import(s.ctx, inventory.Import{Pool: s.pool, File: strings.NewReader(strings.Join(texts, "\n") + "\n"),
		FileName: file, Supplier: "Key Wholesale Ltd", Actor: "demo", At: s.clock.Now()})
}

// heldEvery says whose session's event is held up: that of every fifth buyer.
const heldEvery = 5

// rush lets everyone buy, and delivers all events at once, each several times and in no order. Some sessions' are held up
// until after the refund, and the last buyer's never come.
func (s *story) rush() (string, error) {
	var posts []purchase
	for n := 1; n <= s.Orders; n++ {
		p, err := s.buy(n, 1)
		if err != nil {
			return "", err
		}
		if s.isLost(n) {
			if err := s.lose(p); err != nil {
				return "", err
			}
			continue
		}
		if p, err = s.events(p); err != nil {
			return "", err
		}
		if n%heldEvery == 1 {
			s.held = append(s.held, p)
		}
		posts = append(posts, p)
	}
	err := s.together(func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		for i, p := range posts {
			group.Go(func() error {
				if i%heldEvery == 0 {
					return s.postman.deliver(ctx, p.paid...)
				}
				return s.postman.deliver(ctx, append(p.paid, p.completed)...)
			})
		}
		return group.Wait()
	}, len(posts))
	if err != nil {
		return "", err
	}
	if s.rushed, err = s.readSpan(); err != nil {
		return "", err
	}
	events, posted := s.postman.sent()
	note := fmt.Sprintf("%s at once: %s for %s, in any order", plural(s.Orders, "order"), plural(posted, "webhook"), plural(events, "event"))
	return note, nil
}

// together posts and waits at the same time, so that the wait can tell how far the orders are.
func (s *story) together(post func(ctx context.Context) error, orders int) error {
	group, ctx := errgroup.WithContext(s.ctx)
	posted := make(chan struct{})
	group.Go(func() error {
		defer close(posted)
		return post(ctx)
	})
	group.Go(func() error { return s.watch(ctx, orders, posted) })
	return group.Wait()
}

// isLost says whose webhooks never come: the last buyer's, if there is more than one.
func (s *story) isLost(n int) bool { return n == s.Orders && n > 1 }

// lost lets the thank-you page of the buyer whose webhooks were lost ask for the order.
func (s *story) lost() (string, error) {
	if !s.isLost(s.Orders) {
		return "With one order, no webhook is lost", nil
	}
	p := s.bought[len(s.bought)-1]
	_, err := fulfillment.LoadOrder(s.ctx, s.db, inventory.DefaultMerchant, p.session)
	if !errors.Is(err, fulfillment.ErrNoOrder) {
		return "", fmt.Errorf("order %s was not to be known yet: %w", p.session, err)
	}
	order, err := s.shop.Settle(s.ctx, p.session)
	if err != nil {
		return "", err
	}
	outcome := "the key is there"
	if order.Units()[fulfillment.UnitFulfilled] == 0 {
		outcome = "it waits for stock"
	}
	return "A lost webhook: the thank-you page asks, and " + outcome, s.settled()
}

// shortage sells one unit more than there are keys left, and then brings a file with one new key in it. Keys that were
// sold before are in it too, as suppliers' files have it.
func (s *story) shortage() (string, error) {
	stock, err := inventory.Stock(s.ctx, s.db, inventory.DefaultMerchant, s.pool.ID)
	if err != nil {
		return "", err
	}
	p, err := s.buy(s.Orders+1, int(stock[s.pool.ID][inventory.Available])+1)
	if err == nil {
		p, err = s.events(p)
	}
	if err == nil {
		err = s.postman.deliver(s.ctx, append(p.paid, p.completed)...)
	}
	if err == nil {
		err = s.settled()
	}
	if err != nil {
		return "", err
	}
	waited, err := s.waiting()
	if err != nil {
		return "", err
	}
	old := s.shelf[:min(3, len(s.shelf))]
	report, served, err := s.importKeys("restock.txt", append(s.keys.make(1), old...))
	if err != nil {
		return "", err
	}
	s.shelf = s.shelf[:len(s.shelf)-len(old)]
	note := fmt.Sprintf("One unit too many: %d waited; a restock (%d new, %d known) served %d", waited, report.New,
		report.DuplicateInStock, served)
	return note, s.settled()
}

func (s *story) waiting() (n int, err error) {
	err = s.db.QueryRow(s.ctx, `SELECT count(*) FROM keytill.fulfilments WHERE merchant_id = $1 AND state = 'waiting'`,
		inventory.DefaultMerchant).Scan(&n)
	return n, err
}
