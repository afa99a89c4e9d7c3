package cli

import (
	"context"
	"errors"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/keytill/keytill/cmd/keytill/demo"
)

func (c *command) demo() *cobra.Command {
	var (
		config demo.Config
		stay   bool
	)
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See it work, with nothing set up",
		Long: "Plays a shop's bad day with keytill's real parts: orders at once, every webhook several times and in wrong order,\n" +
			"one lost, one order more than there are keys, a refund. Then it prints what became of it, read back from the\n" +
			"database, and checks keytill's promises. It brings its own PostgreSQL, a fake of Stripe, a mail server and a\n" +
			"storefront, uses none of your settings, and takes all of it down again. Exit 1 if a promise was broken.\n\n" +
			"With --serve it stays open afterwards, at --listen, until Ctrl-C: it prints the console's address with a token to\n" +
			"log in, and a storefront to buy in, where nobody pays.",
		Example: "  keytill demo\n  keytill demo --orders 500 --keys 400\n  keytill demo --serve --listen 127.0.0.1:9000",
		Args:    args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := config.Check(); err != nil {
				return usage("%v", err)
			}
			if stay {
				listener, err := c.listen()
				if err != nil {
					return err
				}
				defer listener.Close()
				config.Stay = listener
			}
			return c.runDemo(cmd.Context(), config)
		},
	}
	cmd.Flags().IntVar(&config.Orders, "orders", demo.DefaultOrders, "how many buyers come at once, up to 10000")
	cmd.Flags().IntVar(&config.Keys, "keys", demo.DefaultKeys, "how many keys there are for them, up to 10000")
	cmd.Flags().BoolVar(&stay, "serve", false, "stay open afterwards, with the console, until Ctrl-C")
	return cmd
}

func (c *command) runDemo(ctx context.Context, config demo.Config) error {
	logger, err := c.demoLogger()
	if err != nil {
		return err
	}
	// With JSON on standard output, progress goes to whoever watches standard error.
	screen, watched := c.Stdout, true
	if c.settings.json {
		screen, watched = c.Stderr, isTerminal(c.Stderr)
	}
	terminal := isTerminal(screen) && c.Getenv("TERM") != "dumb"
	printer := &demo.Printer{W: screen, Live: terminal, Color: terminal && c.Getenv("NO_COLOR") == ""}
	config.Logger = logger
	if watched {
		printer.Head(config)
		config.Progress = printer.Progress
	}
	var printed error
	show := func(report demo.Report) {
		printer.Stop()
		printed = c.show(report, func(io.Writer) { printer.Report(report) })
	}
	config.Opened = show
	report, err := demo.Run(ctx, config)
	printer.Stop()
	switch {
	case errors.Is(err, context.Canceled):
		return errors.New("the demo was stopped; nothing is left running")
	case err != nil:
		return err
	}
	if config.Stay == nil {
		show(report)
	}
	if printed != nil {
		return printed
	}
	if !report.OK {
		return errReported
	}
	return nil
}

// demoLogger logs what a person should see beside the demo: warnings, unless the level was chosen.
func (c *command) demoLogger() (*slog.Logger, error) {
	if c.settings.logLevel == "info" {
		c.settings.logLevel = "warn"
	}
	return c.logger()
}
