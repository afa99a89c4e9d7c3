package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/keytill/keytill/fulfillment"
)

func (c *command) key() *cobra.Command {
	return group("key", "Single keys: take one back, replace one, ask whether one is good",
		c.verify(),
		c.onUnit("revoke", "Take a unit's key back for good",
			"Takes a unit's key back. No payment gives it back: what a person revoked stays revoked.",
			func(ctx context.Context, op *operator, ref fulfillment.UnitRef, who fulfillment.Person) (string, error) {
				return "The key is revoked.", op.service.RevokeKey(ctx, op.merchant, ref, who)
			}),
		c.onUnit("replace", "Give a unit another key for a faulty one",
			"Takes a unit's key back for good and gives it the next one of its pool. Without stock the unit waits.",
			func(ctx context.Context, op *operator, ref fulfillment.UnitRef, who fulfillment.Person) (string, error) {
				return "The key is replaced; the buyer is told.", op.service.ReplaceKey(ctx, op.merchant, ref, who)
			}))
}

func (c *command) onUnit(verb, short, long string, act func(context.Context, *operator, fulfillment.UnitRef, fulfillment.Person) (string, error)) *cobra.Command {
	var (
		ref    fulfillment.UnitRef
		reason string
	)
	cmd := &cobra.Command{
		Use:   verb + " --order ID [--line LI] --unit N --reason R",
		Short: short,
		Long:  long,
		Example: "  keytill key " + verb + " --order cs_live_a1 --unit 1 --reason 'already redeemed'\n" +
			"  keytill key " + verb + " --order pi_3Abc --line li_1Abc --unit 2 --reason faulty",
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case ref.Order == "":
				return usage("say which order: --order ID")
			case ref.Unit < 1:
				return usage("say which unit, from 1: --unit N")
			case reason == "":
				return usage("say why: --reason R. The audit keeps it")
			}
			return c.with(cmd.Context(), func(ctx context.Context, op *operator) error {
				done, err := act(ctx, op, ref, fulfillment.Person{Name: actor(), Reason: reason})
				if err != nil {
					return err
				}
				return c.show(map[string]any{"done": verb, "order": ref.Order, "line": ref.Line, "unit": ref.Unit}, func(w io.Writer) {
					fmt.Fprintln(w, done)
				})
			})
		},
	}
	cmd.Flags().StringVar(&ref.Order, "order", "", "an id of the order's payment: `cs_live_a1`")
	cmd.Flags().StringVar(&ref.Line, "line", "", "the line, `li_1Abc`; not needed where only one has such a unit")
	cmd.Flags().IntVar(&ref.Unit, "unit", 0, "the unit, from `1`")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the audit: `'ticket 12'`")
	return cmd
}

func (c *command) refund() *cobra.Command {
	var lines, reason string
	attribute := &cobra.Command{
		Use:   "attribute re_… --lines li_…[:N],…",
		Short: "Say which lines a refund is for",
		Long: "Answers the finding unattributed_refund: says which lines, prices or SKUs a partial refund is for, each with the\n" +
			"number of units after a colon. --lines none says that it takes no key: goodwill, shipping, a later discount.",
		Example: "  keytill refund attribute re_3Abc --lines li_1Abc:2\n  keytill refund attribute re_3Abc --lines none --reason goodwill",
		Args:    args("a refund (re_…)"),
		RunE: func(cmd *cobra.Command, given []string) error {
			if lines == "" {
				return usage("say which lines the refund is for: --lines li_…[:N],… or --lines none")
			}
			return c.with(cmd.Context(), func(ctx context.Context, op *operator) error {
				order, err := op.service.AttributeRefund(ctx, op.merchant, given[0], lines, fulfillment.Person{Name: actor(), Reason: reason})
				if err != nil {
					return err
				}
				return c.show(map[string]any{"refund": given[0], "order": order, "lines": lines}, func(w io.Writer) {
					fmt.Fprintf(w, "Noted. The daemon settles order %s with it.\n", order)
				})
			})
		},
	}
	attribute.Flags().StringVar(&lines, "lines", "", "lines, prices or SKUs with a number of units, `li_1Abc:2`, separated by commas; or none")
	attribute.Flags().StringVar(&reason, "reason", "", "why, for the audit: `'ticket 12'`")
	return group("refund", "Refunds that do not say what they are for", attribute)
}

func (c *command) audit() *cobra.Command {
	var most int
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "List who revealed, revoked, replaced or imported what, and why",
		Long: "Lists what people did, newest first: who revealed, revoked, replaced, sent again or imported what, when and why.\n" +
			"Nothing is ever taken out of it.",
		Example: "  keytill audit --most 20\n  keytill audit --json | jq '.[] | select(.action == \"reveal\")'",
		Args:    args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if most < 1 {
				return usage("--most is how many lines to list, not %d", most)
			}
			return c.with(cmd.Context(), func(ctx context.Context, op *operator) error {
				acts, err := fulfillment.Audit(ctx, op.pool, op.merchant, most)
				if err != nil {
					return err
				}
				return c.show(acts, func(w io.Writer) {
					if len(acts) == 0 {
						fmt.Fprintln(w, "Nobody has done anything yet.")
						return
					}
					table(w, "WHEN (UTC)\tWHO\tWHAT\tORDER\tTO\tWHY", func(row func(string, ...any)) {
						for _, a := range acts {
							row("%s\t%s\t%s\t%s\t%s\t%s", day(a.At), a.Actor, a.Action, dash(a.Order), a.Subject, dash(a.Reason))
						}
					})
				})
			})
		},
	}
	cmd.Flags().IntVar(&most, "most", 100, "how many lines, newest first: `20`")
	return cmd
}
