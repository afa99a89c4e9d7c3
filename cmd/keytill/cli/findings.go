package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/keytill/keytill/fulfillment"
)

func (c *command) findings() *cobra.Command {
	return &cobra.Command{
		Use:   "findings",
		Short: "List what a person must look at",
		Long: "Lists what keytill could not decide by itself, oldest first: a price that is not mapped, a refund that does not say\n" +
			"what it is for, an order without an address. A finding closes by itself when it no longer holds.",
		Example: "  keytill findings\n  keytill findings --json | jq '.[].kind'",
		Args:    args(),
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
