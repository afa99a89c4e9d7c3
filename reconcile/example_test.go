package reconcile_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/keytill/keytill/reconcile"
)

// A sweep needs a database; see adapter.Shop.Sweep and `keytill reconcile` for its two users.
func ExampleSweeper_Sweep() {
	nightly := func(ctx context.Context, sweeper *reconcile.Sweeper, merchant string) error {
		report, err := sweeper.Sweep(ctx, merchant, reconcile.Options{Since: 72 * time.Hour})
		if err != nil {
			return err // ErrBusy: the schedule's sweep is under way
		}
		for _, p := range report.Payments {
			fmt.Println("could not be settled:", p.Ref, p.Error)
		}
		return nil
	}
	_ = nightly
}

func ExampleReport() {
	var report reconcile.Report
	report.Walked, report.Differing, report.Repaired, report.Failed = 260, 3, 2, 1
	fmt.Println(report.OK())
	// Output: false
}

// The context tells a client of Stripe's what it is asked for.
func TestCallsOfASweepAreMarked(t *testing.T) {
	t.Parallel()
	if reconcile.Sweeping(t.Context()) {
		t.Error("an ordinary call is marked")
	}
	if !reconcile.Sweeping(reconcile.AsSweep(t.Context())) {
		t.Error("a sweep's call is not")
	}
}
