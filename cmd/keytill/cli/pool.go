package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/keytill/keytill/internal/pg"
	"github.com/keytill/keytill/inventory"
)

func (c *command) merchant() *cobra.Command {
	var account string
	add := &cobra.Command{
		Use:   "add ID --account acct_…",
		Short: "Add a merchant that sells through a Connect account",
		Long: "Adds a merchant of a Connect platform: stock and orders of its own, sold through its account. Other commands name it\n" +
			"with --merchant; its events find it by the account.",
		Example: "  keytill merchant add acme --account acct_1Abc\n  keytill --merchant acme pool create game",
		Args:    args("a merchant's ID"),
		RunE: func(cmd *cobra.Command, given []string) error {
			if !strings.HasPrefix(account, "acct_") {
				return usage("name the merchant's Connect account: --account acct_…")
			}
			return c.with(cmd.Context(), func(ctx context.Context, op *operator) error {
				if err := inventory.AddMerchant(ctx, op.pool, given[0], account, c.Now()); err != nil {
					return err
				}
				return c.show(map[string]any{"merchant": given[0], "account": account}, func(w io.Writer) {
					fmt.Fprintf(w, "Merchant %s sells through %s.\n", given[0], account)
				})
			})
		},
	}
	add.Flags().StringVar(&account, "account", "", "the Connect account: `acct_1Abc`")
	return group("merchant", "Merchants of a Connect platform", add)
}

// with opens what a command needs, runs it, and closes it.
func (c *command) with(ctx context.Context, run func(ctx context.Context, op *operator) error) error {
	op, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer op.close()
	return run(ctx, op)
}

func (c *command) pool() *cobra.Command {
	return group("pool", "Pools: the shelves that keys lie on", c.poolCreate(), c.poolMap(), c.poolList())
}

