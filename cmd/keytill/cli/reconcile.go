package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/keytill/keytill/adapter"
	"github.com/keytill/keytill/reconcile"
)

func (c *command) reconcile() *cobra.Command {
	var (
		since  string
		dryRun bool
	)
	cmd := &cobra.Command{
		Use:   "reconcile",
		Short: "Compare Stripe with the orders and settle what differs",
		Long: "Walks Stripe's sessions, payments, refunds, disputes and events, compares them with the orders, and settles the\n" +
			"payments that differ: paid and without a key, or refunded and with one. The daemon does the same every 15 minutes.\n" +
			"Where it is stopped, the next one goes on. It sweeps every merchant, or the one that --merchant names.\n\n" +
			"Exit 1 if something could not be settled; it is tried again by the next sweep.",
		Example: "  keytill reconcile --dry-run\n  keytill reconcile --since 72h",
		Args:    args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o := reconcile.Options{DryRun: dryRun}
			if since != "" {
				var err error
				if o.Since, err = longDuration(since); err != nil || o.Since <= 0 {
					return usage("--since %s: it is how far to look back, such as 72h or 30d", since)
				}
			}
			one := cmd.Flags().Changed("merchant")
			return c.with(cmd.Context(), func(ctx context.Context, op *operator) error { return c.runReconcile(ctx, op, o, one) })
		},
	}
	cmd.Flags().StringVar(&since, "since", "", "look back so far, such as `72h` or 30d; else to where the last sweep ended, and a week more")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "tell what would be settled and change nothing")
	return cmd
}

// longDuration reads Go's durations, and days.
func longDuration(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseFloat(days, 64)
		return time.Duration(n * 24 * float64(time.Hour)), err
	}
	return time.ParseDuration(text)
}

// sweepSettings are those of sweeps, as flags and environment say them.
func (c *command) sweepSettings() (adapter.Reconcile, error) {
	var (
		r   adapter.Reconcile
		err error
	)
	switch every := c.settings.sweepEvery; every {
	case "off", "0":
		r.Every = -1
	default:
		if r.Every, err = longDuration(every); err != nil || r.Every < time.Second {
			return r, usage("KEYTILL_RECONCILE_EVERY is %q: it is a time such as 15m, or off", every)
		}
	}
	if r.Grace, err = longDuration(c.settings.sweepGrace); err != nil || r.Grace <= 0 {
		return r, usage("KEYTILL_RECONCILE_GRACE is %q: it is a time such as 5m", c.settings.sweepGrace)
	}
	return r, nil
}

// sweeps is what the command prints: the sums, and the report of each merchant.
type sweeps struct {
	reconcile.Tally
	DryRun bool               `json:"dry_run"`
	Sweeps []reconcile.Report `json:"sweeps"`
}

func (c *command) runReconcile(ctx context.Context, op *operator, o reconcile.Options, one bool) error {
	if op.stripe == nil {
		return errors.New("no Stripe API key: set KEYTILL_STRIPE_API_KEY to a secret (sk_…) or restricted (rk_…) key from the Stripe dashboard, Developers → API keys")
	}
	settings, err := c.sweepSettings()
	if err != nil {
		return err
	}
	logger, err := c.logger()
	if err != nil {
		return err
	}
	sweeper, err := adapter.NewSweeper(adapter.Config{Pool: op.pool, Reconcile: settings, Now: c.Now, Logger: logger}, op.stripe, op.service)
	if err != nil {
		return err
	}
	merchants := []string{op.merchant}
	if !one {
		if merchants, err = sweeper.Merchants(ctx); err != nil {
			return err
		}
	}
	result := sweeps{DryRun: o.DryRun, Sweeps: []reconcile.Report{}}
	var failed []error
	for _, merchant := range merchants {
		bar := newSweepBar(c.Stderr, isTerminal(c.Stderr) && !c.settings.json)
		o.Progress = bar.tell
		report, err := sweeper.Sweep(ctx, merchant, o)
		bar.end()
		if err != nil {
			failed = append(failed, err)
		}
		if err == nil || report.EndedAt.After(report.StartedAt) || report.Walked > 0 {
			result.add(report)
		}
		if ctx.Err() != nil {
			break
		}
	}
	err = c.show(result, func(w io.Writer) { result.print(w) })
	if err = errors.Join(append([]error{err}, failed...)...); err != nil {
		return err
	}
	if result.Failed > 0 {
		return fmt.Errorf("%s could not be settled; the next sweep tries again", plural(result.Failed, "difference"))
	}
	return nil
}

func (s *sweeps) add(r reconcile.Report) {
	s.Sweeps = append(s.Sweeps, r)
	s.Walked += r.Walked
	s.Differing += r.Differing
	s.Repaired += r.Repaired
	s.Unchanged += r.Unchanged
	s.Ignored += r.Ignored
	s.Known += r.Known
	s.Failed += r.Failed
}

func (s *sweeps) print(w io.Writer) {
	for i, r := range s.Sweeps {
		if i > 0 {
			fmt.Fprintln(w)
		}
		printSweep(w, r, len(s.Sweeps) > 1)
	}
}

func printSweep(w io.Writer, r reconcile.Report, named bool) {
	if named {
		fmt.Fprintf(w, "Merchant %s\n", r.Merchant)
	}
	table(w, "KIND\tWALKED\tDIFFERING\tREPAIRED\tUNCHANGED\tIGNORED\tFAILED", func(row func(string, ...any)) {
		line := func(name string, t reconcile.Tally) {
			row("%s\t%d\t%d\t%d\t%d\t%d\t%d", name, t.Walked, t.Differing, t.Repaired, t.Unchanged, t.Ignored, t.Failed)
		}
		for _, kind := range reconcile.Kinds {
			if t := r.ByKind[kind]; t != nil {
				line(strings.ReplaceAll(string(kind), "_", " "), *t)
			}
		}
		line("all", r.Tally)
	})
	if r.Repaired > 0 {
		fmt.Fprintf(w, "Repaired %s after it could be known, at the latest (half of them within %s).\n", seconds(r.Late.MaxSeconds),
			seconds(r.Late.MedianSeconds))
	}
	if r.DeliveredUnpaid > 0 {
		fmt.Fprintf(w, "Delivered but unpaid: %d.\n", r.DeliveredUnpaid)
	}
	if r.PickedUp > 0 {
		fmt.Fprintf(w, "%s that no job worked got a new one.\n", plural(r.PickedUp, "event"))
	}
	for _, p := range r.Payments {
		switch {
		case p.Error != "":
			fmt.Fprintf(w, "FAILED %s %s: %s\n", p.Kind, dash(p.Ref), p.Error)
		default:
			fmt.Fprintf(w, "would settle %s: %s (%s)\n", p.Ref, strings.ReplaceAll(string(p.Reason), "_", " "), p.Object)
		}
	}
	if r.Silence != "" {
		fmt.Fprintf(w, "SILENCE: %s\n", r.Silence)
	}
	if r.DryRun {
		fmt.Fprintln(w, "This was a dry run: nothing has changed.")
	}
}

func seconds(n int64) string { return (time.Duration(n) * time.Second).String() }
