package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/fulfillment"
)

// What is open for longer than the walks look back: an order that waits for its money (by its PaymentIntent, where there is
// one), a refund on its way, a dispute. Index: orders_pending, refunds_open, disputes_open.
const readOpen = `
SELECT kind, id, created_at FROM (
    (SELECT CASE WHEN payment_intent IS NULL THEN 'sessions' ELSE 'payment_intents' END AS kind,
            coalesce(payment_intent, order_id) AS id, placed_at AS created_at
       FROM keytill.orders WHERE merchant_id = $1 AND payment = 'pending')
    UNION ALL
    (SELECT 'refunds', refund_id, created_at
       FROM keytill.refunds WHERE merchant_id = $1 AND status IN ('pending', 'requires_action'))
    UNION ALL
    (SELECT 'disputes', dispute_id, created_at
       FROM keytill.disputes WHERE merchant_id = $1 AND status NOT IN ('won', 'lost', 'warning_closed', 'prevented'))
) AS open
 WHERE id > $2
 ORDER BY id
 LIMIT $3`

const openPage = 100

type openObject struct {
	Kind    Kind
	ID      string
	Created time.Time
}

// walkOpen looks, one by one, at what is open and older than what the lists of this sweep have shown. It is little: money
// that takes longer than the window to come, and disputes.
func (s *Sweeper) walkOpen(ctx context.Context, r *run) error {
	w := &walk{Sweeper: s, run: r, kind: Open}
	var err error
	if w.cursor, err = s.readCursor(ctx, r.merchant, Open); err != nil {
		return err
	}
	after := ""
	for {
		rows, err := s.db.Query(ctx, readOpen, r.merchant, after, openPage)
		if err != nil {
			return fmt.Errorf("read what is open: %w", err)
		}
		open, err := pgx.CollectRows(rows, pgx.RowToStructByPos[openObject])
		if err != nil {
			return fmt.Errorf("read what is open: %w", err)
		}
		if err := w.lookAt(ctx, open); err != nil {
			return err
		}
		if len(open) < openPage {
			break
		}
		after = open[len(open)-1].ID
	}
	if r.dry {
		return nil
	}
	w.covered, w.whole = Span{To: r.until}, w.left == 0
	if err := s.beginWalk(ctx, r.merchant, Open, r.until, nil); err != nil {
		return err
	}
	return w.end(ctx)
}

// lookAt reads each of the objects that no list of this sweep has shown, compares them, and notes what differs.
func (w *walk) lookAt(ctx context.Context, open []openObject) error {
	byKind := make(map[Kind][]Object)
	for _, o := range open {
		if w.run.looked(o.Kind, o.Created) || !o.Created.Before(w.run.until) {
			continue
		}
		if err := w.run.lease.renew(ctx); err != nil {
			return err
		}
		object, err := w.stripe.Object(ctx, w.run.merchant, o.ID)
		switch {
		case err == nil:
			w.consecutive = 0
			byKind[o.Kind] = append(byKind[o.Kind], object)
		case errors.Is(err, fulfillment.ErrNotFound):
		case ctx.Err() != nil:
			return err
		default:
			w.left++
			if w.consecutive++; errors.Is(err, ErrUnavailable) && w.consecutive >= maxConsecutive {
				return err // it is not about an object
			}
			w.run.fail(Open, o.ID, err)
		}
	}
	for kind, objects := range byKind {
		known, err := w.readStored(ctx, w.run.merchant, objects)
		if err != nil {
			return err
		}
		batch := &pgx.Batch{}
		for i, o := range objects {
			w.run.report.Walked++
			w.run.report.tally(Open).Walked++
			reason := compare(kind, o, known[i])
			if reason == Same {
				continue
			}
			d := difference{Object: o, kind: Open, reason: reason, stored: known[i], digest: digest(kind, o, known[i]),
				known: w.cursor.knownSince(o.Created)}
			switch {
			case string(d.digest) == string(known[i].LookedFor):
				w.run.report.tally(Open).Known++
				w.run.report.Known++
			case w.run.dry:
				w.run.wouldSettle(d)
			default:
				w.queueTodo(batch, w.run.merchant, d)
			}
		}
		if err := w.db.SendBatch(ctx, batch).Close(); err != nil {
			return fmt.Errorf("note what differs: %w", err)
		}
	}
	return nil
}
