package fulfillment

import (
	"context"
	"fmt"
	"time"
)

// A clock that ran far ahead and was set back leaves work behind that is due only when that time comes: hours or days after
// a machine's start without a battery, say. What such a clock has touched shows it, and is due now.
const (
	// The most that clocks of two machines that are in order may differ, by far.
	clocksDiffer = 2 * time.Minute

	// A job that is available is due, by the queue's own rules; one that was made or tried in the future was by a wrong
	// clock. Index:
	// river_job_prioritized_fetching_index; few jobs are not completed.
	dueByWrongClock = `
UPDATE keytill.river_job SET scheduled_at = $1
 WHERE state IN ('available', 'retryable', 'scheduled') AND scheduled_at > $2
   AND (state = 'available' OR created_at > $2 OR attempted_at > $2)`

	// A leader's term is of seconds, and renewed. Index: river_leader_pkey; it has one row.
	leaderByWrongClock = `DELETE FROM keytill.river_leader WHERE expires_at > $1`

	// No pause between the tries of an event is longer than half an hour. Index: events_due.
	eventsByWrongClock = `
UPDATE keytill.events SET next_try_at = $2
 WHERE merchant_id = $1 AND state = 'pending' AND next_try_at > $3`
)

// RightTime makes due now what a wrong clock has put off, and ends a leadership of the queue that would last for hours. It
// is done whenever the queue starts, and with every PickUp.
func (s *Service) RightTime(ctx context.Context) error {
	now := s.now()
	if _, err := s.db.Exec(ctx, leaderByWrongClock, now.Add(clocksDiffer)); err != nil {
		return fmt.Errorf("look for a leader by a wrong clock: %w", err)
	}
	if _, err := s.db.Exec(ctx, dueByWrongClock, now, now.Add(clocksDiffer)); err != nil {
		return fmt.Errorf("look for jobs that a wrong clock has put off: %w", err)
	}
	merchants, err := s.merchants(ctx)
	if err != nil {
		return err
	}
	for _, merchant := range merchants {
		if _, err := s.db.Exec(ctx, eventsByWrongClock, merchant, now, now.Add(clocksDiffer+RetryDelay(20))); err != nil {
			return fmt.Errorf("look for events that a wrong clock has put off: %w", err)
		}
	}
	return nil
}
