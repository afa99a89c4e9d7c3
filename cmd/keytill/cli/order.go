package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keytill/keytill/fulfillment"
)

func (c *command) order() *cobra.Command {
	return group("order", "Orders: what a buyer bought and has", c.orderShow(), c.orderSettle(), c.orderRetry(), c.orderResend(), c.orderLink())
}

func (c *command) orderShow() *cobra.Command {
	var (
		key, reason string
		reveal      bool
	)
	cmd := &cobra.Command{
		Use:   "show (cs_… | pi_… | ch_… | re_… | e-mail | --key KEY)",
		Short: "Find orders by whatever the buyer holds",
		Example: "  keytill order show buyer@example.com\n" +
			"  keytill order show ch_3Abc\n" +
			"  keytill order show --key ABCD-1234 --json | jq '.[].id'\n" +
			"  keytill order show cs_live_a1 --reveal --reason 'ticket 12'",
		Args: atMost("one thing to look for"),
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
				keys, err := c.reveal(ctx, op, orders, reveal, reason)
				if err != nil {
					return err
				}
				return c.show(shownOrders(orders, keys), func(w io.Writer) {
					for i, o := range orders {
						if i > 0 {
							fmt.Fprintln(w)
						}
						printOrder(w, o, keys)
					}
				})
			})
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "find by a key's text: `ABCD-1234`")
	cmd.Flags().BoolVar(&reveal, "reveal", false, "show the keys, which the audit notes")
	cmd.Flags().StringVar(&reason, "reason", "", "why the keys are shown: `'ticket 12'`")
	return cmd
}

// reveal decrypts the orders' keys where that is asked for.
func (c *command) reveal(ctx context.Context, op *operator, orders []fulfillment.Order, reveal bool, reason string) (map[int64]string, error) {
	if !reveal {
		return nil, nil
	}
	if reason == "" {
		return nil, usage("say why the keys are shown: --reason 'ticket 12'. The audit keeps it")
	}
	keys := make(map[int64]string)
	for _, o := range orders {
		texts, err := op.service.Reveal(ctx, op.merchant, o, fulfillment.Person{Name: actor(), Reason: reason})
		if err != nil {
			return nil, err
		}
		maps.Copy(keys, texts)
	}
	return keys, nil
}

// shownOrder is an order as JSON, with its keys where they are revealed.
type shownOrder struct {
	fulfillment.Order
	Keys map[int64]string `json:"keys,omitempty"` // by key_id
}

func shownOrders(orders []fulfillment.Order, keys map[int64]string) []shownOrder {
	shown := make([]shownOrder, len(orders))
	for i, o := range orders {
		shown[i] = shownOrder{Order: o}
		for _, id := range o.KeyIDs(fulfillment.UnitStates...) {
			if text, ok := keys[id]; ok {
				if shown[i].Keys == nil {
					shown[i].Keys = make(map[int64]string)
				}
				shown[i].Keys[id] = text
			}
		}
	}
	return shown
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
		Long: "Reads a payment at Stripe, by any of its ids, and brings its order to that: the same that a webhook, a sweep and the\n" +
			"thank-you page do. Doing it twice is doing it once, and it works for payments that keytill has never heard of.",
		Example: "  keytill order settle cs_live_a1\n  keytill order settle pi_3Abc --json | jq .payment",
		Args:    args("an id of the payment (cs_…, pi_…, ch_…)"),
		RunE: func(cmd *cobra.Command, given []string) error {
			return c.with(cmd.Context(), func(ctx context.Context, op *operator) error {
				order, err := op.service.Settle(ctx, op.merchant, given[0])
				if err != nil {
					return err
				}
				return c.show(order, func(w io.Writer) { printOrder(w, order, nil) })
			})
		},
	}
}

func (c *command) orderRetry() *cobra.Command {
	return &cobra.Command{
		Use:   "retry ID",
		Short: "Try an order's failed units again",
		Long: "Settles an order and tries the units again that failed since their pool does not wait. Units that wait need no retry:\n" +
			"they get keys as soon as there are any.",
		Example: "  keytill order retry cs_live_a1",
		Args:    args("an id of the order's payment"),
		RunE: func(cmd *cobra.Command, given []string) error {
			return c.with(cmd.Context(), func(ctx context.Context, op *operator) error {
				order, err := op.service.Retry(ctx, op.merchant, given[0], fulfillment.Person{Name: actor()})
				if err != nil {
					return err
				}
				return c.show(order, func(w io.Writer) { printOrder(w, order, nil) })
			})
		},
	}
}

func (c *command) orderResend() *cobra.Command {
	var to, reason string
	cmd := &cobra.Command{
		Use:   "resend ID",
		Short: "Mail an order's keys again",
		Long: "Mails an order's keys again, to its own address or to another one. Suspended and revoked keys are not in it. The\n" +
			"audit notes it.",
		Example: "  keytill order resend cs_live_a1\n  keytill order resend cs_live_a1 --to right@example.com --reason 'ticket 12'",
		Args:    args("an id of the order's payment"),
		RunE: func(cmd *cobra.Command, given []string) error {
			return c.with(cmd.Context(), func(ctx context.Context, op *operator) error {
				if err := op.service.Resend(ctx, op.merchant, given[0], to, fulfillment.Person{Name: actor(), Reason: reason}); err != nil {
					return err
				}
				return c.show(map[string]any{"order": given[0], "queued": true}, func(w io.Writer) {
					fmt.Fprintf(w, "The daemon sends the keys of %s again.\n", given[0])
				})
			})
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "another address than the order's: `right@example.com`")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the audit: `'ticket 12'`")
	return cmd
}

func printOrder(w io.Writer, o fulfillment.Order, keys map[int64]string) {
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
				row("  %s\t%s\t%d\t%s\t%s\t%s", l.ID, dash(l.SKU), u.Unit, unitState(u), keyText(u.KeyID, keys), day(u.ChangedAt))
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

// keyText is a key where it is revealed; else it names the key without showing it.
func keyText(id int64, keys map[int64]string) string {
	if id == 0 {
		return "-"
	}
	if text, ok := keys[id]; ok {
		return text
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
