package fulfillment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/internal/pg"
	"github.com/keytill/keytill/inventory"
)

// ErrRefused marks a sender's error that no later try will mend: the address does not exist, the receiver is gone.
var ErrRefused = errors.New("refused for good")

// A Sender brings messages to somebody over one channel. An error that wraps ErrRefused ends the delivery; any other is
// tried again, and one that is a *Later no sooner than it says. A message may be sent more than once, always with the
// same ID.
type Sender interface {
	Send(ctx context.Context, m Message) (answer string, err error)
}

// Later is the error of a delivery that is to be tried again after a while.
type Later struct {
	After time.Duration
	Err   error
}

func (l *Later) Error() string { return l.Err.Error() }

// Unwrap is the cause.
func (l *Later) Unwrap() error { return l.Err }

// A Message is a delivery at the moment of sending. It alone holds keys in the clear.
type Message struct {
	ID        string // the same for every try
	Merchant  string
	Type      NoticeType
	Order     Order        // zero for a notice that is about no order
	Units     []NoticeUnit // what the notice is about
	Subject   Subject
	Recipient string
	Keys      []inventory.Owned // what the buyer may use, by line and unit: in a mail, and in a hook if the shop wants it
	At        time.Time         // when it happened
}

// DeliveryState says how a delivery stands, in the words of the schema's CHECK.
type DeliveryState string

const (
	DeliveryPending  DeliveryState = "pending"
	DeliverySent     DeliveryState = "sent"     // the provider took it
	DeliveryFailed   DeliveryState = "failed"   // refused for good, or tried for three days
	DeliveryHeld     DeliveryState = "held"     // its keys may not be used for now
	DeliveryCanceled DeliveryState = "canceled" // there is nothing to send any more, or nobody to send it
)

const (
	// In these statements the state is written so that no index of the pending deliveries answers them: the planner, who
	// takes them for few, has been seen to walk all ten thousand for the one that it finds by its key.

	// Counts a try before it is made, so that the row tells of one whose process died. Of the storefront's notices of one
	// order, none is sent before an earlier one that is due. Lock: the delivery. Index: deliveries_pkey, deliveries_order.
	beginDelivery = `
UPDATE keytill.deliveries d SET attempts = attempts + 1
 WHERE merchant_id = $1 AND delivery_id = $2 AND state || '' = 'pending'
   AND (channel = 'email' OR order_id IS NULL OR NOT EXISTS (
        SELECT 1 FROM keytill.deliveries e
         WHERE e.merchant_id = d.merchant_id AND e.order_id = d.order_id AND e.channel = d.channel AND e.state || '' = 'pending'
           AND e.delivery_id < d.delivery_id AND e.send_after <= $3))
RETURNING coalesce(order_id, ''), channel, type, recipient, units, attempts, send_after, created_at, subject`

	// Whether a delivery that was not begun is still to be sent, and how often the earlier notice was tried that it waits
	// for. Index: deliveries_pkey, deliveries_order.
	readBlocker = `
SELECT d.state, coalesce((SELECT e.attempts FROM keytill.deliveries e
                           WHERE e.merchant_id = d.merchant_id AND e.order_id = d.order_id AND e.channel = d.channel
                             AND e.state || '' = 'pending' AND e.delivery_id < d.delivery_id
                           ORDER BY e.delivery_id LIMIT 1), 0)
  FROM keytill.deliveries d WHERE d.merchant_id = $1 AND d.delivery_id = $2`

	// What was said of an earlier try stays: it may tell that the message is there twice.
	finishDelivery = `
UPDATE keytill.deliveries
   SET state = $3, answer = $4, last_error = CASE WHEN $5::text = '' THEN last_error ELSE $5::text END, done_at = $6, revivable = $7
 WHERE merchant_id = $1 AND delivery_id = $2 AND state || '' = 'pending'`

	// The commit does not wait for the disk: for the beginning of a try alone. Its end must: the job queue keeps the end of the
	// job in memory and notes it also after a crash of the database's server that has forgotten the delivery's, which would
	// then be pending for ever, and with it what waits for it.
	commitSoon = `SELECT set_config('synchronous_commit', 'off', true)`

	noteFailure = `UPDATE keytill.deliveries SET last_error = $3 WHERE merchant_id = $1 AND delivery_id = $2 AND state || '' = 'pending'`
)

