package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

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
			"counts equal the rows, and a key's movements give its state. It only reads. Exit 1 if something is wrong.",
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.with(cmd.Context(), func(ctx context.Context, op *operator) error {
				breaches, err := fulfillment.Check(ctx, op.pool, c.Now(), servedWithin)
				if err != nil {
					return err
				}
				err = c.show(map[string]any{"ok": len(breaches) == 0, "breaches": append([]string{}, breaches...)}, func(w io.Writer) {
					fmt.Fprintln(w, "ok    the schema is this version's")
					fmt.Fprintln(w, "ok    the keyset is the database's")
					if len(breaches) == 0 {
						fmt.Fprintln(w, "ok    keys, units, counts and movements agree")
					}
					for _, b := range breaches {
						fmt.Fprintln(w, "WRONG "+b)
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
