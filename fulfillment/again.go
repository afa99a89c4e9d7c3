package fulfillment

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"github.com/keytill/keytill/internal/pg"
)

// ErrNoDelivery says that there is no notice to send again.
var ErrNoDelivery = errors.New("no such notice to the storefront was given up: only those are sent again")

// What was tried in vain counts no more; the notice keeps its id, so that a storefront which has it after all takes it for
// what it is. Lock: the delivery. Index: deliveries_pkey.
const reopenDelivery = `
UPDATE keytill.deliveries SET state = 'pending', attempts = 0, send_after = $3, done_at = NULL
 WHERE merchant_id = $1 AND delivery_id = $2 AND state = 'failed' AND channel <> 'email'
RETURNING coalesce(order_id, ''), channel, type`

// SendAgain sends a notice to the storefront again that was given up, and says which order it is about, if any. Mails are
// sent again with Resend, which writes a new one.
func (s *Service) SendAgain(ctx context.Context, merchant string, delivery int64, who Person) (order string, err error) {
	err = pg.InTx(ctx, s.db, func(tx pgx.Tx) error {
		job := DeliverJob{Merchant: merchant, Delivery: delivery}
		var kind NoticeType
		now := s.now()
		err := tx.QueryRow(ctx, reopenDelivery, merchant, delivery, now).Scan(&job.Order, &job.Channel, &kind)
		if errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("delivery %d: %w", delivery, ErrNoDelivery)
		}
		if err != nil {
			return fmt.Errorf("open delivery %d again: %w", delivery, err)
		}
		order = job.Order
		if err := CloseFinding(ctx, tx, merchant, Undeliverable, fmt.Sprintf("delivery %d", delivery), now); err != nil {
			return err
		}
		opts := &river.InsertOpts{Queue: queueOf(job.Channel), MaxAttempts: deliverAttempts}
		if err := insertJobs(ctx, s.jobs, tx, []river.InsertManyParams{{Args: job, InsertOpts: opts}}); err != nil {
			return err
		}
		return Record(ctx, tx, merchant, Act{At: now, Actor: who.Name, Action: "send again", Order: order,
			Subject: fmt.Sprintf("delivery %d, %s", delivery, kind), Reason: who.Reason})
	})
	return order, err
}
