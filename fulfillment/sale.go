package fulfillment

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/internal/pg"
	"github.com/keytill/keytill/inventory"
)

// Most settles that change anything are of new sales: paid, not refunded, and nobody has seen the payment before. Those
// that are ready at the same time share a transaction, since a commit and a statement cost nearly the same for twenty
// orders as for one, and since twenty claims in one statement do not stand in each other's way.
//
// Sharing changes nothing of what comes out. Such a transaction waits for no lock that somebody may hold for long; whatever
// it finds to be more than a new sale is left to a transaction of its own, and so is each of them when it fails.

// errNoSale says that none of what looked like new sales is one.
var errNoSale = errors.New("not new sales after all")

// isSale reports whether the payment is likely to be a new sale.
func (r reading) isSale() bool {
	return !r.known && !r.retry && len(r.payment.Refunds) == 0 && len(r.payment.Disputes) == 0 && paid(r.payment, &Questions{})
}

// shareable reports whether a sale may be settled with others: of one merchant and actor, and each payment once.
func shareable(round []reading, next reading) bool {
	return !slices.ContainsFunc(round, func(r reading) bool {
		return r.merchant != next.merchant || r.actor != next.actor ||
			slices.ContainsFunc(r.ids(), func(id string) bool { return slices.Contains(next.ids(), id) })
	})
}

// ids are the names that the payment's order may have.
func (r reading) ids() []string {
	var ids []string
	if r.payment.Session != nil {
		ids = append(ids, r.payment.Session.ID)
	}
	if r.payment.Intent != nil {
		ids = append(ids, r.payment.Intent.ID)
	}
	return ids
}

// sell settles what is likely new sales in one transaction. What it finds to be more has no id in the answer.
func (s *Service) sell(ctx context.Context, sales []reading) (sold []settled, err error) {
	err = pg.InTx(ctx, s.db, func(tx pgx.Tx) error {
		apps := make([]*application, len(sales))
		for i, r := range sales {
			apps[i] = s.newApplication(r)
			apps[i].at = apps[0].at
		}
		plain, err := s.readSales(ctx, tx, apps)
		if err != nil {
			return err
		}
		if len(plain) == 0 {
			return errNoSale
		}
		slices.SortStableFunc(plain, byPayment)
		if err := s.converge(ctx, tx, plain); err != nil {
			return err
		}
		sold, err = readSold(ctx, tx, apps, plain)
		return err
	})
	return sold, err
}

// readSold says which of the sales were settled, with their orders where somebody wants them.
func readSold(ctx context.Context, tx pgx.Tx, apps, plain []*application) ([]settled, error) {
	sold := make([]settled, len(apps))
	var wanted []string
	for i, a := range apps {
		if !slices.Contains(plain, a) {
			continue
		}
		sold[i].id = a.order.id
		if a.reads {
			wanted = append(wanted, a.order.id)
		}
	}
	if len(wanted) == 0 {
		return sold, nil
	}
	batch := &pgx.Batch{}
	read := queueOrders(batch, apps[0].merchant, wanted...)
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return nil, fmt.Errorf("read %d orders: %w", len(wanted), err)
	}
	for i := range sold {
		if slices.Contains(wanted, sold[i].id) {
			sold[i].order = read.order(sold[i].id)
		}
	}
	return sold, nil
}

const (
	// Those of the names that an order has. Without a lock: a sale that has an order is settled alone. Index: orders_pkey,
	// orders_payment_intent.
	readKnown = `
SELECT ref FROM unnest($2::text[]) AS ref
 WHERE (SELECT true FROM keytill.orders o WHERE o.merchant_id = $1 AND o.order_id = ref)
    OR (SELECT true FROM keytill.orders o WHERE o.merchant_id = $1 AND o.payment_intent = ref)`

	// Index: reservations_pkey, keys_reserved_for.
	readHolders = `
SELECT ref FROM keytill.reservations WHERE merchant_id = $1 AND ref = ANY ($2)
UNION
SELECT reserved_for FROM keytill.keys WHERE merchant_id = $1 AND reserved_for = ANY ($2) AND state = 'reserved'`
)

// readSales reads what the sales' plans are made of, and returns those that are nothing but new sales: without an order, with
// nothing held for them, all their prices mapped.
func (s *Service) readSales(ctx context.Context, tx pgx.Tx, apps []*application) (plain []*application, err error) {
	var (
		lead           = apps[0]
		channels       channelNames
		names, refs    []string
		items          []string
		known, holders []string
		mappings       map[string]inventory.Mapping
		batch          = &pgx.Batch{}
	)
	for _, a := range apps {
		names, refs, items = append(names, a.reading.ids()...), append(refs, a.holdRefs()...), append(items, a.items()...)
	}
	slices.Sort(items)
	batch.Queue(readKnown, lead.merchant, names).Query(func(rows pgx.Rows) (err error) {
		known, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	batch.Queue(readChannels, lead.merchant).QueryRow(func(row pgx.Row) error { return row.Scan(&channels) })
	inventory.QueueMappings(batch, lead.merchant, slices.Compact(items)).Query(func(rows pgx.Rows) (err error) {
		mappings, err = inventory.CollectMappings(rows, lead.merchant)
		return err
	})
	batch.Queue(readHolders, lead.merchant, refs).Query(func(rows pgx.Rows) (err error) {
		holders, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return nil, fmt.Errorf("read what %d sales are made of: %w", len(apps), err)
	}
	for _, a := range apps {
		a.order.channels, a.order.unheld = channels, true
		if a.arrangeSale(mappings) && !s.elsewhere(channels) &&
			!slices.ContainsFunc(a.reading.ids(), func(name string) bool { return slices.Contains(known, name) }) &&
			!slices.ContainsFunc(a.holdRefs(), func(ref string) bool { return slices.Contains(holders, ref) }) {
			plain = append(plain, a)
		}
	}
	return plain, nil
}

// arrangeSale maps the payment's lines, and reports whether all of them are.
func (a *application) arrangeSale(mappings map[string]inventory.Mapping) bool {
	for _, l := range a.payment.lines() {
		next := line{Line: l, perUnit: 1}
		next.take(mappings)
		if !next.mapped {
			return false
		}
		a.lines = append(a.lines, next)
	}
	a.pad()
	return true
}
