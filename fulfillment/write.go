package fulfillment

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/internal/pg"
)

const (
	// Fewer rows: another settle made the order since it was looked for. They are made in the order of their names, so that
	// two transactions that make the same do not wait for each other. Index: orders_pkey, orders_payment_intent.
	insertOrders = `
INSERT INTO keytill.orders
       (merchant_id, order_id, payment_intent, charge, client_reference_id, payment, currency, amount_total, amount_captured,
        amount_refunded, email, name, locale, placed_at, paid_at, ticket, settled_at)
SELECT $1, order_id, nullif(payment_intent, ''), nullif(charge, ''), nullif(reference, ''), payment, currency, total, captured,
       refunded, email, name, locale, placed_at, paid_at, ticket, $2
  FROM unnest($3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::bigint[], $10::bigint[], $11::bigint[],
              $12::text[], $13::text[], $14::text[], $15::timestamptz[], $16::timestamptz[], $17::bigint[])
       AS o (order_id, payment_intent, charge, reference, payment, currency, total, captured, refunded, email, name, locale,
             placed_at, paid_at, ticket)
 ORDER BY order_id
ON CONFLICT DO NOTHING`

	// Lock: the order's, held since it was read. The ticket guards against a newer settle.
	updateOrder = `
UPDATE keytill.orders
   SET payment_intent = nullif($3, ''), charge = nullif($4, ''), client_reference_id = nullif($5, ''), payment = $6,
       currency = $7, amount_total = $8, amount_captured = $9, amount_refunded = $10, email = $11, name = $12,
       locale = $13, placed_at = $14, paid_at = coalesce(paid_at, $15), ticket = $16, settled_at = $17
 WHERE merchant_id = $1 AND order_id = $2 AND ticket < $16`

	insertLines = `
INSERT INTO keytill.lines
       (merchant_id, order_id, line_id, ordinal, price, product, description, quantity, amount, pool_id, keyless, per_unit)
SELECT $1, * FROM unnest($2::text[], $3::text[], $4::int[], $5::text[], $6::text[], $7::text[], $8::bigint[], $9::bigint[],
       $10::bigint[], $11::bool[], $12::int[])`

	// Lock: the line. A line that has a pool keeps it.
	mapLine = `
UPDATE keytill.lines SET pool_id = $4, per_unit = $5
 WHERE merchant_id = $1 AND order_id = $2 AND line_id = $3 AND pool_id IS NULL`

	// Whether other orders wait in a pool. Index: fulfilments_waiting.
	readQueued = `
SELECT pool_id FROM unnest($2::bigint[]) AS wanted (pool_id)
 WHERE EXISTS (SELECT 1 FROM keytill.fulfilments f
                WHERE f.merchant_id = $1 AND f.pool_id = wanted.pool_id AND f.state = 'waiting' AND f.order_id <> ALL ($3))`

	insertUnits = `
INSERT INTO keytill.fulfilments
       (merchant_id, order_id, line_id, unit, pool_id, state, key_id, revoked_by, paid_at, changed_at)
SELECT $1, order_id, line_id, unit, pool_id, state, nullif(key_id, 0), nullif(revoked_by, ''), paid_at, $2
  FROM unnest($3::text[], $4::text[], $5::int[], $6::bigint[], $7::text[], $8::bigint[], $9::text[], $10::timestamptz[])
       AS u (order_id, line_id, unit, pool_id, state, key_id, revoked_by, paid_at)`

	// Lock: the units, held since they were read; the state they had guards all the same.
	updateUnits = `
UPDATE keytill.fulfilments f
   SET state = u.state, key_id = nullif(u.key_id, 0), revoked_by = nullif(u.revoked_by, ''),
       paid_at = coalesce(f.paid_at, $3), changed_at = $4
  FROM unnest($5::text[], $6::int[], $7::text[], $8::bigint[], $9::text[], $10::text[])
       AS u (line_id, unit, state, key_id, revoked_by, was)
 WHERE f.merchant_id = $1 AND f.order_id = $2 AND f.line_id = u.line_id AND f.unit = u.unit AND f.state = u.was`

	// Index: refunds_pkey.
	upsertRefund = `
INSERT INTO keytill.refunds (merchant_id, refund_id, order_id, amount, status, created_at) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (merchant_id, refund_id) DO UPDATE SET amount = excluded.amount, status = excluded.status
  WHERE (keytill.refunds.amount, keytill.refunds.status) <> (excluded.amount, excluded.status)`

	// Index: disputes_pkey.
	upsertDispute = `
INSERT INTO keytill.disputes (merchant_id, dispute_id, order_id, amount, status, created_at) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (merchant_id, dispute_id) DO UPDATE SET amount = excluded.amount, status = excluded.status
  WHERE (keytill.disputes.amount, keytill.disputes.status) <> (excluded.amount, excluded.status)`

	// What was received before a settle began to read Stripe is answered by what it read. Index: events_payment.
	finishEvents = `
UPDATE keytill.events e SET state = 'done', done_at = $4, note = $5
  FROM unnest($2::text[], $3::bigint[]) AS answered (payment, ticket)
 WHERE e.merchant_id = $1 AND e.state = 'pending' AND e.payment = answered.payment AND e.ticket < answered.ticket`

	// The event that made it settle may know the payment under another name. Index: events_pkey.
	finishOwnEvents = `
UPDATE keytill.events e SET state = 'done', done_at = $4, note = $5
  FROM unnest($2::text[], $3::bigint[]) AS answered (event_id, ticket)
 WHERE e.merchant_id = $1 AND e.state = 'pending' AND e.event_id = answered.event_id AND e.ticket < answered.ticket`
)

