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
	// Index: orders_pkey, orders_payment_intent. No row: another settle made the order since it was looked for.
	insertOrder = `
INSERT INTO keytill.orders
       (merchant_id, order_id, payment_intent, charge, client_reference_id, payment, currency, amount_total, amount_captured,
        amount_refunded, email, name, locale, placed_at, paid_at, ticket, settled_at)
VALUES ($1, $2, nullif($3, ''), nullif($4, ''), nullif($5, ''), $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
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
SELECT $1, $2, * FROM unnest($3::text[], $4::int[], $5::text[], $6::text[], $7::text[], $8::bigint[], $9::bigint[],
       $10::bigint[], $11::bool[], $12::int[])`

	// Lock: the line. A line that has a pool keeps it.
	mapLine = `
UPDATE keytill.lines SET pool_id = $4, per_unit = $5
 WHERE merchant_id = $1 AND order_id = $2 AND line_id = $3 AND pool_id IS NULL`

	// Whether other orders wait in a pool. Index: fulfilments_waiting.
	readQueued = `
SELECT pool_id FROM unnest($2::bigint[]) AS wanted (pool_id)
 WHERE EXISTS (SELECT 1 FROM keytill.fulfilments f
                WHERE f.merchant_id = $1 AND f.pool_id = wanted.pool_id AND f.state = 'waiting' AND f.order_id <> $3)`

	insertUnits = `
INSERT INTO keytill.fulfilments
       (merchant_id, order_id, line_id, unit, pool_id, state, key_id, revoked_by, paid_at, changed_at)
SELECT $1, $2, line_id, unit, pool_id, state, nullif(key_id, 0), nullif(revoked_by, ''), $3, $4
  FROM unnest($5::text[], $6::int[], $7::bigint[], $8::text[], $9::bigint[], $10::text[])
       AS u (line_id, unit, pool_id, state, key_id, revoked_by)`

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

	// What was received before this settle began to read Stripe is answered by what it read. Index: events_payment,
	// events_pkey.
	finishEvents = `
UPDATE keytill.events SET state = 'done', done_at = $5, note = $6
 WHERE merchant_id = $1 AND state = 'pending' AND ticket < $4 AND (payment = ANY ($2) OR event_id = $3)`
)

// writeOrder writes the order and its lines, and looks whether others wait in the pools it wants keys of.
func (a *application) writeOrder(ctx context.Context, tx pgx.Tx) error {
	batch := &pgx.Batch{}
	write := updateOrder
	lost := ErrStale
	if !a.order.exists {
		write, lost = insertOrder, errRaced
	}
	batch.Queue(write, a.orderValues()...).Exec(affects(1, lost))
	a.queueLines(batch)
	a.order.queued = make(map[int64]bool)
	if pools := a.plan.claimedPools(); len(pools) > 0 {
		batch.Queue(readQueued, a.merchant, pools, a.order.id).Query(func(rows pgx.Rows) error {
			var pool int64
			_, err := pgx.ForEachRow(rows, []any{&pool}, func() error {
				a.order.queued[pool] = true
				return nil
			})
			return err
		})
	}
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("write order %s: %w", a.order.id, err)
	}
	return nil
}

func (p *plan) claimedPools() []int64 {
	pools := make([]int64, len(p.claims))
	for i, c := range p.claims {
		pools[i] = c.pool.ID
	}
	return pools
}

