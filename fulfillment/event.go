package fulfillment

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/internal/pg"
)

const (
	// Index: events_pkey.
	readEvent = `
SELECT type, object_id, payment, account, livemode, state, attempts, ticket
  FROM keytill.events WHERE merchant_id = $1 AND event_id = $2`

	closeEvent = `
UPDATE keytill.events SET state = $3, done_at = $4, note = $5 WHERE merchant_id = $1 AND event_id = $2 AND state = 'pending'`

	failEvent = `
UPDATE keytill.events SET attempts = attempts + 1, next_try_at = $3, note = $4
 WHERE merchant_id = $1 AND event_id = $2 AND state = 'pending'`
)

// recordedEvent is an event as the inbox has it.
type recordedEvent struct {
	kind, object, payment, account, state string
	livemode                              bool
	attempts                              int
	ticket                                int64
}

// flightPatience is how long a settle waits for another of the same payment in this process, in the hope that its read
// of Stripe answers for both. It is short, since the other may hang.
const flightPatience = time.Second

// SettleEvent settles the payment that a recorded event points at. Five events of one payment that arrive together
// cost one or two reads of Stripe: who comes later waits a moment for who is at it, and then often finds its event done.
//
// The error is what kept it from being settled; the event is then pending and has its next try noted.
func (s *Service) SettleEvent(ctx context.Context, merchant, id string) error {
	event, err := s.readEvent(ctx, merchant, id)
	if err != nil || event.state != "pending" {
		return err
	}
	release := s.flights.enter(ctx, merchant+" "+event.payment, flightPatience)
	defer release()
	event, err = s.readEvent(ctx, merchant, id)
	if err != nil || event.state != "pending" {
		return err
	}
	if !LeadsToPayment(event.payment) {
		return s.closeEvent(ctx, merchant, id, "ignored", "not about a payment")
	}
	_, err = s.settle(ctx, cause{merchant: merchant, ref: event.ref(), event: id, actor: actorSettle})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrNotFound):
		return s.closeEvent(ctx, merchant, id, "done", "its object is gone at Stripe")
	case errors.Is(err, ErrNotOurs):
		return s.closeEvent(ctx, merchant, id, "ignored", "not an order of keys")
	case errors.Is(err, ErrRefusedRead) && event.attempts+1 >= settleAttempts:
		// It would be asked for ever. The sweep still finds the payment in Stripe's lists.
		return s.closeEvent(ctx, merchant, id, "done", "given up: "+err.Error())
	}
	s.noteFailure(ctx, merchant, id, event.attempts+1, err)
	return fmt.Errorf("settle event %s: %w", id, err)
}

// ref is what to ask Stripe for. A session is asked for itself; everything else by the PaymentIntent it names.
func (e recordedEvent) ref() string {
	if strings.HasPrefix(e.object, "cs_") {
		return e.object
	}
	return e.payment
}

// LeadsToPayment reports whether an id is of an object that may belong to a payment, by its prefix. An event about anything
// else is not for keytill.
func LeadsToPayment(id string) bool {
	for _, prefix := range []string{"cs_", "pi_", "ch_", "py_", "re_", "pyr_", "dp_", "du_", "issfr_", "prv_"} {
		if strings.HasPrefix(id, prefix) {
			return true
		}
	}
	return false
}

// ErrNoEvent says that no such event was recorded.
var ErrNoEvent = errors.New("no such event was recorded")

func (s *Service) readEvent(ctx context.Context, merchant, id string) (recordedEvent, error) {
	var e recordedEvent
	err := s.db.QueryRow(ctx, readEvent, merchant, id).
		Scan(&e.kind, &e.object, &e.payment, &e.account, &e.livemode, &e.state, &e.attempts, &e.ticket)
	if errors.Is(err, pgx.ErrNoRows) {
		return e, fmt.Errorf("%s: %w", id, ErrNoEvent)
	}
	if err != nil {
		return e, fmt.Errorf("read event %s: %w", id, err)
	}
	return e, nil
}

