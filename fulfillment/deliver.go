package fulfillment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// ErrRefused marks a sender's error that no later try will mend: the address does not exist, the receiver is gone.
var ErrRefused = errors.New("refused for good")

// A Sender brings messages to somebody over one channel. An error that wraps ErrRefused ends the delivery; any other is
// tried again. A message may be sent more than once, always with the same ID.
type Sender interface {
	Send(ctx context.Context, m Message) (answer string, err error)
}

// A Message is a delivery at the moment of sending. It alone holds keys in the clear, and only for a buyer's mail.
type Message struct {
	ID        string // the same for every try
	Merchant  string
	Type      NoticeType
	Order     Order        // zero for a notice that is about no order
	Units     []NoticeUnit // what the notice is about
	Subject   Subject
	Recipient string
	Keys      []MessageKey // the order's usable keys, for keys.ready
	At        time.Time    // when it happened
}

// A MessageKey is a key with the name of its product.
type MessageKey struct {
	SKU, Name, Text string
}

const (
	// Index: deliveries_pkey.
	readDelivery = `
SELECT coalesce(order_id, ''), channel, type, recipient, units, state, attempts, send_after, created_at, subject
  FROM keytill.deliveries WHERE merchant_id = $1 AND delivery_id = $2`

	finishDelivery = `
UPDATE keytill.deliveries
   SET state = $3, answer = $4, last_error = $5, done_at = $6, attempts = attempts + $7
 WHERE merchant_id = $1 AND delivery_id = $2 AND state = 'pending'`

	delayDelivery = `
UPDATE keytill.deliveries SET attempts = attempts + 1, last_error = $3
 WHERE merchant_id = $1 AND delivery_id = $2 AND state = 'pending'`

	// Index: keys_pkey, pools_pkey.
	readKeyNames = `
SELECT k.key_id, p.sku, p.name
  FROM keytill.keys k JOIN keytill.pools p ON p.merchant_id = k.merchant_id AND p.pool_id = k.pool_id
 WHERE k.merchant_id = $1 AND k.key_id = ANY ($2)`
)

// giveUpAfter is how long a delivery is tried.
const giveUpAfter = 72 * time.Hour

type delivery struct {
	id        int64
	order     string
	channel   Channel
	kind      NoticeType
	recipient string
	units     []NoticeUnit
	state     string
	attempts  int
	after     time.Time
	created   time.Time
	subject   Subject
}

// Deliver sends one delivery. The row says what became of it; an error means that it is to be tried again.
//
// The message is made now, from the order as it is now: a key that was taken back since is not in it, and nothing
// decrypted is ever stored.
func (s *Service) Deliver(ctx context.Context, senders map[Channel]Sender, merchant string, id int64) error {
	d, err := s.readDelivery(ctx, merchant, id)
	if err != nil || d.state != "pending" {
		return err
	}
	sender := senders[d.channel]
	if sender == nil {
		return s.finishDelivery(ctx, merchant, id, "canceled", "", "this channel is not configured", 0)
	}
	m, err := s.message(ctx, merchant, d)
	if err != nil {
		return err
	}
	if d.kind == KeysReady && len(m.Keys) == 0 {
		return s.finishDelivery(ctx, merchant, id, "canceled", "", "no unit of the order has a usable key any more", 0)
	}
	answer, err := sender.Send(ctx, m)
	switch {
	case err == nil:
		return s.finishDelivery(ctx, merchant, id, "sent", answer, "", 1)
	case errors.Is(err, ErrRefused) || s.now().Sub(d.after) > giveUpAfter:
		return s.giveUp(ctx, merchant, d, err)
	}
	if _, noteErr := s.db.Exec(context.WithoutCancel(ctx), delayDelivery, merchant, id, err.Error()); noteErr != nil {
		s.log.WarnContext(ctx, "could not note why a delivery failed", "delivery", id, "error", noteErr)
	}
	return fmt.Errorf("deliver %d over %s: %w", id, d.channel, err)
}

