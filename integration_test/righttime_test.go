package integration_test

import (
	"testing"
	"time"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/inventory"
)

// A clock ran hours ahead and was set back. What it touched is due at once; what is meant for later stays so.
func TestWhatAWrongClockPutOffIsDueAndNothingElse(t *testing.T) {
	t.Parallel()
	w := newTill(t, nil)
	ctx := t.Context()
	now := time.Now().Truncate(time.Second)
	ahead := now.Add(5 * time.Hour)
	job := func(kind, state string, created, scheduled time.Time, attempted *time.Time) {
		_, err := w.db.Exec(ctx, `
INSERT INTO keytill.river_job (kind, state, args, max_attempts, created_at, scheduled_at, attempted_at)
VALUES ($1, $2::keytill.river_job_state, '{}', 25, $3, $4, $5)`, kind, state, created, scheduled, attempted)
		w.must(err)
	}
	job("made by a wrong clock", "available", ahead, ahead, nil)
	job("scheduled by a wrong clock", "scheduled", ahead, ahead.Add(time.Minute), nil)
	job("tried by a wrong clock", "retryable", now, ahead.Add(time.Minute), &ahead)
	job("meant for its day", "scheduled", now, ahead, nil)
	job("tried a moment ago", "retryable", now, ahead, &now)
	event := func(id string, next time.Time) {
		_, err := w.db.Exec(ctx, `
INSERT INTO keytill.events (merchant_id, event_id, type, object_id, payment, livemode, received_at, next_try_at)
VALUES ($1, $2, 'charge.refunded', 'ch_1', 'pi_1', false, $3, $4)`, inventory.DefaultMerchant, id, now, next)
		w.must(err)
	}
	event("evt_far", ahead)
	event("evt_soon", now.Add(fulfillment.RetryDelay(20)))
	lead := func(until time.Time) {
		_, err := w.db.Exec(ctx, `INSERT INTO keytill.river_leader (name, leader_id, elected_at, expires_at) VALUES ('default', 'x', $1, $2)`,
			until.Add(-time.Second), until)
		w.must(err)
	}
	leaders := func() (n int) {
		w.must(w.db.QueryRow(ctx, `SELECT count(*) FROM keytill.river_leader`).Scan(&n))
		return n
	}
	lead(ahead)
	w.must(w.service.RightTime(ctx))
	if leaders() != 0 {
		t.Error("a leadership that lasts for hours goes on")
	}
	lead(now.Add(15 * time.Second))
	w.must(w.service.RightTime(ctx))
	if leaders() != 1 {
		t.Error("a leader in order lost its term")
	}
	due := func(query string) map[string]bool {
		rows, err := w.db.Query(ctx, query, now.Add(10*time.Minute))
		w.must(err)
		defer rows.Close()
		found := make(map[string]bool)
		for rows.Next() {
			var name string
			var due bool
			w.must(rows.Scan(&name, &due))
			found[name] = due
		}
		return found
	}
	for name, want := range map[string]bool{"made by a wrong clock": true, "scheduled by a wrong clock": true, "tried by a wrong clock": true,
		"meant for its day": false, "tried a moment ago": false} {
		if got := due(`SELECT kind, scheduled_at <= $1 FROM keytill.river_job`)[name]; got != want {
			t.Errorf("the job %s is due: %v", name, got)
		}
	}
	var soon time.Time
	w.must(w.db.QueryRow(ctx, `SELECT next_try_at FROM keytill.events WHERE event_id = 'evt_soon'`).Scan(&soon))
	if !soon.Equal(now.Add(fulfillment.RetryDelay(20))) {
		t.Errorf("an event that is tried again within half an hour is tried %v later", soon.Sub(now))
	}
	if !due(`SELECT event_id, next_try_at <= $1 FROM keytill.events`)["evt_far"] {
		t.Error("an event waits for hours")
	}
}