func (c *command) poolCreate() *cobra.Command {
	var (
		name, shortage, release, low string
		pendingSupply, maxReserved   int64
	)
	cmd := &cobra.Command{
		Use:   "create SKU",
		Short: "Make a pool",
		Example: "  keytill pool create editor --name 'Photo Editor 3' --low 10%\n" +
			"  keytill pool create game --release 2027-01-31T12:00:00Z --pending-supply 500\n" +
			"  keytill pool create pin --shortage fail --max-reserved 50",
		Args: args("a SKU"),
		RunE: func(cmd *cobra.Command, given []string) error {
			pool := inventory.Pool{Merchant: c.settings.merchant, SKU: given[0], Name: name, Shortage: inventory.Shortage(shortage), CreatedAt: c.Now()}
			if shortage != string(inventory.Wait) && shortage != string(inventory.Fail) {
				return usage("--shortage is wait (a paid unit waits for stock) or fail (it fails and asks for a person), not %q", shortage)
			}
			if cmd.Flags().Changed("pending-supply") {
				if pendingSupply < 0 {
					return usage("--pending-supply is how many units may be sold ahead, not %d", pendingSupply)
				}
				pool.PendingSupply = &pendingSupply
			}
			if cmd.Flags().Changed("max-reserved") {
				if maxReserved < 0 {
					return usage("--max-reserved is how many keys carts may hold at once, not %d", maxReserved)
				}
				pool.MaxReserved = &maxReserved
			}
			if err := parseLow(low, &pool); err != nil {
				return err
			}
			if release != "" {
				at, err := time.Parse(time.RFC3339, release)
				if err != nil {
					return usage("--release is a time like 2027-01-31T12:00:00Z, not %q", release)
				}
				pool.ReleaseAt = &at
			}
			return c.with(cmd.Context(), func(ctx context.Context, op *operator) error {
				err := pg.InTx(ctx, op.pool, func(tx pgx.Tx) (err error) {
					pool, err = inventory.CreatePool(ctx, tx, pool)
					return err
				})
				if err != nil {
					return err
				}
				return c.show(map[string]any{"sku": pool.SKU, "name": pool.Name}, func(w io.Writer) {
					fmt.Fprintf(w, "Pool %s is made. Next: `keytill pool map %s --price price_…` and `keytill import %s FILE`.\n", pool.SKU, pool.SKU, pool.SKU)
				})
			})
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "what a buyer reads; the SKU unless set: `'Photo Editor 3'`")
	cmd.Flags().StringVar(&shortage, "shortage", "wait", "what a paid unit does without stock: `wait` or fail")
	cmd.Flags().Int64Var(&pendingSupply, "pending-supply", 0, "how many units may be sold ahead; any number unless set: `500`")
	cmd.Flags().StringVar(&low, "low", "", "tell when no more keys than this are left, 20, or `10%` of what was last stocked")
	cmd.Flags().Int64Var(&maxReserved, "max-reserved", 0, "how many keys carts may hold at once; any number unless set: `50`")
	cmd.Flags().StringVar(&release, "release", "", "announce nothing to buyers before this time: `2027-01-31T12:00:00Z`")
	return cmd
}

// parseLow reads the mark at which a pool counts as low: a number of keys, or a percentage of what was last stocked.
func parseLow(low string, pool *inventory.Pool) error {
	if low == "" {
		return nil
	}
	number, percent := strings.CutSuffix(low, "%")
	n, err := strconv.ParseInt(number, 10, 64)
	switch {
	case err != nil || n < 0 || percent && (n < 1 || n > 99):
		return usage("--low is a number of keys like 20, or a percentage from 1%% to 99%%, not %q", low)
	case percent:
		p := int(n)
		pool.LowPercent = &p
	default:
		pool.LowKeys = &n
	}
	return nil
}

func (c *command) poolMap() *cobra.Command {
	var (
		price, product string
		perUnit        int
		noKeys         bool
	)
	cmd := &cobra.Command{
		Use:   "map SKU --price P | --product P",
		Short: "Say what a Stripe price or product hands out",
		Long: "Says that a Stripe price or product hands out keys of a pool. Orders that waited for it are settled. With --no-keys\n" +
			"and no SKU, the price is passed over silently: shipping, say.",
		Example: "  keytill pool map editor --price price_1Abc\n  keytill pool map duo --product prod_9 --per-unit 2\n  keytill pool map --no-keys --price price_shipping",
		Args:    atMost("a SKU"),
		RunE: func(cmd *cobra.Command, given []string) error {
			item := price + product
			switch {
			case (price == "") == (product == ""):
				return usage("name one of --price and --product")
			case noKeys == (len(given) == 1):
				return usage("name a SKU, or say --no-keys")
			}
			return c.with(cmd.Context(), func(ctx context.Context, op *operator) error {
				var pool *inventory.Pool
				if !noKeys {
					found, err := inventory.PoolBySKU(ctx, op.pool, op.merchant, given[0])
					if err != nil {
						return err
					}
					pool = &found
				}
				if err := op.service.Map(ctx, op.merchant, item, pool, perUnit); err != nil {
					return err
				}
				return c.show(map[string]any{"item": item, "per_unit": perUnit, "no_keys": noKeys}, func(w io.Writer) {
					if noKeys {
						fmt.Fprintf(w, "%s hands out no keys.\n", item)
						return
					}
					fmt.Fprintf(w, "%s hands out %s of %s a unit.\n", item, plural(perUnit, "key"), pool.SKU)
				})
			})
		},
	}
	cmd.Flags().StringVar(&price, "price", "", "a Stripe price: `price_1Abc`")
	cmd.Flags().StringVar(&product, "product", "", "a Stripe product, `prod_9`, for all its prices")
	cmd.Flags().IntVar(&perUnit, "per-unit", 1, "keys for each unit of quantity: `2`")
	cmd.Flags().BoolVar(&noKeys, "no-keys", false, "no keys here")
	return cmd
}

// poolRow is a pool as it is listed.
type poolRow struct {
	SKU      string   `json:"sku"`
	Name     string   `json:"name"`
	Shortage string   `json:"shortage"`
	Items    []string `json:"items"`
}

func (c *command) poolList() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the pools and what maps to them",
		Long:    "Lists the pools with what a shortage means for each, and which Stripe prices and products hand out their keys.",
		Example: "  keytill pool list\n  keytill pool list --json | jq -r '.[].sku'",
		Args:    args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.with(cmd.Context(), func(ctx context.Context, op *operator) error {
				rows, err := poolRows(ctx, op)
				if err != nil {
					return err
				}
				return c.show(rows, func(w io.Writer) {
					if len(rows) == 0 {
						fmt.Fprintln(w, "There are no pools yet: `keytill pool create SKU` makes one.")
						return
					}
					table(w, "SKU\tNAME\tSHORTAGE\tSOLD AS", func(row func(string, ...any)) {
						for _, r := range rows {
							row("%s\t%s\t%s\t%s", r.SKU, r.Name, r.Shortage, dash(strings.Join(r.Items, ", ")))
						}
					})
				})
			})
		},
	}
}

func poolRows(ctx context.Context, op *operator) ([]poolRow, error) {
	pools, err := inventory.Pools(ctx, op.pool, op.merchant)
	if err != nil {
		return nil, err
	}
	items, err := inventory.Items(ctx, op.pool, op.merchant)
	if err != nil {
		return nil, err
	}
	byPool := make(map[int64][]string)
	for _, it := range items {
		if it.PoolID == nil {
			continue
		}
		name := it.Item
		if it.PerUnit > 1 {
			name = fmt.Sprintf("%s (%d keys)", it.Item, it.PerUnit)
		}
		byPool[*it.PoolID] = append(byPool[*it.PoolID], name)
	}
	rows := make([]poolRow, len(pools))
	for i, p := range pools {
		rows[i] = poolRow{SKU: p.SKU, Name: p.Name, Shortage: string(p.Shortage), Items: byPool[p.ID]}
	}
	return rows, nil
}
