package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/inventory"
)

func (c *command) batch() *cobra.Command {
	return group("batch", "Batches: one import each, to list, hold back or recall whole",
		c.batchList(),
		c.batchSet("quarantine", "Keep what is not sold of a batch off the shelf", inventory.BatchQuarantined),
		c.batchSet("release", "Put a quarantined batch back on the shelf", inventory.BatchImported),
		c.batchSet("recall", "Take what is not sold of a batch off the shelf for good, and list what is sold", inventory.BatchRecalled))
}

func (c *command) batchList() *cobra.Command {
	var sku string
	cmd := &cobra.Command{
		Use:     "list --pool SKU",
		Short:   "List a pool's batches, newest first",
		Example: "  keytill batch list --pool editor",
		Args:    args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if sku == "" {
				return usage("say which pool: --pool SKU")
			}
			return c.with(cmd.Context(), func(ctx context.Context, op *operator) error {
				pool, err := inventory.PoolBySKU(ctx, op.pool, op.merchant, sku)
				if err != nil {
					return err
				}
				batches, err := inventory.Batches(ctx, op.pool, op.merchant, pool.ID)
				if err != nil {
					return err
				}
				return c.show(batches, func(w io.Writer) { printBatches(w, sku, batches) })
			})
		},
	}
	cmd.Flags().StringVar(&sku, "pool", "", "the pool's SKU: `editor`")
	return cmd
}

func printBatches(w io.Writer, sku string, batches []inventory.Batch) {
	if len(batches) == 0 {
		fmt.Fprintf(w, "Nothing was imported into %s yet.\n", sku)
		return
	}
	table(w, "BATCH\tWHEN (UTC)\tFILE\tSUPPLIER\tSTATE\tKEYS\tAVAILABLE\tSOLD", func(row func(string, ...any)) {
		for _, b := range batches {
			row("%d\t%s\t%s\t%s\t%s\t%d\t%d\t%d", b.ID, day(b.CreatedAt), b.FileName, dash(b.Supplier), b.State, b.Keys,
				b.Counts[inventory.Available], b.Counts[inventory.Allocated]+b.Counts[inventory.Suspended])
		}
	})
}

func (c *command) batchSet(verb, short string, state inventory.BatchState) *cobra.Command {
	var (
		sku, reason string
		id          int64
		last        bool
	)
	cmd := &cobra.Command{
		Use:     verb + " --pool SKU (--last | --id ID)",
		Short:   short,
		Example: "  keytill batch " + verb + " --pool editor --last --reason 'supplier, 12 June'\n  keytill batch " + verb + " --pool editor --id 4",
		Args:    args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case sku == "":
				return usage("say which pool: --pool SKU")
			case last == (id != 0):
				return usage("say which batch: --last for the newest, or --id ID")
			}
			return c.with(cmd.Context(), func(ctx context.Context, op *operator) error {
				pool, err := inventory.PoolBySKU(ctx, op.pool, op.merchant, sku)
				if err != nil {
					return err
				}
				done, err := op.service.SetBatchState(ctx, pool, id, state, fulfillment.Person{Name: actor(), Reason: reason})
				if err != nil {
					return err
				}
				return c.show(done, func(w io.Writer) { printBatchChange(w, done) })
			})
		},
	}
	cmd.Flags().StringVar(&sku, "pool", "", "the pool's SKU: `editor`")
	cmd.Flags().Int64Var(&id, "id", 0, "the batch, as `keytill batch list` numbers them: `4`")
	cmd.Flags().BoolVar(&last, "last", false, "the newest batch")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the audit: `'supplier, 12 June'`")
	return cmd
}

func printBatchChange(w io.Writer, done fulfillment.BatchChange) {
	fmt.Fprintf(w, "Batch %d is %s: %s moved.\n", done.Batch, done.State, plural(done.Moved, "key"))
	if done.Served > 0 {
		fmt.Fprintf(w, "%s that waited got a key.\n", plural(done.Served, "unit"))
	}
	if len(done.Sold) == 0 || done.State == inventory.BatchImported {
		return
	}
	fmt.Fprintf(w, "\n%s of it buyers have; `keytill key replace` gives them others:\n", plural(len(done.Sold), "key"))
	table(w, "ORDER\tLINE\tUNIT\tSTATE", func(row func(string, ...any)) {
		for _, s := range done.Sold {
			row("%s\t%s\t%d\t%s", s.Order, s.Line, s.Unit, s.State)
		}
	})
}
