package demo

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/keytill/keytill/internal/stripefake"
	"github.com/keytill/keytill/inventory"
)

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
	if err := s.settled(); err != nil {
		return "", err
	}
	soon, err := s.keyState(s.refunded)
	if err != nil {
		return "", err
	}
	err = s.together(func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		for _, p := range s.held {
			group.Go(func() error { return s.postman.deliver(ctx, p.completed) })
		}
		return group.Wait()
	}, 0)
	if err != nil {
		return "", err
	}
	late, err := s.keyState(s.refunded)
	return fmt.Sprintf("A refund: key %s; %s “paid”: still %s", soon, plural(len(s.held), "late event")+saying(len(s.held)), late), err
}

// saying is the verb of so many events.
func saying(n int) string {
	if n == 1 {
		return " says"
	}
	return " say"
}

// keyState reads the state of the one key of a purchase.
func (s *story) keyState(p purchase) (state inventory.State, err error) {
	err = s.db.QueryRow(s.ctx, `SELECT state FROM keytill.keys WHERE merchant_id = $1 AND order_id = $2`,
		inventory.DefaultMerchant, p.session).Scan(&state)
	if err != nil {
		return "", fmt.Errorf("read the key of %s: %w", p.session, err)
	}
	return state, nil
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

// later delivers the events of every fifth buyer once more, three days and a restart on, and lets the buyer who was
// refunded reload the thank-you page.
func (s *story) later() (string, error) {
	var err error
	if s.before, err = s.takeCensus(); err != nil {
		return "", err
	}
	if err := s.sleep(s.ctx, 72*time.Hour); err != nil {
		return "", err
	}
	err = s.together(func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		for _, p := range s.held {
			group.Go(func() error { return s.postman.deliver(ctx, append(p.paid, p.completed)...) })
		}
		return group.Wait()
	}, 0)
	if err != nil {
		return "", err
	}
	if _, err := s.shop.Settle(s.ctx, s.refunded.session); err != nil {
		return "", err
	}
	if err := s.settled(); err != nil {
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
