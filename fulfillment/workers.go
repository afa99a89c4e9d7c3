package fulfillment

import (
	"context"
	"errors"
	"time"

	"github.com/riverqueue/river"

	"github.com/keytill/keytill/inventory"
)

// jobTimeout bounds one try of a job. A job that was running when its process died is rescued only once it is surely
// over, so this stays short.
const jobTimeout = time.Minute

// AddWorkers makes the job queue work keytill's jobs.
func (s *Service) AddWorkers(workers *river.Workers, senders map[Channel]Sender) {
	river.AddWorker(workers, &worker[SettleJob]{service: s, work: func(ctx context.Context, job SettleJob) error {
		if job.Event != "" {
			return s.SettleEvent(ctx, job.Merchant, job.Event)
		}
		_, err := s.settle(ctx, cause{merchant: job.Merchant, ref: job.Ref, actor: actorSettle, retry: job.Retry})
		if errors.Is(err, ErrNotFound) || errors.Is(err, ErrNotOurs) {
			return nil
		}
		return err
	}})
	river.AddWorker(workers, &spreader[SpreadJob]{worker[SpreadJob]{service: s}, func(job SpreadJob) []river.InsertManyParams {
		return settleJobs(job.Merchant, job.Events)
	}})
	river.AddWorker(workers, &spreader[SpreadDeliveriesJob]{worker[SpreadDeliveriesJob]{service: s}, func(job SpreadDeliveriesJob) []river.InsertManyParams {
		return deliverJobs(job.Deliveries)
	}})
	river.AddWorker(workers, &worker[ServeJob]{service: s, work: func(ctx context.Context, job ServeJob) error {
		_, err := s.ServeWaiting(ctx, job.Merchant, job.Pool)
		return err
	}})
	river.AddWorker(workers, &worker[StockLevelJob]{service: s, work: func(ctx context.Context, job StockLevelJob) error {
		return s.TellStockLevel(ctx, job.Merchant, job.Pool)
	}})
	river.AddWorker(workers, &worker[MappedJob]{service: s, work: func(ctx context.Context, job MappedJob) error {
		return s.SettleMapped(ctx, job.Merchant, job.Item)
	}})
	river.AddWorker(workers, &worker[DeliverJob]{service: s, work: func(ctx context.Context, job DeliverJob) error {
		err := s.Deliver(ctx, senders, job)
		var later *Later
		if errors.As(err, &later) {
			return river.JobSnooze(later.After)
		}
		return err
	}})
	river.AddWorker(workers, &worker[PickUpJob]{service: s, work: func(ctx context.Context, _ PickUpJob) error {
		n, err := s.PickUp(ctx)
		if n > 0 {
			s.log.WarnContext(ctx, "gave new jobs to events that had lost theirs", "events", n)
		}
		return errors.Join(err, s.TellFindings(ctx))
	}})
	river.AddWorker(workers, &worker[TidyShelfJob]{service: s, work: func(ctx context.Context, _ TidyShelfJob) error {
		_, err := s.TidyShelf(ctx)
		return err
	}})
	river.AddWorker(workers, &worker[FoldJob]{service: s, work: func(ctx context.Context, _ FoldJob) error {
		return errors.Join(inventory.FoldAll(ctx, s.db), s.FoldFigures(ctx))
	}})
}

// PeriodicJobs are what the elected process does again and again.
func PeriodicJobs() []*river.PeriodicJob {
	every := func(interval time.Duration, args river.JobArgs) *river.PeriodicJob {
		return river.NewPeriodicJob(river.PeriodicInterval(interval),
			func() (river.JobArgs, *river.InsertOpts) { return args, nil },
			&river.PeriodicJobOpts{RunOnStart: true})
	}
	return []*river.PeriodicJob{every(pickUpEvery, PickUpJob{}), every(tidyEvery, TidyShelfJob{}),
		every(inventory.FoldEvery, FoldJob{})}
}

const (
	pickUpEvery = time.Minute
	tidyEvery   = time.Minute
)

// worker works one kind of job.
type worker[T river.JobArgs] struct {
	river.WorkerDefaults[T]
	service *Service
	work    func(ctx context.Context, job T) error
}

// Work runs one try.
func (w *worker[T]) Work(ctx context.Context, job *river.Job[T]) error { return w.work(ctx, job.Args) }

// Timeout bounds one try.
func (w *worker[T]) Timeout(*river.Job[T]) time.Duration { return jobTimeout }

// NextRetry says when a failed try is followed by the next.
func (w *worker[T]) NextRetry(job *river.Job[T]) time.Time {
	return w.service.now().Add(RetryDelay(job.Attempt))
}
