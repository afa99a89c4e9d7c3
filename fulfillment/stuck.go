package fulfillment

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Stuck is work that has not gone on for longer than it should, of all merchants.
type Stuck struct {
	Events     StuckWork   // recorded and not settled
	Unworked   StuckWork   // of those, the ones whose next try is overdue: no process works jobs
	Deliveries StuckWork   // due and not delivered
	Waiting    StuckWork   // paid units that wait for stock
	Findings   StuckWork   // open
	Discarded  []StuckWork // jobs that were given up, by kind; what they were for is picked up again
}

// StuckWork says how much there is and since when.
type StuckWork struct {
	Count int64
	Since time.Time // of the oldest
	What  string    // of the oldest: its name and what it failed with, without any key or address
}

const (
	// Index: events_due.
	stuckEvents = `
SELECT count(*), coalesce(min(received_at), 'epoch'),
       coalesce((array_agg(event_id || CASE WHEN note = '' THEN '' ELSE ': ' || note END ORDER BY received_at))[1], '')
  FROM keytill.events WHERE state = 'pending' AND received_at < $1`

	// Index: events_due.
	unworkedEvents = `
SELECT count(*), coalesce(min(next_try_at), 'epoch'), coalesce((array_agg(event_id ORDER BY next_try_at))[1], '')
  FROM keytill.events WHERE state = 'pending' AND next_try_at < $1`

	// Index: deliveries_open.
	stuckDeliveries = `
SELECT count(*), coalesce(min(send_after), 'epoch'),
       coalesce((array_agg(channel || ', delivery ' || delivery_id || CASE WHEN last_error = '' THEN '' ELSE ': ' || last_error END
                           ORDER BY send_after))[1], '')
  FROM keytill.deliveries WHERE state = 'pending' AND send_after < $1`

	// Index: fulfilments_waiting.
	stuckWaiting = `
SELECT count(*), coalesce(min(coalesce(f.paid_at, f.changed_at)), 'epoch'),
       coalesce((array_agg(f.order_id || ', ' || p.sku ORDER BY f.paid_at))[1], '')
  FROM keytill.fulfilments f JOIN keytill.pools p USING (merchant_id, pool_id)
 WHERE f.state = 'waiting' AND coalesce(f.paid_at, f.changed_at) < $1`

	// Index: findings_listed.
	stuckFindings = `
SELECT count(*), coalesce(min(opened_at), 'epoch'), coalesce((array_agg(kind || ' ' || subject ORDER BY opened_at))[1], '')
  FROM keytill.findings WHERE closed_at IS NULL AND opened_at < $1`

	// Index: river_job_state_and_finalized_at_index.
	discardedJobs = `
SELECT count(*), coalesce(min(finalized_at), 'epoch'), kind
  FROM keytill.river_job WHERE state = 'discarded' AND finalized_at < $1 GROUP BY kind ORDER BY kind`
)

// LoadStuck looks for work that has been stuck for a while at a time.
func LoadStuck(ctx context.Context, db Reader, now time.Time) (Stuck, error) {
	var s Stuck
	batch := &pgx.Batch{}
	for _, q := range []struct {
		query string
		into  *StuckWork
		after time.Duration
	}{
		{stuckEvents, &s.Events, 15 * time.Minute},
		{unworkedEvents, &s.Unworked, 5 * time.Minute},
		{stuckDeliveries, &s.Deliveries, time.Hour},
		{stuckWaiting, &s.Waiting, 0},
		{stuckFindings, &s.Findings, 0},
	} {
		batch.Queue(q.query, now.Add(-q.after)).QueryRow(func(row pgx.Row) error {
			return row.Scan(&q.into.Count, &q.into.Since, &q.into.What)
		})
	}
	batch.Queue(discardedJobs, now).Query(func(rows pgx.Rows) (err error) {
		s.Discarded, err = pgx.CollectRows(rows, pgx.RowToStructByPos[StuckWork])
		return err
	})
	if err := db.SendBatch(ctx, batch).Close(); err != nil {
		return Stuck{}, fmt.Errorf("look for stuck work: %w", err)
	}
	return s, nil
}
