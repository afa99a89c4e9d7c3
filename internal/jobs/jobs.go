// Package jobs sets up the job queue, River, the way keytill uses it: in keytill's schema, quick to fetch, and with short
// timeouts, so that a job whose process died is soon another's.
package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"github.com/keytill/keytill/migrations"
)

const (
	fetchCooldown = 10 * time.Millisecond // the queue's own 100 ms would cap a process at some hundred jobs a second
	pollInterval  = 250 * time.Millisecond
	jobTimeout    = time.Minute
	rescueAfter   = 2 * time.Minute
	keepCompleted = time.Hour // what became of an event, order or delivery is in their own rows
)

// NewInserter makes a client that inserts jobs and works none.
func NewInserter(pool *pgxpool.Pool, now func() time.Time, logger *slog.Logger) (*river.Client[pgx.Tx], error) {
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Schema:              migrations.Schema,
		FetchCooldown:       fetchCooldown,
		Logger:              quiet(logger),
		SkipUnknownJobCheck: true,
		Test:                river.TestConfig{Time: clock(now)},
	})
	if err != nil {
		return nil, fmt.Errorf("set up the job queue: %w", err)
	}
	return client, nil
}

// RunnerConfig is what a runner works.
type RunnerConfig struct {
	Workers  *river.Workers
	Periodic []*river.PeriodicJob
	Queues   map[string]river.QueueConfig

	Middleware []rivertype.Middleware // around each job

	// PollOnly looks for jobs and for the leader's end now and then, and does not LISTEN: behind a pooler in transaction
	// mode no notification arrives.
	PollOnly bool

	Now    func() time.Time
	Logger *slog.Logger
}

// NewRunner makes a client that works jobs.
func NewRunner(pool *pgxpool.Pool, c RunnerConfig) (*river.Client[pgx.Tx], error) {
	client, err := river.NewClient(newDriver(pool), &river.Config{
		Schema:               migrations.Schema,
		Queues:               c.Queues,
		Workers:              c.Workers,
		PeriodicJobs:         c.Periodic,
		Middleware:           c.Middleware,
		FetchCooldown:        fetchCooldown,
		FetchPollInterval:    pollInterval,
		JobTimeout:           jobTimeout,
		RescueStuckJobsAfter: rescueAfter,
		PollOnly:             c.PollOnly,

		ReindexerIndexNames: slices.DeleteFunc(river.ReindexerIndexNamesDefault(), func(name string) bool {
			return slices.Contains(migrations.UnusedIndexes(), name)
		}),
		CompletedJobRetentionPeriod: keepCompleted,
		Logger:                      quiet(c.Logger),
		Test:                        river.TestConfig{Time: clock(c.Now)},
	})
	if err != nil {
		return nil, fmt.Errorf("set up the job queue: %w", err)
	}
	return client, nil
}

// Run works jobs until ctx ends. Running jobs then have grace to end; after that their contexts end too.
func Run(ctx context.Context, client *river.Client[pgx.Tx], grace time.Duration) error {
	if err := start(ctx, client); err != nil {
		return fmt.Errorf("start the job queue: %w", err)
	}
	<-ctx.Done()
	soft, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if err := client.Stop(soft); err == nil {
		return nil
	}
	hard, cancel := context.WithTimeout(context.WithoutCancel(ctx), hardStop)
	defer cancel()
	if err := client.StopAndCancel(hard); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("stop the job queue: %w", err)
	}
	return nil
}

const (
	startTries = 5
	startPause = 200 * time.Millisecond // after the first try that failed; after each further one twice that
)

// start starts the queue, again if a connection breaks just then.
func start(ctx context.Context, client *river.Client[pgx.Tx]) error {
	for try, pause := 1, startPause; ; try, pause = try+1, 2*pause {
		// The client's own context outlives ctx, so that jobs end in peace.
		err := client.Start(context.WithoutCancel(ctx))
		if err == nil || try == startTries {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil // whoever ran it wants it no more
		case <-timer.C:
		}
	}
}

// hardStop is how long jobs may take to notice that their context has ended.
const hardStop = 2 * time.Second

// quiet keeps the queue's chatter out of the log: its news is at info, its troubles at warn.
func quiet(logger *slog.Logger) *slog.Logger {
	return slog.New(atLeastWarn{logger.Handler()})
}

type atLeastWarn struct{ slog.Handler }

// Enabled lets warnings and errors through.
func (h atLeastWarn) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && h.Handler.Enabled(ctx, level)
}

// WithAttrs keeps the wrapping.
func (h atLeastWarn) WithAttrs(attrs []slog.Attr) slog.Handler {
	return atLeastWarn{h.Handler.WithAttrs(attrs)}
}

// WithGroup keeps the wrapping.
func (h atLeastWarn) WithGroup(name string) slog.Handler {
	return atLeastWarn{h.Handler.WithGroup(name)}
}

// clock gives the queue the time that all of keytill goes by.
func clock(now func() time.Time) rivertype.TimeGenerator { return generator(now) }

type generator func() time.Time

// Now is the time.
func (g generator) Now() time.Time { return g() }

// NowOrNil is the time, also for what the database would else put in.
func (g generator) NowOrNil() *time.Time {
	now := g()
	return &now
}
