package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/inventory"
)

// rebuiltRow is a pool whose counts were rebuilt.
type rebuiltRow struct {
	SKU string `json:"sku"`
	inventory.Rebuilt
}

func (c *command) stockRebuild() *cobra.Command {
	return &cobra.Command{
		Use:   "rebuild [SKU]",
		Short: "Count the keys anew by their rows and say what differed",
		Long: "Counts the rows of one pool's keys, or of all pools', and makes that the counts. Sales and imports go on meanwhile.\n" +
			"Something that differed is a fault that `keytill doctor` would have found.",
		Example: "  keytill stock rebuild\n  keytill stock rebuild editor --json",
		Args:    atMost("a SKU"),
		RunE: func(cmd *cobra.Command, given []string) error {
			return c.with(cmd.Context(), func(ctx context.Context, op *operator) error {
				rows, err := rebuildPools(ctx, op, given)
				if err != nil {
					return err
				}
				if err := c.recordRebuild(ctx, op, rows); err != nil {
					return err
				}
				return c.show(rows, func(w io.Writer) { printRebuilt(w, rows) })
			})
		},
	}
}

func rebuildPools(ctx context.Context, op *operator, given []string) ([]rebuiltRow, error) {
	pools, err := chosenPools(ctx, op, given)
	if err != nil {
		return nil, err
	}
	rows := make([]rebuiltRow, len(pools))
	for i, p := range pools {
		rebuilt, err := inventory.Rebuild(ctx, op.pool, p.Merchant, p.ID)
		if err != nil {
			return nil, fmt.Errorf("pool %s: %w", p.SKU, err)
		}
		rows[i] = rebuiltRow{p.SKU, rebuilt}
	}
	return rows, nil
}

// recordRebuild leaves a trace of counts that were wrong.
func (c *command) recordRebuild(ctx context.Context, op *operator, rows []rebuiltRow) error {
	for _, r := range rows {
		if len(r.Differences) == 0 && !r.Restored {
			continue
		}
		act := fulfillment.Act{At: c.Now(), Actor: actor(), Action: "rebuild stock",
			Subject: fmt.Sprintf("%s: %s differed", r.SKU, plural(len(r.Differences), "count"))}
		if err := fulfillment.Record(ctx, op.pool, op.merchant, act); err != nil {
			return err
		}
	}
	return nil
}

func printRebuilt(w io.Writer, rows []rebuiltRow) {
	differed := 0
	for _, r := range rows {
		differed += len(r.Differences)
		if r.Restored {
			fmt.Fprintf(w, "%s had the counts of another cluster: the database was restored.\n", r.SKU)
		}
	}
	if differed == 0 {
		fmt.Fprintf(w, "%s counted anew: nothing differed.\n", plural(len(rows), "pool"))
		return
	}
	table(w, "SKU\tSTATE\tCOUNTED\tROWS", func(row func(string, ...any)) {
		for _, r := range rows {
			for _, d := range r.Differences {
				row("%s\t%s\t%d\t%d", r.SKU, d.State, d.Counted, d.Rows)
			}
		}
	})
	fmt.Fprintln(w, "\nThe counts are those of the rows now.")
}
