package reconcile

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/internal/pg"
)

const (
	// A payment that could not be settled before stays since when it was known, and in its place. Index: sweep_todo_pkey.
	insertTodo = `
INSERT INTO keytill.sweep_todo AS t
       (merchant_id, ref, kind, object_ids, digests, reason, payment, created_at, known_at)
VALUES ($1, $2, $3, ARRAY[$4::text], ARRAY[$5::bytea], $6, $7, $8, $9)
ON CONFLICT (merchant_id, ref) DO UPDATE
   SET kind = excluded.kind, reason = excluded.reason, payment = excluded.payment,
       object_ids = CASE WHEN t.object_ids @> excluded.object_ids THEN t.object_ids ELSE t.object_ids || excluded.object_ids END,
       digests = CASE WHEN t.object_ids @> excluded.object_ids THEN t.digests ELSE t.digests || excluded.digests END,
       created_at = least(t.created_at, excluded.created_at), known_at = least(t.known_at, excluded.known_at)`

	// An event that Stripe lists and that never came. Pending, it has no job: the settle that follows marks it done, and if
	// that does not come, the pick-up of events gives it one. Index: events_pkey.
	insertEvent = `
INSERT INTO keytill.events
       (merchant_id, event_id, type, object_id, payment, account, livemode, api_version, created_at, received_at, next_try_at,
        state, note, done_at, swept)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $10, $11::text, $12, CASE WHEN $11::text <> 'pending' THEN $10::timestamptz END, true)
ON CONFLICT DO NOTHING`

	// Those that failed before come in a round of their own, so that they are in nobody's way. Index: sweep_todo_oldest.
	readTodo = `
SELECT ref, kind, object_ids, digests, reason, payment, created_at, known_at
  FROM keytill.sweep_todo
 WHERE merchant_id = $1 AND tried_in IS DISTINCT FROM $2 AND (created_at, ref) > ($3, $4) AND (attempts > 0) = $5
 ORDER BY created_at, ref
 LIMIT $6`

	countTodo = `SELECT count(*) FROM keytill.sweep_todo WHERE merchant_id = $1 AND tried_in IS DISTINCT FROM $2`

	// Index: sweep_todo_pkey.
	deleteTodo = `DELETE FROM keytill.sweep_todo WHERE merchant_id = $1 AND ref = $2`

	failTodo = `
UPDATE keytill.sweep_todo SET attempts = attempts + 1, tried_in = $3, note = $4 WHERE merchant_id = $1 AND ref = $2`

	// Index: sweep_looked_pkey.
	noteLooked = `
INSERT INTO keytill.sweep_looked (merchant_id, object_id, digest, looked_at)
SELECT $1, *, $4 FROM unnest($2::text[], $3::bytea[])
ON CONFLICT (merchant_id, object_id) DO UPDATE SET digest = excluded.digest, looked_at = excluded.looked_at`

	// Events that lead to nothing that keytill sells. Index: events_payment, events_due.
	ignoreEvents = `
UPDATE keytill.events SET state = 'ignored', done_at = $3, note = $4
 WHERE merchant_id = $1 AND state = 'pending' AND swept AND (payment = $2 OR object_id = $2)`

	forgetLooked = `DELETE FROM keytill.sweep_looked WHERE merchant_id = $1 AND looked_at < $2`
)

// lookedFor is how long it is remembered that a settle has looked at an object.
const lookedFor = 90 * 24 * time.Hour

// progress writes a page: how far the walk has come, and what is to be settled.
func (w *walk) progress(ctx context.Context, at, rest span, found []difference) error {
	r := w.run
	move, args := endSpan, []any{r.merchant, r.lease.holder, r.lease.until(), w.kind, at.From}
	if !rest.empty() {
		move = moveSpan
		args = append(args, rest.To, rest.after, w.now())
	}
	if len(found) == 0 {
		tag, err := w.db.Exec(ctx, move, args...)
		return moved(tag, err)
	}
	return pg.InTx(ctx, w.db, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, move, args...)
		if err := moved(tag, err); err != nil {
			return err
		}
		batch := &pgx.Batch{}
		for _, d := range found {
			w.queue(batch, d)
		}
		if err := tx.SendBatch(ctx, batch).Close(); err != nil {
			return fmt.Errorf("note what differs: %w", err)
		}
		return nil
	})
}

func moved(tag pg.CommandTag, err error) error {
	switch {
	case err != nil:
		return fmt.Errorf("note how far the walk is: %w", err)
	case tag.RowsAffected() != 1:
		return errLeaseLost
	}
	return nil
}

// queue adds one difference to what is to be settled.
func (s *Sweeper) queueTodo(batch *pgx.Batch, merchant string, d difference) {
	batch.Queue(insertTodo, merchant, d.ref(), d.kind, d.ID, d.digest, d.reason, d.stored.Payment, d.Created, d.known)
}

func (w *walk) queue(batch *pgx.Batch, d difference) {
	if d.reason != Same {
		w.queueTodo(batch, w.run.merchant, d)
	}
	if e := d.Event; e != nil {
		state, note := "pending", ""
		if d.reason == Same {
			state, note = "ignored", "found by a sweep: about no order"
		}
		batch.Queue(insertEvent, w.run.merchant, d.ID, e.Type, e.Object, e.Payment, e.Account, e.Livemode, e.APIVersion, d.Created,
			w.now(), state, note)
	}
}

// todo is a payment that is to be settled.
type todo struct {
	Ref     string
	Kind    Kind
	Objects []string
	Digests [][]byte
	Reason  Reason
	Payment string
	Created time.Time
	Known   time.Time
}

func (s *Sweeper) readTodo(ctx context.Context, merchant string, sweep int64, again bool, after todo) ([]todo, error) {
	rows, err := s.db.Query(ctx, readTodo, merchant, sweep, after.Created, after.Ref, again, settlesInRound)
	if err != nil {
		return nil, fmt.Errorf("read what is to be settled: %w", err)
	}
	todos, err := pgx.CollectRows(rows, pgx.RowToStructByPos[todo])
	if err != nil {
		return nil, fmt.Errorf("read what is to be settled: %w", err)
	}
	return todos, nil
}
