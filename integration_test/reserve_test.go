package integration_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keytill/keytill/adapter"
	"github.com/keytill/keytill/fulfillment"
)

// reserve SKU*N… ref=REF [ttl=15m] [want=ok|sold_out|too_many|backorder]
func reserve(ctx context.Context, c *call) error {
	a, err := sortWords(c.words)
	if err != nil {
		return err
	}
	for name := range a.named {
		if !slices.Contains([]string{"ref", "ttl", "want"}, name) {
			return fmt.Errorf("unknown argument %s=", name)
		}
	}
	r := adapter.Reservation{Ref: a.text("ref", "")}
	if r.Ref == "" || len(a.plain) == 0 {
		return errors.New("it takes SKU*N… and ref=")
	}
	if ttl, ok := a.named["ttl"]; ok {
		if r.For, err = time.ParseDuration(ttl); err != nil {
			return fmt.Errorf("ttl: %w", err)
		}
	}
	merchant := ""
	for _, word := range a.plain {
		sku, number, _ := strings.Cut(word, "*")
		n, err := readCount(word, number, 1)
		if err != nil {
			return err
		}
		p, err := c.findPool(ctx, sku)
		if err != nil {
			return err
		}
		if merchant != "" && merchant != p.Merchant {
			return fmt.Errorf("%s is merchant %s's, not %s's", sku, p.Merchant, merchant)
		}
		merchant = p.Merchant
		r.Lines = append(r.Lines, adapter.ReservationLine{SKU: sku, Quantity: n})
	}
	want := a.text("want", "ok")
	if err := oneOf("end of a reservation", want, []string{"ok", "sold_out", "too_many", "backorder"}); err != nil {
		return err
	}
	return c.reserve(ctx, merchant, r, want)
}

func (s *scenario) reserve(ctx context.Context, merchant string, r adapter.Reservation, want string) error {
	held, err := s.life.shop.Service().Reserve(ctx, merchant, r)
	got := "ok"
	switch {
	case errors.Is(err, fulfillment.ErrSoldOut):
		got = "sold_out"
	case errors.Is(err, fulfillment.ErrTooMany):
		got = "too_many"
	case err != nil:
		return err
	case held.Ahead > 0:
		got = "backorder"
	}
	if got != want {
		return fmt.Errorf("it ended with %s, not %s (%d keys held, %d sold ahead): %v", got, want, held.Keys, held.Ahead, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.carts[r.Ref] = merchant
	return nil
}

// release ref=REF
func release(ctx context.Context, c *call) error {
	a, err := c.args("", "ref")
	if err != nil {
		return err
	}
	c.mu.Lock()
	merchant, ok := c.carts[a.text("ref", "")]
	c.mu.Unlock()
	if !ok {
		return fmt.Errorf("there was no reservation %q", a.text("ref", ""))
	}
	_, err = c.life.shop.Service().Release(ctx, merchant, a.text("ref", ""))
	return err
}
