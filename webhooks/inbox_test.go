package webhooks

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/keytill/keytill/internal/jobs"
	"github.com/keytill/keytill/internal/pgtest"
)

// Events that arrive while a commit is on its way are recorded together. None is answered before it is on the disk, and
// one that the database refuses takes no other with it.
func TestOneEventThatCannotBeRecordedTakesNoOtherWithIt(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	inserter, err := jobs.NewInserter(db, time.Now, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	store, err := NewStore(StoreConfig{DB: db, Jobs: inserter})
	if err != nil {
		t.Fatal(err)
	}
	holder, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Rollback(t.Context()) }()
	if _, err := holder.Exec(t.Context(), `LOCK TABLE keytill.events`); err != nil {
		t.Fatal(err)
	}

	const events, bad = 30, 17
	type answer struct {
		n   int
		err error
	}
	answers := make(chan answer, events)
	for n := range events {
		event := Event{ID: fmt.Sprintf("evt_%02d", n), Type: "charge.refunded", ObjectID: "ch_1", Payment: "pi_1"}
		if n == bad {
			event.APIVersion = "a\x00b" // which no decoded event has
		}
		go func() { answers <- answer{n, store.Record(t.Context(), event)} }()
	}
	for blocked := 0; blocked == 0; {
		time.Sleep(10 * time.Millisecond)
		if err := db.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE NOT granted`).Scan(&blocked); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(50 * time.Millisecond)
	select {
	case a := <-answers:
		t.Fatalf("event %d was answered before it was recorded: %v", a.n, a.err)
	default:
	}
	if err := holder.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range events {
		if a := <-answers; (a.err != nil) != (a.n == bad) {
			t.Errorf("event %d: %v", a.n, a.err)
		}
	}
	var recorded, settles int
	err = db.QueryRow(t.Context(), `
SELECT count(*), (SELECT coalesce(sum(CASE kind WHEN 'settle' THEN 1 ELSE jsonb_array_length(args->'event_ids') END), 0)
                    FROM keytill.river_job WHERE kind IN ('settle', 'spread')) FROM keytill.events`).Scan(&recorded, &settles)
	if err != nil || recorded != events-1 || settles != events-1 {
		t.Errorf("%d events and %d settles, want %d of each; %v", recorded, settles, events-1, err)
	}
}
