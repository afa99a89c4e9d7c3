// Package cli is keytill's command line: from arguments and environment to the parts that do the work, and their results
// as text or JSON.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/keytill/keytill/fulfillment"
)

// Process is what a command has of the process it runs in, so that a test can run it without one.
type Process struct {
	Args   []string
	Getenv func(string) string
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	Now    func() time.Time
	Dir    string // relative file names are of this directory; the process's own unless set
}

// Exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// usageError is an error of who typed the command.
type usageError struct{ error }

func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// errReported says that a command has printed already what is wrong.
var errReported = errors.New("reported")

// Run runs one command and returns its exit code: 0 done, 1 failed, 2 wrong usage. Errors go to Stderr and say what to
// do next.
func Run(ctx context.Context, p Process) int {
	c := &command{Process: p}
	root := c.root()
	root.SetArgs(p.Args)
	root.SetIn(p.Stdin)
	root.SetOut(p.Stdout)
	root.SetErr(p.Stderr)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errReported):
		return exitFailed
	}
	fmt.Fprintf(p.Stderr, "keytill: %s%s\n", oneLine(err), next(err))
	var wrong usageError
	if errors.As(err, &wrong) || !c.started {
		return exitUsage
	}
	return exitFailed
}

// next says what to do about errors that are born where no command is known.
func next(err error) string {
	switch {
	case errors.Is(err, fulfillment.ErrNoOrder):
		return ". `keytill order show` finds orders by what a buyer holds; `keytill order settle ID` asks Stripe for a payment that keytill has not heard of"
	case strings.HasPrefix(err.Error(), "unknown command"): // cobra's
		return ". `keytill help` lists them"
	}
	return ""
}

// oneLine is an error as a person or a log gets it: joined errors one after the other.
func oneLine(err error) string {
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' }), "; ")
}

// command is one run of the command line.
type command struct {
	Process
	settings settings
	started  bool // arguments and flags were right
}

func (c *command) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "keytill",
		Short: "Licence keys for Stripe orders: exactly one a unit",
		Long: "keytill hands a licence key to every paid order line of a Stripe storefront: exactly one key a unit,\n" +
			"never two, never none, and takes it back when the money goes back.\n\n" +
			"New here? `keytill demo` needs nothing set up, and `keytill recipe` lists what else is written down.\n\n" +
			"Exit code 0 is done, 1 failed, 2 wrong usage.",
		Example: "  keytill demo --serve\n" +
			"  keytill stock --json | jq '.[] | {sku, counts}'\n" +
			"  keytill --merchant acme order show buyer@example.com\n" +
			"  keytill --data-dir /var/lib/keytill serve",
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRun: func(*cobra.Command, []string) {
			c.started = true
		},
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage("%v. See `%s --help`", err, cmd.CommandPath())
	})
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { printHelp(c.Stdout, cmd) })
	c.settings.register(root.PersistentFlags(), c.Getenv)
	root.AddCommand(c.demo(), c.serve(), c.migrate(), c.keyset(), c.merchant(), c.pool(), c.importKeys(), c.batch(), c.stock(), c.order(),
		c.key(), c.token(), c.hooks(), c.refund(), c.reconcile(), c.findings(), c.audit(), c.doctor(), c.dashboards(), c.recipe(), c.completion())
	root.CompletionOptions.DisableDefaultCmd = true
	takeExamples(root)
	completeValues(root)
	return root
}

// args checks the number of arguments and names what is missing.
func args(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		if len(given) != len(names) {
			return usage("%s takes %s, not %d arguments. See `%s --help`", cmd.CommandPath(), describe(names), len(given), cmd.CommandPath())
		}
		return nil
	}
}

// atMost is for a command that takes one argument or none.
func atMost(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		if len(given) > 1 {
			return usage("%s takes %s and nothing more, not %d arguments\nSee `%s --help`", cmd.CommandPath(), name, len(given), cmd.CommandPath())
		}
		return nil
	}
}

func describe(names []string) string {
	if len(names) == 0 {
		return "no arguments"
	}
	return strings.Join(names, " and ")
}

// group is a command that only holds others.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	g := &cobra.Command{
		Use:   use,
		Short: short,
		// Of a command that there is not, its flags are not what is wrong.
		FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true},
		RunE: func(cmd *cobra.Command, given []string) error {
			if len(given) > 0 {
				return usage("there is no `%s %s`. See `%s --help`", cmd.CommandPath(), given[0], cmd.CommandPath())
			}
			return usage("say which: `%s --help` lists them", cmd.CommandPath())
		},
	}
	g.AddCommand(commands...)
	return g
}

// path is a file name as the process means it.
func (c *command) path(name string) string {
	if c.Dir == "" || filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(c.Dir, name)
}