func (s *Service) readDelivery(ctx context.Context, merchant string, id int64) (delivery, error) {
	d := delivery{id: id}
	var units json.RawMessage
	err := s.db.QueryRow(ctx, readDelivery, merchant, id).
		Scan(&d.order, &d.channel, &d.kind, &d.recipient, &units, &d.state, &d.attempts, &d.after, &d.created, &d.subject)
	if err == nil {
		err = json.Unmarshal(units, &d.units)
	}
	if err != nil {
		return d, fmt.Errorf("read delivery %d: %w", id, err)
	}
	return d, nil
}

func (s *Service) finishDelivery(ctx context.Context, merchant string, id int64, state, answer, why string, attempts int) error {
	// It has been sent: the row must say so even if the process is told to stop just now.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if _, err := s.db.Exec(ctx, finishDelivery, merchant, id, state, answer, why, s.now(), attempts); err != nil {
		return fmt.Errorf("note that delivery %d is %s: %w", id, state, err)
	}
	return nil
}

func (s *Service) giveUp(ctx context.Context, merchant string, d delivery, cause error) error {
	if err := s.finishDelivery(ctx, merchant, d.id, "failed", "", cause.Error(), 1); err != nil {
		return err
	}
	_, err := s.db.Exec(ctx, openFinding, merchant, Undeliverable, fmt.Sprintf("delivery %d", d.id), d.order,
		fmt.Sprintf("%s could not be delivered over %s: %v", d.what(), d.channel, cause), s.now())
	if err != nil {
		return fmt.Errorf("open finding %s: %w", Undeliverable, err)
	}
	return nil
}

// what names a delivery for a person.
func (d delivery) what() string {
	if d.order == "" {
		return string(d.kind)
	}
	return fmt.Sprintf("%s of order %s", d.kind, d.order)
}

func (s *Service) message(ctx context.Context, merchant string, d delivery) (Message, error) {
	m := Message{ID: fmt.Sprintf("msg_%s_%d", merchant, d.id), Merchant: merchant, Type: d.kind, Units: d.units,
		Recipient: d.recipient, At: d.created, Subject: d.subject}
	if d.order == "" {
		return m, nil
	}
	var err error
	if m.Order, err = LoadOrder(ctx, s.db, merchant, d.order); err != nil {
		return m, err
	}
	if d.kind != KeysReady {
		return m, nil
	}
	ids := m.Order.KeyIDs(UnitFulfilled)
	texts, err := s.keyset.Texts(ctx, s.db, merchant, ids)
	if err != nil {
		return m, fmt.Errorf("order %s: %w", d.order, err)
	}
	rows, err := s.db.Query(ctx, readKeyNames, merchant, ids)
	if err != nil {
		return m, fmt.Errorf("name the keys of order %s: %w", d.order, err)
	}
	named := make(map[int64]MessageKey, len(ids))
	var (
		id        int64
		sku, name string
	)
	if _, err := pgx.ForEachRow(rows, []any{&id, &sku, &name}, func() error {
		named[id] = MessageKey{SKU: sku, Name: name, Text: texts[id]}
		return nil
	}); err != nil {
		return m, fmt.Errorf("name the keys of order %s: %w", d.order, err)
	}
	for _, id := range ids {
		m.Keys = append(m.Keys, named[id])
	}
	return m, nil
}

const setChannels = `UPDATE keytill.merchants SET channels = $1 WHERE channels <> $1`

// ServeChannels notes in the database which channels deliveries are written for. The daemon that sends them says so when
// it starts, since whoever settles or imports, a command on another machine say, does not know.
func (s *Service) ServeChannels(ctx context.Context, channels []Channel) error {
	names := make([]string, len(channels))
	for i, c := range channels {
		names[i] = string(c)
	}
	if _, err := s.db.Exec(ctx, setChannels, names); err != nil {
		return fmt.Errorf("note the delivery channels: %w", err)
	}
	return nil
}