// writeOrders writes the orders and their lines, and looks whether others wait in the pools that keys are wanted of.
func (r *round) writeOrders(ctx context.Context, tx pgx.Tx) error {
	batch := &pgx.Batch{}
	var (
		made  orderColumns
		lines lineColumns
		pools []int64
	)
	for _, a := range r.apps {
		if a.order.exists {
			batch.Queue(updateOrder, a.orderValues().update(a)...).Exec(affects(1, ErrStale))
		} else {
			made.add(a.orderValues())
		}
		for i, l := range a.lines {
			switch {
			case l.remap:
				batch.Queue(mapLine, a.merchant, a.order.id, l.ID, l.pool.ID, l.perUnit).Exec(affects(1, ErrStale))
			case !l.stored:
				lines.add(a.order.id, i+1, l)
			}
		}
		pools = append(pools, a.plan.claimedPools()...)
	}
	if n := len(made.orders); n > 0 {
		batch.Queue(insertOrders, append([]any{r.lead.merchant, r.lead.at}, made.values()...)...).Exec(affects(n, errRaced))
	}
	if n := len(lines.orders); n > 0 {
		batch.Queue(insertLines, append([]any{r.lead.merchant}, lines.values()...)...).Exec(affects(n, errRaced))
	}
	r.queued = make(map[int64]bool)
	if len(pools) > 0 {
		slices.Sort(pools)
		batch.Queue(readQueued, r.lead.merchant, slices.Compact(pools), r.orderIDs()).Query(func(rows pgx.Rows) error {
			var pool int64
			_, err := pgx.ForEachRow(rows, []any{&pool}, func() error {
				r.queued[pool] = true
				return nil
			})
			return err
		})
	}
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("write %s: %w", r, err)
	}
	return nil
}

// String names the round's orders.
func (r *round) String() string {
	if len(r.apps) == 1 {
		return "order " + r.lead.order.id
	}
	return fmt.Sprintf("order %s and %d others", r.lead.order.id, len(r.apps)-1)
}

func (p *plan) claimedPools() []int64 {
	pools := make([]int64, len(p.claims))
	for i, c := range p.claims {
		pools[i] = c.pool.ID
	}
	return pools
}

// paidAt is when the payment was made, which is where a unit that must wait stands in the queue; nil: not paid.
func (a *application) paidAt() *time.Time {
	if v := a.plan.verdict.Payment; v == Pending || v == Closed {
		return nil
	}
	if i := a.payment.Intent; i != nil && !i.PaidAt.IsZero() {
		return &i.PaidAt
	}
	if s := a.payment.Session; s != nil {
		return &s.CreatedAt
	}
	return &a.payment.Intent.CreatedAt
}

func (l *line) poolID() *int64 {
	if l.pool == nil {
		return nil
	}
	return &l.pool.ID
}

// writeRest writes the units, what Stripe said of refunds and disputes, the findings, and closes the events that this
// settle answers.
func (r *round) writeRest(ctx context.Context, tx pgx.Tx) error {
	batch := &pgx.Batch{}
	if len(r.shelf) > 0 {
		// A key that came back to an empty shelf belongs to who waited when it did. The look before the claim may have been
		// too early to see them; this one, after it, is not.
		batch.Queue(readQueued, r.lead.merchant, r.shelf, r.orderIDs()).Exec(affects(0, errOvertook))
	}
	r.queueUnits(batch)
	var answered, own answeredEvents
	for _, a := range r.apps {
		a.queueQuestions(batch)
		answered.add(a.ticket, a.payment.refs()...)
		if a.event != "" {
			own.add(a.ticket, a.event)
		}
	}
	answered.queue(batch, finishEvents, r.lead, "")
	own.queue(batch, finishOwnEvents, r.lead, "")
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("write %s: %w", r, err)
	}
	return nil
}

