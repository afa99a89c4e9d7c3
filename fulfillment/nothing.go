package fulfillment

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// A payment that was canceled before it became an order leaves no order whose ticket could tell an older reading, from
// before the cancellation, that it is old. So as long as it is unpaid and has no order, its settles come one after the
// other, and one that finds nothing to sell leaves its number.

const (
	// Lock: the payment's name, to the end of the transaction.
	lockPayment = `SELECT pg_advisory_xact_lock(hashtextextended('keytill.payment ' || $1 || ' ' || $2, 0))`

	// Index: came_to_nothing_pkey, orders_pkey, orders_payment_intent.
	readNothing = `
SELECT coalesce((SELECT ticket FROM keytill.came_to_nothing WHERE merchant_id = $1 AND payment = $2), 0),
       EXISTS (SELECT 1 FROM keytill.orders WHERE merchant_id = $1 AND (order_id = $2 OR payment_intent = $2))`

	writeCameToNothing = `
INSERT INTO keytill.came_to_nothing (merchant_id, payment, ticket, at) VALUES ($1, $2, $3, $4)
ON CONFLICT (merchant_id, payment) DO UPDATE SET ticket = greatest(keytill.came_to_nothing.ticket, excluded.ticket), at = excluded.at`

	// Index: none; the table is small.
	forgetNothing = `DELETE FROM keytill.came_to_nothing WHERE merchant_id = $1 AND at < $2`
)

// nothingKept is much longer than a settle can be under way.
const nothingKept = 24 * time.Hour

// takeTurn makes the settles of an unpaid payment without an order come one after the other, and refuses one whose
// reading is older than what was found since.
func (a *application) takeTurn(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, lockPayment, a.merchant, a.paymentName()); err != nil {
		return fmt.Errorf("lock payment %s: %w", a.paymentName(), err)
	}
	var (
		ticket  int64
		ordered bool
	)
	if err := tx.QueryRow(ctx, readNothing, a.merchant, a.paymentName()).Scan(&ticket, &ordered); err != nil {
		return fmt.Errorf("look what became of payment %s: %w", a.paymentName(), err)
	}
	switch {
	case ordered:
		return errRaced
	case ticket > a.ticket:
		return ErrStale
	}
	return nil
}

// paymentName is one name for the payment, whoever asks.
func (a *application) paymentName() string {
	if a.payment.Intent != nil {
		return a.payment.Intent.ID
	}
	return a.payment.Session.ID
}

// isPaid reports whether the money is there. From then on no reading finds nothing.
func (a *application) isPaid() bool { return paid(a.payment, &Questions{}) }

// writeNothing closes the events of a payment that came to nothing before it became an order. What was held for it goes
// back, unless the buyer may still pay.
func (a *application) writeNothing(ctx context.Context, tx pgx.Tx) error {
	if closed(a.payment) {
		if err := a.letGo(ctx, tx); err != nil {
			return err
		}
	}
	const note = "no order: nothing was bought"
	batch := &pgx.Batch{}
	var answered, own answeredEvents
	answered.add(a.ticket, a.payment.refs()...)
	answered.queue(batch, finishEvents, a, note)
	if a.event != "" {
		own.add(a.ticket, a.event)
		own.queue(batch, finishOwnEvents, a, note)
	}
	batch.Queue(writeCameToNothing, a.merchant, a.paymentName(), a.ticket, a.at)
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("finish the events: %w", err)
	}
	return nil
}
