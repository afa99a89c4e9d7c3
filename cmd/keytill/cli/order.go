package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keytill/keytill/fulfillment"
)

func (c *command) order() *cobra.Command {
	return group("order", "Orders: what a buyer bought and has", c.orderShow(), c.orderSettle())
}

func (c *command) orderShow() *cobra.Command {
	var key string
	cmd := &cobra.Command{
		Use:   "show (cs_… | pi_… | ch_… | re_… | e-mail | --key KEY)",
		Short: "Find orders by whatever the buyer holds",
		Example: "  keytill order show buyer@example.com\n" +
			"  keytill order show ch_3Abc",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, given []string) error {
			if (key == "") == (len(given) == 0) {
				return usage("say what to look for: an order, payment, charge or refund id, an e-mail address, or --key KEY")
			}
			return c.with(cmd.Context(), func(ctx context.Context, op *operator) error {
				orders, err := findOrders(ctx, op, given, key)
				if errors.Is(err, fulfillment.ErrNoOrder) {
					return errors.New("no order found. `keytill order settle ID` asks Stripe for a payment that keytill has not heard of")
				}
				if err != nil {
					return err
				}
				return c.show(orders, func(w io.Writer) {
					for i, o := range orders {
						if i > 0 {
							fmt.Fprintln(w)
						}
						printOrder(w, o)
					}
				})
			})
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "find by a key's text")
	return cmd
}

func findOrders(ctx context.Context, op *operator, given []string, key string) ([]fulfillment.Order, error) {
	if key != "" {
		return op.service.FindOrdersByKey(ctx, op.merchant, key)
	}
	return fulfillment.FindOrders(ctx, op.pool, op.merchant, given[0])
}

func (c *command) orderSettle() *cobra.Command {
	return &cobra.Command{
		Use:   "settle ID",
		Short: "Read the payment at Stripe now and bring its order to that",
		Args:  args("an id of the payment (cs_…, pi_…, ch_…)"),
		RunE: func(cmd *cobra.Command, given []string) error {
			return c.with(cmd.Context(), func(ctx context.Context, op *operator) error {
				order, err := op.service.Settle(ctx, op.merchant, given[0])
				if err != nil {
					return err
				}
				return c.show(order, func(w io.Writer) { printOrder(w, order) })
			})
		},
	}
}

func printOrder(w io.Writer, o fulfillment.Order) {
	fmt.Fprintf(w, "Order %s\n", o.ID)
	table(w, fmt.Sprintf("  payment\t%s, %s of %s%s", o.Payment, amount(o.Captured, o.Currency), amount(o.Total, o.Currency), refunded(o)), func(row func(string, ...any)) {
		row("  ids\t%s", dash(strings.TrimSpace(o.PaymentIntent+" "+o.Charge)))
		row("  buyer\t%s", dash(o.Email))
		row("  placed\t%s UTC", day(o.PlacedAt))
		row("  settled\t%s UTC", day(o.SettledAt))
	})
	fmt.Fprintln(w)
	table(w, "  LINE\tSKU\tUNIT\tSTATE\tKEY\tSINCE (UTC)", func(row func(string, ...any)) {
		for _, l := range o.Lines {
			if len(l.Units) == 0 {
				row("  %s\t%s\t-\t-\t-\t-", l.ID, dash(l.SKU))
			}
			for _, u := range l.Units {
				row("  %s\t%s\t%d\t%s\t%s\t%s", l.ID, dash(l.SKU), u.Unit, unitState(u), maskedKey(u.KeyID), day(u.ChangedAt))
			}
		}
	})
}

func unitState(u fulfillment.OrderUnit) string {
	if u.RevokedBy == fulfillment.ByPerson {
		return string(u.State) + " by a person"
	}
	return string(u.State)
}

// maskedKey names a key without showing it.
func maskedKey(id int64) string {
	if id == 0 {
		return "-"
	}
	return fmt.Sprintf("#%d ••••", id)
}

// amount prints minor units as they are, so that no currency needs to be known.
func amount(n int64, currency string) string { return fmt.Sprintf("%d %s", n, currency) }

func refunded(o fulfillment.Order) string {
	if o.Refunded == 0 {
		return ""
	}
	return fmt.Sprintf(", %s refunded", amount(o.Refunded, o.Currency))
}