// queueQuestions writes what Stripe said of refunds and disputes, and the findings.
func (a *application) queueQuestions(batch *pgx.Batch) {
	for _, r := range a.payment.Refunds {
		batch.Queue(upsertRefund, a.merchant, r.ID, a.order.id, r.Amount, r.Status, r.CreatedAt)
	}
	for _, d := range a.payment.Disputes {
		batch.Queue(upsertDispute, a.merchant, d.ID, a.order.id, d.Amount, d.Status, d.CreatedAt)
	}
	questions := a.questions()
	if a.order.exists || len(questions) > 0 {
		queueQuestions(batch, a.merchant, a.order.id, questions, a.at)
	}
	for _, l := range a.lines {
		if !l.mapped {
			batch.Queue(openFinding, a.merchant, UnknownPrice, l.Price, "", unknownPriceDetail(l), a.at)
		}
	}
}

// answeredEvents are names of events or of what they are about, with the number of the settle that answers them.
type answeredEvents struct {
	names   []string
	tickets []int64
}

func (e *answeredEvents) add(ticket int64, names ...string) {
	e.names, e.tickets = append(e.names, names...), append(e.tickets, slices.Repeat([]int64{ticket}, len(names))...)
}

func (e *answeredEvents) queue(batch *pgx.Batch, statement string, lead *application, note string) {
	if len(e.names) > 0 {
		batch.Queue(statement, lead.merchant, e.names, e.tickets, lead.at, note)
	}
}

// asks reports whether the settle has opened a finding, or found one open.
func (a *application) asks() bool {
	return len(a.questions()) > 0 || slices.ContainsFunc(a.lines, func(l line) bool { return !l.mapped })
}

func unknownPriceDetail(l line) string {
	if l.Product == "" {
		// What a PaymentIntent's metadata names may also be misspelled there.
		return fmt.Sprintf("nobody has said what %q of a PaymentIntent's keytill_lines hands out: correct the metadata, or `keytill pool map SKU --price %s`",
			l.Price, l.Price)
	}
	return fmt.Sprintf("nobody has said what %s (%s, product %s) hands out: `keytill pool map SKU --price %s` does, or `keytill pool map --no-keys --price %s`",
		l.Price, l.Description, l.Product, l.Price, l.Price)
}

// questions are those of the entitlement and those of the stock.
func (a *application) questions() Questions {
	questions := a.plan.verdict.Questions
	holds := a.plan.holds()
	if n := holds[UnitFailed]; n > 0 {
		questions.ask(Shortage, a.order.id, "%d paid units got no key and their pool does not wait: restock, then `keytill order retry %s`, or refund",
			n, a.order.id)
	}
	if holds[UnitFulfilled] > 0 && a.email() == "" && a.serves(ChannelEmail) {
		questions.ask(NoRecipient, a.order.id, "the order has keys and no e-mail address: `keytill order resend %s --to ADDRESS`", a.order.id)
	}
	return questions
}

func (a *application) email() string {
	if a.payment.Session != nil {
		return a.payment.Session.Email
	}
	return a.payment.Intent.Email
}

func (r *round) queueUnits(batch *pgx.Batch) {
	var added unitColumns
	for _, a := range r.apps {
		var changed unitColumns
		for _, u := range a.plan.changed {
			switch {
			case u.state == "":
				added.add(a, u)
			case u.state != u.next || u.step == claim:
				changed.add(a, u)
			}
		}
		if n := len(changed.lines); n > 0 {
			batch.Queue(updateUnits, a.merchant, a.order.id, a.paidAt(), a.at, changed.lines, changed.numbers, changed.states,
				changed.keys, changed.revokedBy, changed.was).Exec(affects(n, ErrStale))
		}
	}
	if n := len(added.lines); n > 0 {
		batch.Queue(insertUnits, r.lead.merchant, r.lead.at, added.orders, added.lines, added.numbers, added.pools, added.states,
			added.keys, added.revokedBy, added.paid).Exec(affects(n, errRaced))
	}
}

// affects checks that a statement of a batch changed as many rows as it should.
func affects(rows int, otherwise error) func(pg.CommandTag) error {
	return func(tag pg.CommandTag) error {
		if tag.RowsAffected() != int64(rows) {
			return otherwise
		}
		return nil
	}
}