func (a *application) orderValues() []any {
	p := a.payment
	var (
		session Session
		intent  Intent
	)
	if p.Session != nil {
		session = *p.Session
	}
	if p.Intent != nil {
		intent = *p.Intent
	}
	o := struct {
		reference, currency, email string
		total                      int64
		placed                     time.Time
	}{session.ClientReferenceID, session.Currency, session.Email, session.Total, session.CreatedAt}
	if p.Session == nil {
		o.reference, o.currency, o.email, o.total, o.placed = intent.Reference, intent.Currency, intent.Email, intent.Amount, intent.CreatedAt
	}
	return []any{a.merchant, a.order.id, intent.ID, intent.Charge, o.reference, a.plan.verdict.Payment, o.currency, o.total,
		intent.Captured, a.plan.verdict.Refunded, o.email, session.Name, session.Locale, o.placed, a.paidAt(), a.ticket, a.at}
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

func (a *application) queueLines(batch *pgx.Batch) {
	var (
		ids, prices, products, descriptions []string
		ordinals, perUnits                  []int32
		quantities, amounts                 []int64
		pools                               []*int64
		keyless                             []bool
	)
	for i, l := range a.lines {
		switch {
		case l.remap:
			batch.Queue(mapLine, a.merchant, a.order.id, l.ID, l.pool.ID, l.perUnit).Exec(affects(1, ErrStale))
		case !l.stored:
			ids = append(ids, l.ID)
			ordinals = append(ordinals, int32(i+1))
			prices, products, descriptions = append(prices, l.Price), append(products, l.Product), append(descriptions, l.Description)
			quantities, amounts = append(quantities, l.Quantity), append(amounts, l.Amount)
			pools, keyless = append(pools, l.poolID()), append(keyless, l.mapped && l.pool == nil)
			perUnits = append(perUnits, int32(l.perUnit))
		}
	}
	if len(ids) > 0 {
		batch.Queue(insertLines, a.merchant, a.order.id, ids, ordinals, prices, products, descriptions, quantities, amounts,
			pools, keyless, perUnits).Exec(affects(len(ids), errRaced))
	}
}

func (l *line) poolID() *int64 {
	if l.pool == nil {
		return nil
	}
	return &l.pool.ID
}

// writeRest writes the units, what Stripe said of refunds and disputes, the findings, the deliveries with their jobs,
// and closes the events that this settle answers.
func (a *application) writeRest(ctx context.Context, tx pgx.Tx) error {
	batch := &pgx.Batch{}
	if len(a.shelf) > 0 {
		// A key that came back to an empty shelf belongs to who waited when it did. The look before the claim may have been
		// too early to see them; this one, after it, is not.
		batch.Queue(readQueued, a.merchant, a.shelf, a.order.id).Exec(affects(0, errOvertook))
	}
	a.queueUnits(batch)
	for _, r := range a.payment.Refunds {
		batch.Queue(upsertRefund, a.merchant, r.ID, a.order.id, r.Amount, r.Status, r.CreatedAt)
	}
	for _, d := range a.payment.Disputes {
		batch.Queue(upsertDispute, a.merchant, d.ID, a.order.id, d.Amount, d.Status, d.CreatedAt)
	}
	queueQuestions(batch, a.merchant, a.order.id, a.questions(), a.at)
	for _, l := range a.lines {
		if !l.mapped {
			batch.Queue(openFinding, a.merchant, UnknownPrice, l.Price, "", unknownPriceDetail(l), a.at)
		}
	}
	batch.Queue(finishEvents, a.merchant, a.payment.refs(), a.event, a.ticket, a.at, "")
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("write order %s: %w", a.order.id, err)
	}
	if err := a.writeDeliveries(ctx, tx); err != nil {
		return err
	}
	if !a.asks() {
		return nil
	}
	return a.tellFindings(ctx, tx, a.merchant)
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

func (a *application) queueUnits(batch *pgx.Batch) {
	var added, changed unitColumns
	for _, u := range a.plan.changed {
		switch {
		case u.state == "":
			added.add(u)
		case u.state != u.next || u.step == claim:
			changed.add(u)
		}
	}
	if n := len(added.lines); n > 0 {
		batch.Queue(insertUnits, a.merchant, a.order.id, a.paidAt(), a.at, added.lines, added.numbers, added.pools, added.states,
			added.keys, added.revokedBy).Exec(affects(n, errRaced))
	}
	if n := len(changed.lines); n > 0 {
		batch.Queue(updateUnits, a.merchant, a.order.id, a.paidAt(), a.at, changed.lines, changed.numbers, changed.states,
			changed.keys, changed.revokedBy, changed.was).Exec(affects(n, ErrStale))
	}
}

// unitColumns are units as a statement takes them.
type unitColumns struct {
	lines, states, revokedBy, was []string
	numbers                       []int32
	pools, keys                   []int64
}

func (c *unitColumns) add(u *unitChange) {
	by := RevokedBy("")
	if u.next == UnitRevoked {
		by = ByPayment
	}
	c.lines, c.numbers, c.pools = append(c.lines, u.line), append(c.numbers, int32(u.number)), append(c.pools, u.pool)
	c.states, c.keys = append(c.states, string(u.next)), append(c.keys, u.key)
	c.revokedBy, c.was = append(c.revokedBy, string(by)), append(c.was, string(u.state))
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
