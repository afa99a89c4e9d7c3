package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/inventory"
)

// stockRow is a pool's counts as they are listed.
type stockRow struct {
	SKU     string               `json:"sku"`
	Counts  inventory.Counts     `json:"counts"`
	Waiting *fulfillment.Waiting `json:"waiting,omitempty"`
	Held    *fulfillment.HeldAge `json:"held,omitempty"`
}

func (c *command) stock() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "stock [SKU]",
		Short:   "Count the keys by state, the units that wait, and what carts hold",
		Example: "  keytill stock\n  keytill stock editor --json",
		Args:    atMost("a SKU"),
		RunE: func(cmd *cobra.Command, given []string) error {
			return c.with(cmd.Context(), func(ctx context.Context, op *operator) error {
				rows, err := c.stockRows(ctx, op, given)
				if err != nil {
					return err
				}
				return c.show(rows, func(w io.Writer) { printStock(w, rows) })
			})
		},
	}
	cmd.AddCommand(c.stockRebuild())
	return cmd
}

// chosenPools are the one whose SKU is given, or all.
func chosenPools(ctx context.Context, op *operator, given []string) ([]inventory.Pool, error) {
	if len(given) == 0 {
		return inventory.Pools(ctx, op.pool, op.merchant)
	}
	pool, err := inventory.PoolBySKU(ctx, op.pool, op.merchant, given[0])
	return []inventory.Pool{pool}, err
}

func (c *command) stockRows(ctx context.Context, op *operator, given []string) ([]stockRow, error) {
	pools, err := chosenPools(ctx, op, given)
	if err != nil {
		return nil, err
	}
	counts, err := inventory.Stock(ctx, op.pool, op.merchant, 0)
	if err != nil {
		return nil, err
	}
	waiting, err := fulfillment.WaitingByPool(ctx, op.pool, op.merchant)
	if err != nil {
		return nil, err
	}
	held, err := fulfillment.HeldByPool(ctx, op.pool, op.merchant, c.Now())
	if err != nil {
		return nil, err
	}
	rows := make([]stockRow, len(pools))
	for i, p := range pools {
		rows[i] = stockRow{SKU: p.SKU, Counts: counts[p.ID]}
		if rows[i].Counts == nil {
			rows[i].Counts = inventory.Counts{}
		}
		if w, ok := waiting[p.ID]; ok {
			rows[i].Waiting = &w
		}
		if h, ok := held[p.ID]; ok {
			rows[i].Held = &h
		}
	}
	return rows, nil
}

// printStock prints the states that occur, and always what is available and allocated.
func printStock(w io.Writer, rows []stockRow) {
	if len(rows) == 0 {
		fmt.Fprintln(w, "There are no pools yet: `keytill pool create SKU` makes one.")
		return
	}
	seen := map[inventory.State]bool{inventory.Available: true, inventory.Allocated: true}
	for _, r := range rows {
		for state := range maps.Keys(r.Counts) {
			seen[state] = true
		}
	}
	states := slices.DeleteFunc(slices.Clone(inventory.States), func(s inventory.State) bool { return !seen[s] })
	head := "SKU"
	for _, state := range states {
		head += "\t" + strings.ToUpper(string(state))
	}
	table(w, head, func(row func(string, ...any)) {
		for _, r := range rows {
			line := r.SKU
			for _, state := range states {
				line += fmt.Sprintf("\t%d", r.Counts[state])
			}
			row("%s", line)
		}
	})
	for _, r := range rows {
		if r.Waiting != nil {
			fmt.Fprintf(w, "\n%s: %s without a key, the oldest paid %s UTC.\n", r.SKU, plural(r.Waiting.Units, "paid unit"), day(r.Waiting.Since))
		}
		if h := r.Held; h != nil {
			fmt.Fprintf(w, "\n%s: carts hold %s: %d for less than 5 minutes, %d less than 15, %d less than an hour, %d longer; %d are sold ahead.\n",
				r.SKU, plural(h.Keys, "key"), h.Under5m, h.Under15m, h.Under1h, h.Older, h.Ahead)
		}
	}
}
