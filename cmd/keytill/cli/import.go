package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/keytill/keytill/inventory"
)

func (c *command) importKeys() *cobra.Command {
	var (
		dryRun, force bool
		supplier      string
	)
	cmd := &cobra.Command{
		Use:   "import SKU FILE",
		Short: "Bring a supplier's file of keys onto the shelf",
		Long: "Imports a file with one key a line, UTF-8, into a pool: all of it or nothing. Blank lines are passed over, keys that\n" +
			"the file or the pool has already are not imported twice, and spaces around a key are cut off. FILE - is standard\n" +
			"input. Units that waited for stock get their keys at once.",
		Example: "  keytill import editor keys.txt --dry-run\n  keytill import editor keys.txt --supplier 'Key Wholesale Ltd'",
		Args:    args("a SKU", "a FILE"),
		RunE: func(cmd *cobra.Command, given []string) error {
			return c.with(cmd.Context(), func(ctx context.Context, op *operator) error {
				return c.runImport(ctx, op, given[0], given[1], inventory.Import{DryRun: dryRun, Force: force, Supplier: supplier})
			})
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print the same report and change nothing")
	cmd.Flags().BoolVar(&force, "force", false, "import the same file again")
	cmd.Flags().StringVar(&supplier, "supplier", "", "whom the keys are from")
	return cmd
}

func (c *command) runImport(ctx context.Context, op *operator, sku, name string, imp inventory.Import) error {
	pool, err := inventory.PoolBySKU(ctx, op.pool, op.merchant, sku)
	if err != nil {
		return err
	}
	imp.Pool, imp.FileName, imp.Actor, imp.At = pool, filepath.Base(name), actor(), c.Now()
	imp.File = c.Stdin
	if name != "-" {
		file, err := os.Open(c.path(name))
		if err != nil {
			return fmt.Errorf("open the file of keys: %w", err)
		}
		defer file.Close()
		imp.File = file
	}
	report, served, err := op.service.Import(ctx, imp)
	if err != nil {
		return err
	}
	return c.show(struct {
		inventory.Report
		DryRun bool `json:"dry_run"`
		Served int  `json:"served"`
	}{report, imp.DryRun, served}, func(w io.Writer) { printReport(w, report, imp.DryRun, served) })
}

func printReport(w io.Writer, report inventory.Report, dryRun bool, served int) {
	table(w, fmt.Sprintf("rows:\t%d", report.Rows), func(row func(string, ...any)) {
		row("new:\t%d", report.New)
		row("duplicate in file:\t%d", report.DuplicateInFile)
		row("duplicate in stock:\t%d", report.DuplicateInStock)
		row("blank:\t%d", report.Blank)
		row("spaces cut off:\t%d", report.Trimmed)
	})
	switch {
	case dryRun:
		fmt.Fprintln(w, "\nThis was a dry run: nothing has changed.")
	case report.Batch == 0:
		fmt.Fprintln(w, "\nNothing was new, so there is no batch.")
	default:
		fmt.Fprintf(w, "\nBatch %d is on the shelf.\n", report.Batch)
	}
	if served > 0 {
		fmt.Fprintf(w, "%s that waited got a key.\n", plural(served, "unit"))
	}
}

// actor is who runs the command, for the records.
func actor() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return "operator"
}
