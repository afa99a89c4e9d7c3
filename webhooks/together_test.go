package webhooks

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keytill/keytill/internal/jobs"
	"github.com/keytill/keytill/internal/pgtest"
)

// Events that arrive while others are on their way to the disk go there in one transaction, with one statement for all of
// them and one for their job.
func TestEventsThatComeTogetherCostTheStatementsOfOne(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig(pgtest.NewURL(t))
	if err != nil {
		t.Fatal(err)
	}
	inserts := &inserted{}
	config.ConnConfig.Tracer = inserts
	db, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
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
	if _, err := holder.Exec(t.Context(), `LOCK TABLE keytill.events`); err != nil {
		t.Fatal(err)
	}

	const events = maxTogether
	var all sync.WaitGroup
	record := func(n int) {
		all.Go(func() {
			if err := store.Record(t.Context(), Event{ID: fmt.Sprintf("evt_%d", n), Type: "charge.updated", ObjectID: "ch_1", Payment: "pi_1"}); err != nil {
				t.Error(err)
			}
		})
	}
	until := func(reached func() bool) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); !reached(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the events do not wait for the one that is on its way")
			}
		}
	}
	for n := range maxCommitting { // each alone on its way, and held up
		record(n)
		until(func() bool { return inserts.events.Load() == int64(n+1) })
	}
	for n := range events {
		record(maxCommitting + n)
	}
	until(func() bool {
		store.mu.Lock()
		defer store.mu.Unlock()
		return len(store.waiting) == events
	})
	if err := holder.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	if events, jobs := inserts.events.Load(), inserts.jobs.Load(); events != maxCommitting+1 || jobs != maxCommitting+1 {
		t.Errorf("%d statements insert events and %d jobs, want %d of each", events, jobs, maxCommitting+1)
	}
	var recorded int
	if err := db.QueryRow(t.Context(), `SELECT count(*) FROM keytill.events`).Scan(&recorded); err != nil || recorded != maxCommitting+events {
		t.Errorf("%d events are recorded, want %d; %v", recorded, maxCommitting+events, err)
	}
}

// inserted counts statements that insert events, and those that insert jobs.
type inserted struct{ events, jobs atomic.Int64 }

// TraceQueryStart counts.
func (i *inserted) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	switch {
	case strings.Contains(data.SQL, "INSERT INTO keytill.events"):
		i.events.Add(1)
	case strings.Contains(data.SQL, "river_job") && strings.Contains(data.SQL, "INSERT"):
		i.jobs.Add(1)
	}
	return ctx
}

// TraceQueryEnd does nothing.
func (i *inserted) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