func (s *Service) closeEvent(ctx context.Context, merchant, id, state, why string) error {
	if _, err := s.db.Exec(ctx, closeEvent, merchant, id, state, s.now(), why); err != nil {
		return fmt.Errorf("close event %s: %w", id, err)
	}
	return nil
}

// noteFailure tells operators why an event is still pending and when it is tried again. It is not what makes it so:
// that is the job.
func (s *Service) noteFailure(ctx context.Context, merchant, id string, attempt int, cause error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if _, err := s.db.Exec(ctx, failEvent, merchant, id, s.now().Add(RetryDelay(attempt)), cause.Error()); err != nil {
		s.log.WarnContext(ctx, "could not note why an event failed", "event", id, "error", err)
	}
}

// strandedAfter is how long past its next try an event may be before it is given a new job: its own was lost with the
// process that ran it, or given up.
const strandedAfter = 2 * time.Minute

const (
	// Lock: the events, skipping those another process takes. Index: events_due.
	takeStranded = `
WITH stranded AS MATERIALIZED (
    SELECT merchant_id, event_id FROM keytill.events
     WHERE merchant_id = $1 AND state = 'pending' AND next_try_at < $2
     ORDER BY next_try_at
     LIMIT 1000
       FOR UPDATE SKIP LOCKED
)
UPDATE keytill.events e SET next_try_at = $3
  FROM stranded s
 WHERE e.merchant_id = s.merchant_id AND e.event_id = s.event_id
RETURNING e.event_id`

	readMerchants = `SELECT merchant_id FROM keytill.merchants ORDER BY merchant_id`
)

// PickUp gives a new job to every recorded event whose job was lost or given up, and says how many there were. With it,
// the job queue is not the only way home.
func (s *Service) PickUp(ctx context.Context) (int, error) {
	if err := s.RightTime(ctx); err != nil {
		return 0, err
	}
	merchants, err := s.merchants(ctx)
	if err != nil {
		return 0, err
	}
	found := 0
	for _, merchant := range merchants {
		for {
			n, err := s.pickUp(ctx, merchant)
			if err != nil {
				return found, err
			}
			found += n
			if n == 0 {
				break
			}
		}
	}
	return found, nil
}

func (s *Service) pickUp(ctx context.Context, merchant string) (found int, err error) {
	err = pg.InTx(ctx, s.db, func(tx pgx.Tx) error {
		now := s.now()
		rows, err := tx.Query(ctx, takeStranded, merchant, now.Add(-strandedAfter), now)
		if err != nil {
			return fmt.Errorf("look for stranded events: %w", err)
		}
		events, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return fmt.Errorf("look for stranded events: %w", err)
		}
		found = len(events)
		return insertJobs(ctx, s.jobs, tx, settleJobs(merchant, events))
	})
	return found, err
}

func (s *Service) merchants(ctx context.Context) ([]string, error) {
	rows, err := s.db.Query(ctx, readMerchants)
	if err != nil {
		return nil, fmt.Errorf("read the merchants: %w", err)
	}
	merchants, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("read the merchants: %w", err)
	}
	return merchants, nil
}

// flights lets settles of one payment in one process come one after the other, within reason.
type flights struct {
	mu     sync.Mutex
	flying map[string]chan struct{}
}

// enter waits until no other flight of the same name is on, or patience ends. The returned function ends this one.
func (f *flights) enter(ctx context.Context, name string, patience time.Duration) func() {
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		f.mu.Lock()
		landed, busy := f.flying[name]
		if !busy {
			own := make(chan struct{})
			if f.flying == nil {
				f.flying = make(map[string]chan struct{})
			}
			f.flying[name] = own
			f.mu.Unlock()
			return func() {
				f.mu.Lock()
				delete(f.flying, name)
				f.mu.Unlock()
				close(own)
			}
		}
		f.mu.Unlock()
		select {
		case <-landed:
		case <-timeout.C:
			return func() {}
		case <-ctx.Done():
			return func() {}
		}
	}
}