// giveUpAfter is how long a delivery is tried.
const giveUpAfter = 72 * time.Hour

// deliveryPause is the pause after the n-th failed try of a delivery, from 1: seconds at first, an hour in the end.
func deliveryPause(attempt int) time.Duration {
	return min(time.Second<<min(attempt, 20), time.Hour)
}

type delivery struct {
	id        int64
	merchant  string
	order     string
	channel   Channel
	kind      NoticeType
	recipient string
	units     []NoticeUnit
	attempts  int
	after     time.Time
	created   time.Time
	subject   Subject
}

// Deliver makes one try to send one delivery. The row says what became of it; a *Later means that it is to be tried
// again then.
//
// The message is made now, from the order as it is now: a key that was taken back since is not in it, and nothing
// decrypted is ever stored.
func (s *Service) Deliver(ctx context.Context, senders map[Channel]Sender, job DeliverJob) error {
	d, m, begun, err := s.begin(ctx, job)
	if err != nil {
		return err
	}
	if !begun {
		return s.blocked(ctx, job)
	}
	sender := senders[d.channel]
	if sender == nil {
		return s.finish(ctx, d, DeliveryCanceled, "", "this channel is not configured")
	}
	if d.kind == KeysReady && len(m.Keys) == 0 {
		return s.finishIncomplete(ctx, d, "", d.units)
	}
	answer, err := sender.Send(ctx, m)
	if err == nil {
		s.observeDelivery(d.channel, DeliverSent)
	}
	switch lacking := d.lacking(m.Keys); {
	case err == nil && len(lacking) > 0:
		return s.finishIncomplete(ctx, d, answer, lacking)
	case err == nil:
		return s.finish(ctx, d, DeliverySent, answer, "")
	case errors.Is(err, ErrRefused) || s.now().Sub(d.after) > giveUpAfter:
		s.observeDelivery(d.channel, DeliverRefused)
		return s.giveUp(ctx, d, err)
	}
	s.observeDelivery(d.channel, DeliverRetried)
	if _, noteErr := s.db.Exec(context.WithoutCancel(ctx), noteFailure, d.merchant, d.id, err.Error()); noteErr != nil {
		s.log.WarnContext(ctx, "could not note why a delivery failed", "delivery", d.id, "error", noteErr)
	}
	s.log.WarnContext(ctx, "a delivery failed and is tried again", "delivery", d.id, "channel", d.channel, "attempt", d.attempts, "error", err)
	later := &Later{After: deliveryPause(d.attempts), Err: fmt.Errorf("deliver %d over %s: %w", d.id, d.channel, err)}
	var asked *Later
	if errors.As(err, &asked) {
		later.After = max(later.After, asked.After)
	}
	return later
}

