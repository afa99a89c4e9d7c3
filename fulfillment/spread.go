package fulfillment

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/keytill/keytill/internal/pg"
)

// spreadAtOnce is how many deliveries get their jobs from one job. Fewer than that get theirs at once.
const spreadAtOnce = 500

// spreadLater puts jobs of deliveries, all to be sent from the same time on, into few jobs that insert them.
func spreadLater(merchant string, jobs []river.InsertManyParams) []river.InsertManyParams {
	if len(jobs) < spreadAtOnce {
		return jobs
	}
	var later []river.InsertManyParams
	for some := range slices.Chunk(jobs, spreadAtOnce) {
		spread := SpreadDeliveriesJob{Merchant: merchant, Deliveries: make([]DeliverJob, len(some))}
		for i := range some {
			spread.Deliveries[i] = some[i].Args.(DeliverJob)
		}
		later = append(later, river.InsertManyParams{Args: spread, InsertOpts: &river.InsertOpts{ScheduledAt: some[0].InsertOpts.ScheduledAt}})
	}
	return later
}

// A spreader works a job that gives others their jobs. It ends with the transaction that inserts them, so that none of them
// is there twice.
type spreader[T river.JobArgs] struct {
	worker[T]
	jobs func(T) []river.InsertManyParams
}

// Work inserts the jobs.
func (w *spreader[T]) Work(ctx context.Context, job *river.Job[T]) error {
	return pg.InTx(ctx, w.service.db, func(tx pgx.Tx) error {
		if err := insertJobs(ctx, w.service.jobs, tx, w.jobs(job.Args)); err != nil {
			return err
		}
		_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
		return err
	})
}

func settleJobs(merchant string, events []string) []river.InsertManyParams {
	jobs := make([]river.InsertManyParams, len(events))
	for i, id := range events {
		jobs[i].Args = SettleJob{Merchant: merchant, Event: id}
	}
	return jobs
}

func deliverJobs(deliveries []DeliverJob) []river.InsertManyParams {
	jobs := make([]river.InsertManyParams, len(deliveries))
	for i, job := range deliveries {
		jobs[i] = river.InsertManyParams{Args: job, InsertOpts: &river.InsertOpts{Queue: queueOf(job.Channel), MaxAttempts: deliverAttempts}}
	}
	return jobs
}
