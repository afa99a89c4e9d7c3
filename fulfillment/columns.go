package fulfillment

import "time"

// Rows of several orders go to a statement as columns: one array for each.

// orderValues are an order's row as its payment says it is.
type orderValues struct {
	order, intent, charge, reference, payment, currency string
	total, captured, refunded                           int64
	email, name, locale                                 string
	placed                                              time.Time
	paid                                                *time.Time
	ticket                                              int64
}

func (a *application) orderValues() orderValues {
	o := orderValues{order: a.order.id, payment: string(a.plan.verdict.Payment), refunded: a.plan.verdict.Refunded,
		paid: a.paidAt(), ticket: a.ticket}
	if i := a.payment.Intent; i != nil {
		o.intent, o.charge, o.captured = i.ID, i.Charge, i.Captured
		o.reference, o.currency, o.email, o.total, o.placed = i.Reference, i.Currency, i.Email, i.Amount, i.CreatedAt
	}
	if s := a.payment.Session; s != nil {
		o.reference, o.currency, o.email, o.total, o.placed = s.ClientReferenceID, s.Currency, s.Email, s.Total, s.CreatedAt
		o.name, o.locale = s.Name, s.Locale
	}
	return o
}

func (o orderValues) update(a *application) []any {
	return []any{a.merchant, o.order, o.intent, o.charge, o.reference, o.payment, o.currency, o.total, o.captured, o.refunded,
		o.email, o.name, o.locale, o.placed, o.paid, o.ticket, a.at}
}

// orderColumns are orders as insertOrders takes them.
type orderColumns struct {
	orders, intents, charges, references, payments, currencies []string
	totals, captured, refunded                                 []int64
	emails, names, locales                                     []string
	placed                                                     []time.Time
	paid                                                       []*time.Time
	tickets                                                    []int64
}

func (c *orderColumns) add(o orderValues) {
	c.orders, c.intents, c.charges = append(c.orders, o.order), append(c.intents, o.intent), append(c.charges, o.charge)
	c.references, c.payments = append(c.references, o.reference), append(c.payments, o.payment)
	c.currencies, c.totals = append(c.currencies, o.currency), append(c.totals, o.total)
	c.captured, c.refunded = append(c.captured, o.captured), append(c.refunded, o.refunded)
	c.emails, c.names, c.locales = append(c.emails, o.email), append(c.names, o.name), append(c.locales, o.locale)
	c.placed, c.paid, c.tickets = append(c.placed, o.placed), append(c.paid, o.paid), append(c.tickets, o.ticket)
}

func (c *orderColumns) values() []any {
	return []any{c.orders, c.intents, c.charges, c.references, c.payments, c.currencies, c.totals, c.captured, c.refunded, c.emails,
		c.names, c.locales, c.placed, c.paid, c.tickets}
}

// lineColumns are lines as insertLines takes them.
type lineColumns struct {
	orders, ids, prices, products, descriptions []string
	ordinals, perUnits                          []int32
	quantities, amounts                         []int64
	pools                                       []*int64
	keyless                                     []bool
}

func (c *lineColumns) add(order string, ordinal int, l line) {
	c.orders, c.ids, c.ordinals = append(c.orders, order), append(c.ids, l.ID), append(c.ordinals, int32(ordinal))
	c.prices, c.products = append(c.prices, l.Price), append(c.products, l.Product)
	c.descriptions, c.quantities = append(c.descriptions, l.Description), append(c.quantities, l.Quantity)
	c.amounts, c.pools = append(c.amounts, l.Amount), append(c.pools, l.poolID())
	c.keyless, c.perUnits = append(c.keyless, l.mapped && l.pool == nil), append(c.perUnits, int32(l.perUnit))
}

func (c *lineColumns) values() []any {
	return []any{c.orders, c.ids, c.ordinals, c.prices, c.products, c.descriptions, c.quantities, c.amounts, c.pools, c.keyless,
		c.perUnits}
}

// unitColumns are units as a statement takes them.
type unitColumns struct {
	orders, lines, states, revokedBy, was []string
	numbers                               []int32
	pools, keys                           []int64
	paid                                  []*time.Time
}

func (c *unitColumns) add(a *application, u *unitChange) {
	by := RevokedBy("")
	if u.next == UnitRevoked {
		by = ByPayment
	}
	c.orders, c.lines, c.numbers = append(c.orders, a.order.id), append(c.lines, u.line), append(c.numbers, int32(u.number))
	c.pools, c.states, c.keys = append(c.pools, u.pool), append(c.states, string(u.next)), append(c.keys, u.key)
	c.revokedBy, c.was, c.paid = append(c.revokedBy, string(by)), append(c.was, string(u.state)), append(c.paid, a.paidAt())
}
