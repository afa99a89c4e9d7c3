package webhooks

import (
	"log/slog"
	"testing"
	"time"

	"github.com/keytill/keytill/internal/jobs"
	"github.com/keytill/keytill/internal/pgtest"
)

// They are Stripe's and authentic, so they are recorded and answered with 200. No settle follows.
func TestEventsThatAreNotForKeytillHaveNoEffect(t *testing.T) {
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
	for id, c := range map[string]struct {
		change func(*Event)
		state  string
	}{
		"evt_mine":    {func(*Event) {}, "pending"},
		"evt_live":    {func(ev *Event) { ev.Livemode = true }, "ignored"},
		"evt_foreign": {func(ev *Event) { ev.Account = "acct_nobodys" }, "ignored"},
		"evt_product": {func(ev *Event) { ev.ObjectID, ev.Payment = "prod_1", "prod_1" }, "ignored"},
	} {
		event := Event{ID: id, Type: "charge.refunded", ObjectID: "ch_1", Payment: "pi_1"}
		c.change(&event)
		if err := store.Record(t.Context(), event); err != nil {
			t.Fatal(err)
		}
		var state string
		var settles int
		err := db.QueryRow(t.Context(), `
SELECT state, (SELECT count(*) FROM keytill.river_job WHERE args->>'event_id' = e.event_id) FROM keytill.events e WHERE event_id = $1`, id).
			Scan(&state, &settles)
		if err != nil || state != c.state || (settles == 1) != (state == "pending") {
			t.Errorf("%s is %s with %d settles, want %s; %v", id, state, settles, c.state, err)
		}
	}
}
