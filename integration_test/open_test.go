package integration_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// The queue's scheduler does this every five seconds of real time.
	promoteJobs = `
UPDATE keytill.river_job SET state = 'available' WHERE state IN ('retryable', 'scheduled') AND scheduled_at <= $1`

	// The queue's rescuer does this every half minute of real time, for jobs whose process died. Those of the present
	// keytill are not its business: the clock may have jumped over them.
	rescueJobs = `
UPDATE keytill.river_job
   SET state = CASE WHEN attempt < max_attempts THEN 'available' ELSE 'discarded' END::keytill.river_job_state,
       finalized_at = CASE WHEN attempt < max_attempts THEN NULL ELSE $1::timestamptz END
 WHERE state = 'running' AND attempted_at < $2 AND attempted_at < $3`

	readOpenEvents = `
SELECT format('event %s of merchant %s (%s %s): try %s, next at %s; %s', event_id, merchant_id, type, object_id, attempts,
              next_try_at, note)
  FROM keytill.events WHERE state = 'pending' AND next_try_at <= $1
 ORDER BY received_at LIMIT 20`

	readDueJobs = `
SELECT format('job %s %s %s: %s, try %s, at %s; %s', id, kind, args, state, attempt, scheduled_at,
              left(errors[array_upper(errors, 1)] ->> 'error', 300))
  FROM keytill.river_job
 WHERE state IN ('available', 'retryable', 'scheduled') AND scheduled_at <= $1
 ORDER BY id LIMIT 20`

	readRunningJobs = `
SELECT format('job %s %s %s: %s, try %s, since %s', id, kind, args, state, attempt, attempted_at)
  FROM keytill.river_job
 WHERE state = 'running' AND attempted_at >= $1
 ORDER BY id LIMIT 20`

	// All that is not over, whether due or not.
	readSituation = `
SELECT format('event %s of merchant %s (%s %s): try %s, next at %s; %s', event_id, merchant_id, type, object_id, attempts,
              next_try_at, note)
  FROM (SELECT * FROM keytill.events WHERE state = 'pending' ORDER BY received_at LIMIT 20) AS events
UNION ALL
SELECT format('job %s %s %s: %s, try %s, at %s; %s', id, kind, args, state, attempt, scheduled_at,
              left(errors[array_upper(errors, 1)] ->> 'error', 300))
  FROM (SELECT * FROM keytill.river_job WHERE state <> 'completed' ORDER BY id LIMIT 20) AS jobs
UNION ALL
SELECT format('finding %s about %s: %s', kind, subject, detail)
  FROM (SELECT * FROM keytill.findings WHERE closed_at IS NULL ORDER BY finding_id LIMIT 20) AS findings`
)

// deadAfter is how long a job must have run before the queue takes its process for dead.
const deadAfter = 2 * time.Minute

// openKind is what counts as still to do.
type openKind int

const (
	openEvents openKind = 1 << iota
	dueJobs
	runningJobs

	everything = openEvents | dueJobs | runningJobs
	notRunning = dueJobs
)

func (s *scenario) promoteJobs(ctx context.Context) error {
	if _, err := s.db.Exec(ctx, promoteJobs, s.clock.now()); err != nil {
		return fmt.Errorf("let due jobs run: %w", err)
	}
	return nil
}

func (s *scenario) rescueJobs(ctx context.Context) error {
	now := s.clock.now()
	if _, err := s.db.Exec(ctx, rescueJobs, now, s.life.since, now.Add(-deadAfter)); err != nil {
		return fmt.Errorf("rescue the jobs of a killed keytill: %w", err)
	}
	return nil
}

// open lists what is still to do now. Events come first: who ends one has its deliveries' jobs inserted by then. Jobs that
// a killed keytill left running are nobody's.
func (s *scenario) open(ctx context.Context, of openKind) ([]string, error) {
	now := s.clock.now()
	var open []string
	for _, q := range []struct {
		kind  openKind
		query string
		arg   time.Time
	}{{openEvents, readOpenEvents, now}, {dueJobs, readDueJobs, now}, {runningJobs, readRunningJobs, s.life.since}} {
		if of&q.kind == 0 {
			continue
		}
		lines, err := s.lines(ctx, q.query, q.arg)
		if err != nil {
			return nil, fmt.Errorf("look for what is still to do: %w", err)
		}
		open = append(open, lines...)
	}
	return open, nil
}

func (s *scenario) lines(ctx context.Context, query string, args ...any) ([]string, error) {
	rows, err := s.db.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// situation tells who reads of a failure what else there is.
func (s *scenario) situation() string {
	lines, err := s.lines(s.ctx, readSituation)
	if err != nil {
		return fmt.Sprintf("(what is open cannot be read: %v)", err)
	}
	if len(lines) == 0 {
		return "(no event, job or finding is open)"
	}
	return "open at " + s.clock.now().UTC().Format(time.RFC3339) + ":\n\t" + strings.Join(lines, "\n\t")
}
