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

// rush lets everyone buy, and delivers all events several times at once, the payment's before the session's. The last
// buyer's are lost.
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
	group, ctx := errgroup.WithContext(s.ctx)
	for i, p := range posts {
		group.Go(func() error {
			if err := s.postman.deliver(ctx, p.paid...); err != nil || i%heldEvery == 0 {
				return err
			}
			return s.postman.deliver(ctx, p.completed)
		})
	}
	group.Go(func() error { return s.settled(len(posts)) })
	if err := group.Wait(); err != nil {
		return "", err
	}
	// The wait above may have ended between two deliveries.
	if err := s.settled(len(posts)); err != nil {
		return "", err
	}
	var err error
	if s.rushed, err = s.readSpan(); err != nil {
		return "", err
	}
	events, posted := s.postman.sent()
	note := fmt.Sprintf("%s at once: %s for %s, in wrong order", plural(s.Orders, "order"), plural(posted, "webhook"), plural(events, "event"))
	return note, nil
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
	state := "the key is there"
	if order.Units()[fulfillment.UnitFulfilled] == 0 {
		state = "it waits for stock"
	}
	return "Webhooks of one order lost: the thank-you page asked, " + state, s.settled(0)
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
		err = s.settled(0)
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
	note := fmt.Sprintf("One too many: %d waited; a restock (%d new, %d known) served %d", waited, report.New,
		report.DuplicateInStock, served)
	return note, s.settled(0)
}

func (s *story) waiting() (n int, err error) {
	err = s.db.QueryRow(s.ctx, `SELECT count(*) FROM keytill.fulfilments WHERE merchant_id = $1 AND state = 'waiting'`,
		inventory.DefaultMerchant).Scan(&n)
	return n, err
}

// refund pays one buyer back in Stripe's dashboard, and then lets those events arrive that were held up since the orders:
// they say "paid", also of the one that is refunded by now.
func (s *story) refund() (string, error) {
	var err error
	if s.refunded, err = s.pickRefund(); err != nil {
		return "", err
	}
	if err := s.stripe.Refund("re_demo_1", s.refunded.intent, nil); err != nil {
		return "", err
	}
	var events []stripefake.Event
	for _, e := range []struct{ kind, about string }{{"refund.created", "re_demo_1"}, {"charge.refunded", s.refunded.charge}} {
		ev, err := s.stripe.Event(e.kind, e.about, stripefake.EventOptions{})
		if err != nil {
			return "", err
		}
		events = append(events, ev)
	}
	if err := s.postman.deliver(s.ctx, events...); err != nil {
		return "", err
	}
	if err := s.settled(0); err != nil {
		return "", err
	}
	group, ctx := errgroup.WithContext(s.ctx)
	for _, p := range s.held {
		group.Go(func() error { return s.postman.deliver(ctx, p.completed) })
	}
	if err := group.Wait(); err != nil {
		return "", err
	}
	return fmt.Sprintf("Refund: the key is revoked; %s “paid” after it: still revoked", arrive(len(s.held))), s.settled(0)
}

func arrive(n int) string {
	if n == 1 {
		return "1 late event says"
	}
	return fmt.Sprintf("%d late events say", n)
}

// pickRefund chooses a buyer who has a key, if possible one whose session's event is still on its way.
func (s *story) pickRefund() (purchase, error) {
	var id string
	err := s.db.QueryRow(s.ctx, `
SELECT f.order_id FROM keytill.fulfilments f
 WHERE f.merchant_id = $1 AND f.state = 'fulfilled' AND f.order_id <> $2
 ORDER BY EXISTS (SELECT 1 FROM keytill.events e WHERE e.merchant_id = $1 AND e.object_id = f.order_id),
          NOT EXISTS (SELECT 1 FROM keytill.events e JOIN keytill.orders o ON o.merchant_id = e.merchant_id AND o.payment_intent = e.payment
                       WHERE o.merchant_id = $1 AND o.order_id = f.order_id),
          f.order_id
 LIMIT 1`, inventory.DefaultMerchant, s.bought[len(s.bought)-1].session).Scan(&id)
	if err != nil {
		return purchase{}, fmt.Errorf("look for an order to refund: %w", err)
	}
	for _, p := range s.bought {
		if p.session == id {
			return p, nil
		}
	}
	return purchase{}, fmt.Errorf("order %s was never bought", id)
}

// later delivers every event of the rush once more, three days on, and lets the buyer who was refunded reload the
// thank-you page.
func (s *story) later() (string, error) {
	var err error
	if s.before, err = s.takeCensus(); err != nil {
		return "", err
	}
	s.clock.jump(72 * time.Hour)
	group, ctx := errgroup.WithContext(s.ctx)
	for _, p := range s.held {
		group.Go(func() error { return s.postman.deliver(ctx, append(p.paid, p.completed)...) })
	}
	if err := group.Wait(); err != nil {
		return "", err
	}
	if _, err := s.shop.Settle(s.ctx, s.refunded.session); err != nil {
		return "", err
	}
	if err := s.settled(0); err != nil {
		return "", err
	}
	if s.after, err = s.takeCensus(); err != nil {
		return "", err
	}
	if s.before != s.after {
		return "Three days later the same events again: something CHANGED", nil
	}
	return "Three days later the same events again: nothing changes", nil
}
