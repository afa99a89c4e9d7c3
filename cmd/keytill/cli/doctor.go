package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/keytill/keytill/adapter"
	"github.com/keytill/keytill/adapter/stripeapi"
	"github.com/keytill/keytill/fulfillment"
)

func (c *command) findings() *cobra.Command {
	return &cobra.Command{
		Use:   "findings",
		Short: "List what a person must look at",
		Args:  args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.with(cmd.Context(), func(ctx context.Context, op *operator) error {
				findings, err := fulfillment.Findings(ctx, op.pool, op.merchant)
				if err != nil {
					return err
				}
				return c.show(findings, func(w io.Writer) {
					if len(findings) == 0 {
						fmt.Fprintln(w, "Nothing to look at.")
					}
					for i, f := range findings {
						if i > 0 {
							fmt.Fprintln(w)
						}
						fmt.Fprintf(w, "%s  %s  since %s UTC\n  %s\n", f.Kind, f.Subject, day(f.OpenedAt), f.Detail)
					}
				})
			})
		},
	}
}

// servedWithin is how old a unit may be that waits beside stock: its pool is served within moments.
const servedWithin = time.Minute

func (c *command) doctor() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Check the database against keytill's promises",
		Long: "Checks that the schema is this version's and the keyset the database's, and holds keytill's promises against every\n" +
			"row: no key is live for two units and no unit has two, every due unit is fulfilled or waits in a pool without stock,\n" +
			"counts equal the rows, and a key's movements give its state. With a Stripe API key it also looks at the webhook endpoint\n" +
			"there. It only reads. Exit 1 if a promise is broken.",
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.with(cmd.Context(), func(ctx context.Context, op *operator) error {
				breaches, err := fulfillment.Check(ctx, op.pool, c.Now(), servedWithin)
				if err != nil {
					return err
				}
				endpoint := c.checkEndpoint(ctx, op)
				err = c.show(map[string]any{"ok": len(breaches) == 0, "breaches": append([]string{}, breaches...), "endpoint": endpoint}, func(w io.Writer) {
					fmt.Fprintln(w, "ok    the schema is this version's")
					fmt.Fprintln(w, "ok    the keyset is the database's")
					if len(breaches) == 0 {
						fmt.Fprintln(w, "ok    keys, units, counts and movements agree")
					}
					for _, b := range breaches {
						fmt.Fprintln(w, "WRONG "+b)
					}
					for _, note := range endpoint.Notes {
						fmt.Fprintln(w, "ok    webhook endpoint: "+note)
					}
					for _, p := range endpoint.Problems {
						fmt.Fprintln(w, "warn  webhook endpoint: "+p.String())
					}
				})
				if err == nil && len(breaches) > 0 {
					return errReported
				}
				return err
			})
		},
	}
}

// checkEndpoint looks at the webhook endpoint at Stripe, where there is a key to ask with. What it finds is a warning: the
// sweep makes up for an endpoint that is broken.
func (c *command) checkEndpoint(ctx context.Context, op *operator) adapter.EndpointReport {
	if op.stripe == nil {
		return adapter.EndpointReport{Notes: []string{"not looked at, for want of a Stripe API key"}}
	}
	live, _ := stripeapi.Livemode(c.settings.stripeKey)
	report, err := adapter.CheckEndpoint(ctx, op.stripe, live)
	if err != nil {
		report.Problems = []adapter.EndpointProblem{{What: "Stripe could not be asked: " + err.Error(), Do: "check KEYTILL_STRIPE_API_KEY and the network"}}
	}
	return report
}
