package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keytill/keytill/inventory"
)

func (c *command) importKeys() *cobra.Command {
	var (
		imp                           inventory.Import
		format, separator, duplicates string
	)
	cmd := &cobra.Command{
		Use:   "import SKU FILE",
		Short: "Bring a supplier's file of keys onto the shelf",
		Long: "Imports a file of keys into a pool: all of it or nothing. Units that waited for stock get their keys at once.\n" +
			"FILE - is standard input. The file is UTF-8, or UTF-16 with its byte-order mark.\n\n" +
			"A file holds one key a line; or it is CSV, if its name ends in .csv or a flag says so. A CSV file has a header, and\n" +
			"one of its columns has a name such as key, code, license, serial, voucher or pin, or --column says which. With\n" +
			"--no-header the first row is a key's, and --column is a number.\n\n" +
			"Keys are kept as they are, but for spaces around them, which are cut off. Blank rows are passed over. Keys that the\n" +
			"file or the pool has already are not stored twice.",
		Example: "  keytill import editor keys.txt --dry-run\n" +
			"  keytill import editor keys.txt --supplier 'Key Wholesale Ltd' --across-pools\n" +
			"  keytill import editor keys.csv --column key --use-by-column 'Valid until'\n" +
			"  keytill import editor june.dat --separator tab --no-header --column 2\n" +
			"  keytill import editor - --format csv < june.csv\n" +
			"  keytill import editor keys.txt --duplicates refuse --force\n" +
			"  gpg -d keys.gpg | keytill import editor -",
		Args: args("a SKU", "a FILE"),
		RunE: func(cmd *cobra.Command, given []string) error {
			if err := readImportFlags(&imp, format, separator, duplicates); err != nil {
				return err
			}
			return c.with(cmd.Context(), func(ctx context.Context, op *operator) error {
				return c.runImport(ctx, op, given[0], given[1], imp)
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&imp.DryRun, "dry-run", false, "print the same report and change nothing")
	flags.BoolVar(&imp.Force, "force", false, "import the same file again")
	flags.StringVar(&imp.Supplier, "supplier", "", "whom the keys are from: `'Key Wholesale Ltd'`")
	flags.StringVar(&format, "format", "", "lines or `csv`; by the file's name and the other flags unless set")
	flags.StringVar(&imp.Column, "column", "", "the keys' column, by name or number from 1: `'Product key'`")
	flags.StringVar(&imp.UseByColumn, "use-by-column", "", "the column with each key's last day of use, which is like 2027-12-31: `'Valid until'`")
	flags.BoolVar(&imp.NoHeader, "no-header", false, "the file has no header")
	flags.StringVar(&separator, "separator", "", "what separates columns: ',' (unless set), `';'`, '|' or tab")
	flags.StringVar(&duplicates, "duplicates", string(inventory.SkipDuplicates), "`skip` keys that are there already, or refuse the file")
	flags.BoolVar(&imp.AcrossPools, "across-pools", false, "keys of the merchant's other pools count as there already")
	return cmd
}

func readImportFlags(imp *inventory.Import, format, separator, duplicates string) error {
	switch imp.Format = inventory.Format(format); imp.Format {
	case "", inventory.FormatCSV:
	case inventory.FormatLines:
		if imp.Column != "" || imp.UseByColumn != "" || imp.NoHeader || separator != "" {
			return usage("--format lines goes without --column, --use-by-column, --no-header and --separator, which are for CSV")
		}
	default:
		return usage("--format is lines or csv, not %q", format)
	}
	switch separator {
	case "":
	case ",", ";", "|", "\t":
		imp.Separator = rune(separator[0])
	case "tab", `\t`:
		imp.Separator = '\t'
	default:
		return usage("--separator is ',', ';', '|' or tab, not %q", separator)
	}
	if separator != "" {
		imp.Format = inventory.FormatCSV
	}
	switch imp.Duplicates = inventory.DuplicatePolicy(duplicates); imp.Duplicates {
	case inventory.SkipDuplicates, inventory.RefuseDuplicates:
	default:
		return usage("--duplicates is skip or refuse, not %q", duplicates)
	}
	if imp.NoHeader && imp.Column != "" {
		if _, err := strconv.Atoi(imp.Column); err != nil {
			return usage("with --no-header --column is a number from 1, not %q", imp.Column)
		}
	}
	return nil
}

func (c *command) runImport(ctx context.Context, op *operator, sku, name string, imp inventory.Import) error {
	pool, err := inventory.PoolBySKU(ctx, op.pool, op.merchant, sku)
	if err != nil {
		return err
	}
	imp.Pool, imp.FileName, imp.Actor, imp.At = pool, filepath.Base(name), actor(), c.Now()
	imp.File = c.Stdin
	var size int64
	if name != "-" {
		file, err := os.Open(c.path(name))
		if err != nil {
			return fmt.Errorf("open the file of keys: %w", err)
		}
		defer file.Close()
		if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
			size = info.Size()
		}
		imp.File = file
	}
	bar := newImportBar(c.Stderr, isTerminal(c.Stderr), size)
	imp.Progress = bar.tell
	report, served, err := op.service.Import(ctx, imp)
	bar.end()
	if err != nil {
		return err
	}
	return c.show(struct {
		inventory.Report
		DryRun bool `json:"dry_run"`
		Served int  `json:"served"`
	}{report, imp.DryRun, served}, func(w io.Writer) { printReport(w, report, imp, served) })
}

func printReport(w io.Writer, report inventory.Report, imp inventory.Import, served int) {
	table(w, fmt.Sprintf("rows:\t%d", report.Rows), func(row func(string, ...any)) {
		row("new:\t%d", report.New)
		row("duplicate in file:\t%d", report.DuplicateInFile)
		row("duplicate in stock:\t%d", report.DuplicateInStock)
		if imp.AcrossPools {
			row("duplicate in other pools:\t%d", report.DuplicateElsewhere)
		}
		row("blank:\t%d", report.Blank)
		row("spaces cut off:\t%d", report.Trimmed)
	})
	printDuplicates(w, report.Duplicates)
	switch {
	case imp.DryRun:
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

// shownDuplicates is how many duplicates of each kind the text names; JSON has more.
const shownDuplicates = 20

func printDuplicates(w io.Writer, duplicates []inventory.Duplicate) {
	var inFile, inStock, elsewhere []string
	for _, d := range duplicates {
		switch {
		case d.First != 0:
			inFile = append(inFile, fmt.Sprintf("%d (as %d)", d.Row, d.First))
		case d.SKU != "":
			elsewhere = append(elsewhere, fmt.Sprintf("%d (in %s)", d.Row, d.SKU))
		default:
			inStock = append(inStock, fmt.Sprint(d.Row))
		}
	}
	head := "\n"
	for _, kind := range []struct {
		what string
		rows []string
	}{{"in the file before", inFile}, {"in stock", inStock}, {"in other pools", elsewhere}} {
		if len(kind.rows) == 0 {
			continue
		}
		more := ""
		if len(kind.rows) > shownDuplicates {
			more = ", …"
		}
		fmt.Fprintf(w, "%sRows %s: %s%s\n", head, kind.what, strings.Join(kind.rows[:min(len(kind.rows), shownDuplicates)], ", "), more)
		head = ""
	}
}

// actor is who runs the command, for the records.
func actor() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return "operator"
}
