package adapter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/riverqueue/river"

	"github.com/keytill/keytill/adapter/stripeapi"
	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/reconcile"
)

// queueSweep keeps sweeps, which can be long, out of the way of all other work.
const queueSweep = "sweep"

// sweepTimeout ends a sweep that is not done; the next goes on where it stopped.
const sweepTimeout = time.Hour

// NewSweeper makes what sweeps, for a Shop and for the command line. Of the configuration it uses Pool, Reconcile, Now and
// Logger.
func NewSweeper(c Config, stripe *stripeapi.Client, service *fulfillment.Service) (*reconcile.Sweeper, error) {
	return reconcile.New(reconcile.Config{DB: c.Pool, Stripe: stripe, Settler: service, Grace: c.Reconcile.Grace,
		Window: c.Reconcile.Window, SilenceAfter: c.Reconcile.SilenceAfter, Reported: c.Reconcile.Reported, Now: c.Now,
		Logger: c.Logger})
}

// Sweep sweeps a merchant now; see reconcile.Sweeper.Sweep.
func (s *Shop) Sweep(ctx context.Context, merchant string, o reconcile.Options) (reconcile.Report, error) {
	return s.sweeper.Sweep(ctx, merchant, o)
}

// SweepJob sweeps one merchant, or leaves a job for each where it names none.
type SweepJob struct {
	Merchant string        `json:"merchant_id,omitempty"`
	Since    time.Duration `json:"since,omitempty"` // how far to look back; zero: as reconcile.Options has it
}

// Kind names the job in the queue's tables.
func (SweepJob) Kind() string { return "sweep" }

// InsertOpts makes a failed sweep wait for the next one.
func (SweepJob) InsertOpts() river.InsertOpts {
	return river.InsertOpts{Queue: queueSweep, MaxAttempts: 1}
}

type sweepWorker struct {
	river.WorkerDefaults[SweepJob]
	shop *Shop
}

// Timeout bounds one sweep.
func (w *sweepWorker) Timeout(*river.Job[SweepJob]) time.Duration { return sweepTimeout }

// Work sweeps.
func (w *sweepWorker) Work(ctx context.Context, job *river.Job[SweepJob]) error {
	if job.Args.Merchant == "" {
		return w.shop.leaveSweeps(ctx)
	}
	report, err := w.shop.sweeper.Sweep(ctx, job.Args.Merchant, reconcile.Options{Since: job.Args.Since})
	log := w.shop.config.Logger
	switch {
	case errors.Is(err, reconcile.ErrBusy):
		log.DebugContext(ctx, "no sweep: the last one is still under way", "merchant", job.Args.Merchant)
		return nil
	case err != nil:
		return err
	case report.Repaired > 0 || report.Failed > 0:
		log.InfoContext(ctx, "swept", "merchant", report.Merchant, "walked", report.Walked, "differing", report.Differing,
			"repaired", report.Repaired, "failed", report.Failed, "late_max_seconds", report.Late.MaxSeconds)
	default:
		log.DebugContext(ctx, "swept: nothing differs", "merchant", report.Merchant, "walked", report.Walked)
	}
	return nil
}

// leaveSweeps leaves a sweep for each merchant.
func (s *Shop) leaveSweeps(ctx context.Context) error {
	merchants, err := s.sweeper.Merchants(ctx)
	if err != nil {
		return err
	}
	jobs := make([]river.InsertManyParams, len(merchants))
	for i, merchant := range merchants {
		jobs[i].Args = SweepJob{Merchant: merchant}
	}
	tx, err := s.config.Pool.Begin(ctx)
	if err != nil {
		return fmt.Errorf("leave a sweep for each merchant: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if _, err := s.jobs.InsertManyTx(ctx, tx, jobs); err != nil {
		return fmt.Errorf("leave a sweep for each merchant: %w", err)
	}
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("leave a sweep for each merchant: %w", err)
	}
	return nil
}

func (s *Shop) addSweeps(workers *river.Workers) { river.AddWorker(workers, &sweepWorker{shop: s}) }

// periodic is what the elected process does again and again.
func (s *Shop) periodic() []*river.PeriodicJob {
	periodic := fulfillment.PeriodicJobs()
	if every := s.config.Reconcile.Every; every > 0 {
		periodic = append(periodic, river.NewPeriodicJob(river.PeriodicInterval(every),
			func() (river.JobArgs, *river.InsertOpts) { return SweepJob{}, nil },
			&river.PeriodicJobOpts{RunOnStart: true}))
	}
	return periodic
}
