package integration_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/inventory"
)

// The states that a script may name. Both are closed sets of the schema.
var (
	unitStates = []fulfillment.UnitState{fulfillment.UnitPending, fulfillment.UnitWaiting, fulfillment.UnitFulfilled,
		fulfillment.UnitSuspended, fulfillment.UnitRevoked, fulfillment.UnitFailed}
	paymentStates = []fulfillment.PaymentState{"pending", "paid", "part_refunded", "refunded", "disputed", "lost", "closed"}
)

// merchants lists them, the default one first.
func (s *scenario) merchants(ctx context.Context) ([]string, error) {
	rows, err := s.db.Query(ctx, `SELECT merchant_id FROM keytill.merchants ORDER BY merchant_id <> $1, merchant_id`,
		inventory.DefaultMerchant)
	if err != nil {
		return nil, fmt.Errorf("read the merchants: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// findOrder finds an order by its own id, whoever's it is.
func (s *scenario) findOrder(ctx context.Context, id string) (merchant string, o fulfillment.Order, err error) {
	merchants, err := s.merchants(ctx)
	if err != nil {
		return "", o, err
	}
	for _, merchant := range merchants {
		o, err = fulfillment.LoadOrder(ctx, s.db, merchant, id)
		if !errors.Is(err, fulfillment.ErrNoOrder) {
			return merchant, o, err
		}
	}
	return "", o, err
}

// order ID STATE:N… [payment=STATE]
func order(ctx context.Context, c *call) error {
	a, err := sortWords(c.words)
	if err != nil {
		return err
	}
	payment := fulfillment.PaymentState(a.text("payment", ""))
	if payment != "" {
		if err := oneOf("payment state", payment, paymentStates); err != nil {
			return err
		}
	}
	delete(a.named, "payment")
	if len(a.plain) == 0 || len(a.named) > 0 {
		return fmt.Errorf("it takes an id, STATE:N and payment=, not %q", c.words)
	}
	if len(a.plain) == 1 && payment == "" {
		return errors.New("it expects nothing of the order")
	}
	want, err := readCounts(a.plain[1:], unitStates)
	if err != nil {
		return err
	}
	maps.DeleteFunc(want, func(_ fulfillment.UnitState, n int) bool { return n == 0 })
	onlyPayment := len(a.plain) == 1
	return c.await(ctx, func(ctx context.Context) error {
		_, o, err := c.findOrder(ctx, a.plain[0])
		if err != nil {
			return err
		}
		got := o.Units()
		if !onlyPayment && !maps.Equal(got, want) || payment != "" && o.Payment != payment {
			return fmt.Errorf("the order's units are %s payment=%s", showCounts(got, unitStates), o.Payment)
		}
		return nil
	})
}

// no order ID
func noOrder(ctx context.Context, c *call) error {
	if err := c.exactly("order ID"); err != nil {
		return err
	}
	if c.words[0] != "order" {
		return fmt.Errorf("unknown: no %s", c.words[0])
	}
	return c.await(ctx, func(ctx context.Context) error {
		merchant, o, err := c.findOrder(ctx, c.words[1])
		if errors.Is(err, fulfillment.ErrNoOrder) {
			return nil
		}
		if err != nil {
			return err
		}
		return lasting{fmt.Errorf("merchant %s has it, with units %s payment=%s", merchant, showCounts(o.Units(), unitStates), o.Payment)}
	})
}

// liveKeys are the keys of an order's units that are theirs now, in unit order.
func (s *scenario) liveKeys(ctx context.Context, id string) ([]string, error) {
	merchant, o, err := s.findOrder(ctx, id)
	if err != nil {
		return nil, err
	}
	return s.life.shop.Service().Keys(ctx, merchant, o, fulfillment.UnitFulfilled, fulfillment.UnitSuspended)
}

func (s *scenario) wantKeys(ctx context.Context, id string, want []string) error {
	return s.await(ctx, func(ctx context.Context) error {
		got, err := s.liveKeys(ctx, id)
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("the order's keys are %q, not %q", got, want)
		}
		return err
	})
}

// keys ORDER A,B,…
func keys(ctx context.Context, c *call) error {
	if err := c.exactly("ORDER A,B,…"); err != nil {
		return err
	}
	var want []string
	if c.words[1] != "" {
		want = strings.Split(c.words[1], ",")
	}
	return c.wantKeys(ctx, c.words[0], want)
}

// remember NAME ORDER
func remember(ctx context.Context, c *call) error {
	if err := c.exactly("NAME ORDER"); err != nil {
		return err
	}
	return c.await(ctx, func(ctx context.Context) error {
		got, err := c.liveKeys(ctx, c.words[1])
		if err != nil {
			return err
		}
		if len(got) == 0 {
			return errors.New("the order has no live keys to remember")
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.remembered[c.words[0]] = got
		return nil
	})
}

// same NAME ORDER
func same(ctx context.Context, c *call) error {
	if err := c.exactly("NAME ORDER"); err != nil {
		return err
	}
	c.mu.Lock()
	want, ok := c.remembered[c.words[0]]
	c.mu.Unlock()
	if !ok {
		return fmt.Errorf("nothing is remembered by the name %s", c.words[0])
	}
	return c.wantKeys(ctx, c.words[1], want)
}
