package wire

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/integration_test/shoptest"
	"github.com/keytill/keytill/internal/jobs"
	"github.com/keytill/keytill/internal/stripefake"
	"github.com/keytill/keytill/webhooks"
)

// post has Stripe send an event to a keytill's door. Once that has answered 200, the event must be there.
func (r *round) post(ctx context.Context, url string, ev stripefake.Event) error {
	status, body, err := r.shop.Stripe.Deliver(ctx, url, ev)
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return fmt.Errorf("%s was answered %d %s", ev.ID, status, body)
	}
	var recorded bool
	err = r.shop.DB.QueryRow(r.t.Context(), `SELECT EXISTS (SELECT FROM keytill.events WHERE event_id = $1)`, ev.ID).Scan(&recorded)
	if err == nil && !recorded {
		r.t.Errorf("%s was answered 200 before it was recorded", ev.ID)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answered = append(r.answered, ev.ID)
	return err
}

// comes makes a payment and Stripe's event about it, which is on no way yet.
func (r *round) comes() {
	r.t.Helper()
	ev, err := r.shop.Stripe.Event("checkout.session.completed", r.sell("price_full*1", nil), stripefake.EventOptions{})
	r.shop.Must(err)
	r.events = append(r.events, ev.ID)
	r.posted = append(r.posted, ev)
}

// An event has a job, or its part in one that gives events theirs.
const jobsOfEvent = `
SELECT count(*) FROM keytill.river_job
 WHERE kind = 'settle' AND args->>'event_id' = $1 OR kind = 'spread' AND args->'event_ids' @> to_jsonb($1::text)`

// recordedOnce wants each event recorded, with one job, and that the job comes to a key.
func recordedOnce(r *round) {
	for i, id := range r.events {
		r.wantCount("rows of event "+id, 1, `SELECT count(*) FROM keytill.events WHERE event_id = $1 AND state = 'pending'`, id)
		r.wantCount("jobs of event "+id, 1, jobsOfEvent, id)
		r.shop.Must(r.shop.Service.SettleEvent(r.t.Context(), merchant, id))
		r.wantUnits(r.orders[i], units(1, fulfillment.UnitFulfilled))
	}
	r.wantDone()
}

// An event comes in. Stripe hangs up, or sends it again at the same time; what it has got no 200 for, it sends again.
var ingestOne = operation{
	name:  "record an event",
	stock: settleNew.stock,
	begin: func(r *round) {
		r.forward(shoptest.Grace)
		r.comes()
	},
	run: func(ctx context.Context, r *round, by *shoptest.Shop) error {
		return r.post(ctx, by.Webhook.URL, r.posted[0])
	},
	end: recordedOnce,
}

// together is how many events come in at once.
const together = 6

// Events that come in at once are recorded in few transactions, and each is answered for itself. How they fall into groups is
// chance.
var ingestMany = operation{
	name:  "record events that come together",
	stock: settleNew.stock,
	begin: func(r *round) {
		r.forward(shoptest.Grace)
		for range together {
			r.comes()
		}
		if r.doors == nil {
			r.doors = map[*shoptest.Shop]string{r.till: r.crowdedDoor(r.till), r.shop: r.crowdedDoor(r.shop)}
		}
	},
	run: func(ctx context.Context, r *round, by *shoptest.Shop) error {
		var all errgroup.Group
		for _, ev := range r.posted {
			all.Go(func() error { return r.post(ctx, r.doors[by], ev) })
		}
		return all.Wait()
	},
	end:       recordedOnce,
	wipeEvery: 20,
	loose:     true,
}

// crowdedDoor is a keytill's webhook that lets events in when they all stand before it.
func (w *world) crowdedDoor(by *shoptest.Shop) string {
	w.t.Helper()
	inserter, err := jobs.NewInserter(by.DB, by.Now, discard)
	w.shop.Must(err)
	store, err := webhooks.NewStore(webhooks.StoreConfig{DB: by.DB, Jobs: inserter, Now: by.Now})
	w.shop.Must(err)
	verifier, err := webhooks.NewVerifier(webhooks.VerifierConfig{Secrets: by.Stripe.Secrets(), Now: by.Now})
	w.shop.Must(err)
	handler, err := webhooks.NewHandler(webhooks.Config{Verifier: verifier, Inbox: &crowd{Inbox: store}})
	w.shop.Must(err)
	server := httptest.NewServer(handler)
	w.t.Cleanup(server.Close)
	return server.URL
}

// A crowd is an inbox before which events gather.
type crowd struct {
	webhooks.Inbox

	mu      sync.Mutex
	waiting []chan struct{}
}

// Record waits until so many events are there, though not for ever: after a failure fewer may come again.
func (c *crowd) Record(ctx context.Context, ev webhooks.Event) error {
	in := make(chan struct{})
	c.mu.Lock()
	c.waiting = append(c.waiting, in)
	if len(c.waiting) == together {
		for _, other := range c.waiting {
			close(other)
		}
		c.waiting = nil
	}
	c.mu.Unlock()
	select {
	case <-in:
	case <-time.After(200 * time.Millisecond):
		c.leave(in)
	}
	return c.Inbox.Record(ctx, ev)
}

func (c *crowd) leave(in chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = slices.DeleteFunc(c.waiting, func(other chan struct{}) bool { return other == in })
}
