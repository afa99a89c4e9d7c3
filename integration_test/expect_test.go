package integration_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/inventory"
)

// findPool finds a pool by its SKU, the default merchant's first.
func (s *scenario) findPool(ctx context.Context, sku string) (inventory.Pool, error) {
	merchants, err := s.merchants(ctx)
	if err != nil {
		return inventory.Pool{}, err
	}
	var p inventory.Pool
	for _, m := range merchants {
		p, err = inventory.PoolBySKU(ctx, s.db, m, sku)
		if !errors.Is(err, inventory.ErrNoPool) {
			break
		}
	}
	return p, err
}

// stock SKU STATE:N…
func stock(ctx context.Context, c *call) error {
	if len(c.words) < 2 {
		return errors.New("it takes a SKU and STATE:N…")
	}
	want, err := readCounts(c.words[1:], inventory.States)
	if err != nil {
		return err
	}
	p, err := c.findPool(ctx, c.words[0])
	if err != nil {
		return err
	}
	return c.await(ctx, func(ctx context.Context) error {
		ledger, err := inventory.Stock(ctx, c.db, p.Merchant, p.ID)
		if err != nil {
			return err
		}
		rows, err := inventory.StockByRows(ctx, c.db, p.Merchant, p.ID)
		if err != nil {
			return err
		}
		for state, n := range want {
			if ledger[p.ID][state] != int64(n) || rows[p.ID][state] != int64(n) {
				return fmt.Errorf("the pool has %s by its counters, %s by its rows", showCounts(ledger[p.ID], inventory.States),
					showCounts(rows[p.ID], inventory.States))
			}
		}
		return nil
	})
}

// mail TO N [text…]
func mail(ctx context.Context, c *call) error {
	if len(c.words) < 2 {
		return errors.New("it takes an address, a number and texts")
	}
	want, err := readCount("mail", c.words[1], 0)
	if err != nil {
		return err
	}
	if want == 0 && len(c.words) > 2 {
		return errors.New("no message holds no text")
	}
	return c.await(ctx, func(context.Context) error {
		messages := c.scenario.mail.MessagesTo(c.words[0])
		if len(messages) != want {
			return fmt.Errorf("%d messages went there", len(messages))
		}
		for _, text := range c.words[2:] {
			last := messages[len(messages)-1]
			if !strings.Contains(last.Subject+"\n"+last.Text+"\n"+last.HTML, text) {
				return fmt.Errorf("the last message does not hold %q:\n%s\n\n%s", text, last.Subject, last.Text)
			}
		}
		return nil
	})
}

// hookTypes are what a storefront may be told.
var hookTypes = []fulfillment.NoticeType{fulfillment.FulfillmentCompleted, fulfillment.FulfillmentWaiting,
	fulfillment.FulfillmentFailed, fulfillment.KeySuspended, fulfillment.KeyRevoked, fulfillment.KeyRestored,
	fulfillment.KeyReplaced, fulfillment.StockLow, fulfillment.StockOut, fulfillment.FindingOpened}

// hook TYPE N
func hook(ctx context.Context, c *call) error {
	if err := c.exactly("TYPE N"); err != nil {
		return err
	}
	if err := oneOf("type of hook", fulfillment.NoticeType(c.words[0]), hookTypes); err != nil {
		return err
	}
	want, err := readCount("hook", c.words[1], 0)
	if err != nil {
		return err
	}
	return c.await(ctx, func(context.Context) error {
		if n := c.hooks.Count(c.words[0]); n != want {
			return fmt.Errorf("%d came; of any type: %d, refused: %d", n, c.hooks.Count(""), c.hooks.Refused())
		}
		return nil
	})
}

// finding KIND N
func finding(ctx context.Context, c *call) error {
	if err := c.exactly("KIND N"); err != nil {
		return err
	}
	want, err := readCount("finding", c.words[1], 0)
	if err != nil {
		return err
	}
	if err := c.checkKind(ctx, c.words[0]); err != nil {
		return err
	}
	return c.await(ctx, func(ctx context.Context) error {
		merchants, err := c.merchants(ctx)
		if err != nil {
			return err
		}
		n := 0
		for _, m := range merchants {
			findings, err := fulfillment.Findings(ctx, c.db, m)
			if err != nil {
				return err
			}
			for _, f := range findings {
				if string(f.Kind) == c.words[0] {
					n++
				}
			}
		}
		if n != want {
			return fmt.Errorf("%d are open", n)
		}
		return nil
	})
}

// checkKind asks the schema, so that a kind mistyped in `finding KIND 0` does not pass.
func (s *scenario) checkKind(ctx context.Context, kind string) error {
	var known bool
	err := s.db.QueryRow(ctx, `
SELECT EXISTS (SELECT 1 FROM pg_constraint
                WHERE conrelid = 'keytill.findings'::regclass AND contype = 'c'
                  AND pg_get_constraintdef(oid) LIKE '%kind%' AND strpos(pg_get_constraintdef(oid), quote_literal($1)) > 0)`,
		kind).Scan(&known)
	if err != nil {
		return fmt.Errorf("look for the kinds of findings: %w", err)
	}
	if !known {
		return fmt.Errorf("there is no kind of finding %q", kind)
	}
	return nil
}

// invariants
func invariants(ctx context.Context, c *call) error {
	if err := c.exactly(""); err != nil {
		return err
	}
	return c.holdInvariants(ctx)
}

// anyGrace is more than any scenario lasts.
const anyGrace = 100 * 365 * 24 * time.Hour

// holdInvariants checks them in the database. All of them hold at any moment, except that a unit may wait beside new
// stock until its pool has been served.
func (s *scenario) holdInvariants(ctx context.Context) error {
	check := func(grace time.Duration) error {
		breaches, err := fulfillment.Check(ctx, s.db, s.clock.now(), grace)
		if err == nil && len(breaches) > 0 {
			err = fmt.Errorf("invariants do not hold:\n\t%s", strings.Join(breaches, "\n\t"))
		}
		return err
	}
	if err := check(anyGrace); err != nil {
		return err
	}
	return s.await(ctx, func(context.Context) error { return check(0) })
}
