package integration_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/inventory"
)

// merchant ID account=acct_x
func merchant(ctx context.Context, c *call) error {
	a, err := c.args("ID", "account")
	if err != nil {
		return err
	}
	account := a.text("account", "")
	if account == "" {
		return errors.New("say account=acct_…")
	}
	if err := c.stripe.Account(account, nil); err != nil {
		return err
	}
	return inventory.AddMerchant(ctx, c.db, a.plain[0], account, c.clock.now())
}

// pool SKU [keys=…] [price=price_x] [product=prod_x] [per_unit=1] [low=N] [pending_supply=N] [release=+72h]
// [shortage=wait|fail] [merchant=default]
func pool(ctx context.Context, c *call) error {
	a, err := c.args("SKU", "keys", "price", "product", "per_unit", "low", "pending_supply", "release", "shortage", "merchant")
	if err != nil {
		return err
	}
	p, err := c.readPool(a)
	if err != nil {
		return err
	}
	perUnit, err := a.count("per_unit", 1, 1)
	if err != nil {
		return err
	}
	err = pgx.BeginFunc(ctx, c.db, func(tx pgx.Tx) error {
		p, err = inventory.CreatePool(ctx, tx, p)
		return err
	})
	if err != nil {
		return err
	}
	for _, item := range []string{a.text("price", ""), a.text("product", "")} {
		if item == "" {
			continue
		}
		if err := c.life.shop.Service().Map(ctx, p.Merchant, item, &p, perUnit); err != nil {
			return err
		}
	}
	return c.stockUp(ctx, p, a.text("keys", "0"))
}

func (s *scenario) readPool(a args) (inventory.Pool, error) {
	p := inventory.Pool{Merchant: a.text("merchant", inventory.DefaultMerchant), SKU: a.plain[0], CreatedAt: s.clock.now()}
	switch p.Shortage = inventory.Shortage(a.text("shortage", string(inventory.Wait))); p.Shortage {
	case inventory.Wait, inventory.Fail:
	default:
		return p, fmt.Errorf("shortage=%s: it is wait or fail", p.Shortage)
	}
	for name, field := range map[string]**int64{"low": &p.LowKeys, "pending_supply": &p.PendingSupply} {
		if _, ok := a.named[name]; !ok {
			continue
		}
		n, err := a.count(name, 0, 0)
		if err != nil {
			return p, err
		}
		keys := int64(n)
		*field = &keys
	}
	if text, ok := a.named["release"]; ok {
		d, err := ahead(text)
		if err != nil {
			return p, err
		}
		at := s.clock.now().Add(d)
		p.ReleaseAt = &at
	}
	return p, nil
}

// restock SKU keys=…
func restock(ctx context.Context, c *call) error {
	a, err := c.args("SKU", "keys")
	if err != nil {
		return err
	}
	if a.text("keys", "") == "" {
		return errors.New("say keys=")
	}
	p, err := c.findPool(ctx, a.plain[0])
	if err != nil {
		return err
	}
	return c.stockUp(ctx, p, a.text("keys", ""))
}

// stockUp imports keys: those given, or so many named SKU-0001 and on.
func (s *scenario) stockUp(ctx context.Context, p inventory.Pool, spec string) error {
	keys := strings.Split(spec, ",")
	if n, err := strconv.Atoi(spec); err == nil {
		if n < 0 {
			return fmt.Errorf("keys=%d", n)
		}
		keys = s.nameKeys(p, n)
	}
	if len(keys) == 0 {
		return nil
	}
	report, _, err := s.life.shop.Service().Import(ctx, inventory.Import{Pool: p, File: strings.NewReader(strings.Join(keys, "\n")),
		FileName: p.SKU + ".txt", Actor: "scenario", At: s.clock.now()})
	if err == nil && report.New != int64(len(keys)) {
		err = fmt.Errorf("of %d keys %d were new", len(keys), report.New)
	}
	return err
}

func (s *scenario) nameKeys(p inventory.Pool, n int) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := make([]string, n)
	for i := range keys {
		s.numbered[p.ID]++
		keys[i] = fmt.Sprintf("%s-%04d", p.SKU, s.numbered[p.ID])
	}
	return keys
}

// thankyou ORDER
func thankYou(ctx context.Context, c *call) error {
	if err := c.exactly("ORDER"); err != nil {
		return err
	}
	merchants, err := c.merchants(ctx)
	if err != nil {
		return err
	}
	for _, m := range merchants {
		_, err = c.life.shop.SettleFor(ctx, m, c.words[0])
		if !errors.Is(err, fulfillment.ErrNotFound) {
			return err
		}
	}
	return err
}

// smtp down · smtp up
func smtp(_ context.Context, c *call) error {
	if err := c.exactly("down|up"); err != nil {
		return err
	}
	switch c.words[0] {
	case "down":
		c.mail.Down()
	case "up":
		c.mail.Up()
	default:
		return fmt.Errorf("smtp %s: it is down or up", c.words[0])
	}
	return nil
}

// for-each N [at_once=M] COMMAND…
func forEach(ctx context.Context, c *call, cmds map[string]command) error {
	if len(c.words) < 2 {
		return errors.New("it takes a number, [at_once=M] and a command")
	}
	n, err := readCount("for-each", c.words[0], 1)
	if err != nil {
		return err
	}
	atOnce, words := 1, c.words[1:]
	if m, ok := strings.CutPrefix(words[0], "at_once="); ok {
		if atOnce, err = readCount("at_once", m, 1); err != nil {
			return err
		}
		words = words[1:]
	}
	neg := len(words) > 0 && words[0] == "!"
	if neg {
		words = words[1:]
	}
	if len(words) == 0 {
		return errors.New("there is no command to run")
	}
	cmd := cmds[words[0]]
	if cmd == nil {
		return fmt.Errorf("unknown command %q", words[0])
	}
	calls := make([]*call, n)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i := range calls {
		calls[i] = &call{scenario: c.scenario, neg: neg, dir: c.dir}
		for _, word := range words[1:] {
			calls[i].words = append(calls[i].words, strings.ReplaceAll(word, "$N", strconv.Itoa(i+1)))
		}
		group.Go(func() error {
			if ctx.Err() != nil {
				return nil // another has failed
			}
			if err := cmd(ctx, calls[i]); err != nil {
				return fmt.Errorf("%s %s: %w", words[0], strings.Join(calls[i].words, " "), err)
			}
			return nil
		})
	}
	err = group.Wait()
	for _, inner := range calls {
		c.printed = c.printed || inner.printed
		c.stdout.Write(inner.stdout.Bytes())
		c.stderr.Write(inner.stderr.Bytes())
	}
	return err
}