// begin counts a try and reads all that the message is made of, in one round trip. It has not begun if the delivery is
// done, or must wait for an earlier one.
func (s *Service) begin(ctx context.Context, job DeliverJob) (d delivery, m Message, begun bool, err error) {
	d = delivery{id: job.Delivery, merchant: job.Merchant}
	batch := &pgx.Batch{}
	var read *orderReader
	batch.Queue(commitSoon)
	batch.Queue(beginDelivery, job.Merchant, job.Delivery, s.now()).QueryRow(func(row pgx.Row) error {
		err := row.Scan(&d.order, &d.channel, &d.kind, &d.recipient, &d.units, &d.attempts, &d.after, &d.created, &d.subject)
		begun = err == nil
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	if job.Order != "" {
		read = queueOrders(batch, job.Merchant, job.Order)
		if job.Channel == ChannelEmail || job.Channel == ChannelHook && s.hookKeys {
			s.keyset.QueueOwned(batch, job.Merchant, job.Order, s.now(), &m.Keys)
		}
	}
	if err := s.db.SendBatch(ctx, batch).Close(); err != nil {
		return d, m, false, fmt.Errorf("begin delivery %d: %w", job.Delivery, err)
	}
	if !begun {
		return d, m, false, nil
	}
	if read != nil {
		m.Order = read.orders[0]
	}
	if d.order != m.Order.ID {
		return d, m, false, fmt.Errorf("delivery %d is of order %s, and its job of %s", d.id, d.order, job.Order)
	}
	m.ID, m.Merchant, m.Type = fmt.Sprintf("msg_%s_%d", d.merchant, d.id), d.merchant, d.kind
	m.Units, m.Recipient, m.At, m.Subject = d.units, d.recipient, d.created, d.subject
	m.Order.arrange(m.Keys)
	return d, m, true, nil
}

// blocked says how long a delivery has to wait for an earlier one; nil if it is done. The earlier one may have ended since
// it was in the way: then the wait is short.
func (s *Service) blocked(ctx context.Context, job DeliverJob) error {
	var (
		state    DeliveryState
		attempts int
	)
	if err := s.db.QueryRow(ctx, readBlocker, job.Merchant, job.Delivery).Scan(&state, &attempts); err != nil {
		return fmt.Errorf("read what delivery %d waits for: %w", job.Delivery, err)
	}
	if state != DeliveryPending {
		return nil
	}
	return &Later{After: deliveryPause(attempts), Err: errors.New("an earlier notice of its order is not sent yet")}
}

// lacking are the units that a mail is about and has no keys for.
func (d delivery) lacking(keys []inventory.Owned) []NoticeUnit {
	if d.kind != KeysReady {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(d.units), func(u NoticeUnit) bool {
		return slices.ContainsFunc(keys, func(k inventory.Owned) bool { return k.Line == u.Line && k.Unit == u.Unit })
	})
}

// noteTimeout bounds noting what became of a try. It has been made: the row must say so even if the process is told to
// stop just now.
const noteTimeout = 10 * time.Second

func (s *Service) finish(ctx context.Context, d delivery, state DeliveryState, answer, why string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTimeout)
	defer cancel()
	var err error
	for range finishTries { // what is not noted is sent once more
		if _, err = s.db.Exec(ctx, finishDelivery, d.merchant, d.id, state, answer, why, s.now(), false); !pg.Retryable(err) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("note that delivery %d is %s: %w", d.id, state, err)
	}
	return nil
}

// finishTries is how often a delivery's end is noted where the database asks for another try.
const finishTries = 5

// giveUp ends a delivery that failed, and asks a person.
func (s *Service) giveUp(ctx context.Context, d delivery, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTimeout)
	defer cancel()
	return pg.InTx(ctx, s.db, func(tx pgx.Tx) error {
		now := s.now()
		tag, err := tx.Exec(ctx, finishDelivery, d.merchant, d.id, DeliveryFailed, "", cause.Error(), now, false)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		_, err = tx.Exec(ctx, openFinding, d.merchant, Undeliverable, fmt.Sprintf("delivery %d", d.id), d.order,
			fmt.Sprintf("%s could not be delivered over %s: %v", d.what(), d.channel, cause), now)
		if err != nil {
			return fmt.Errorf("open finding %s: %w", Undeliverable, err)
		}
		if d.kind == FindingOpened {
			// Told again over a dead channel, it would fail again and open the next, for ever.
			return skipFindings(ctx, tx, d.merchant)
		}
		return s.tellFindings(ctx, tx, d.merchant)
	})
}

// what names a delivery for a person.
func (d delivery) what() string {
	if d.order == "" {
		return string(d.kind)
	}
	return fmt.Sprintf("%s of order %s", d.kind, d.order)
}
