package fulfillment

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/internal/pg"
	"github.com/keytill/keytill/inventory"
)

const (
	// Index: fulfilments_pkey.
	markRevealed = `
UPDATE keytill.fulfilments SET revealed_at = $3
 WHERE merchant_id = $1 AND order_id = $2 AND state = 'fulfilled' AND revealed_at IS NULL AND key_id = ANY ($4)`

	// Lock: the order. Index: orders_pkey.
	endLinks = `UPDATE keytill.orders SET link_serial = link_serial + 1 WHERE merchant_id = $1 AND order_id = $2`
)

// ForBuyer reads an order for the buyer's own page, and with reveal also the keys that they may use and be told of now,
// which are then marked as revealed. It returns ErrNoOrder for an order that does not exist, and for one whose links
// have been ended since the one with this serial was made.
func (s *Service) ForBuyer(ctx context.Context, merchant, id string, serial int, reveal bool) (Order, []inventory.Owned, error) {
	var (
		keys []inventory.Owned
		now  = s.now()
	)
	batch := &pgx.Batch{}
	read := queueOrders(batch, merchant, id)
	if reveal {
		s.keyset.QueueOwned(batch, merchant, id, now, &keys)
	}
	if err := s.db.SendBatch(ctx, batch).Close(); err != nil {
		return Order{}, nil, fmt.Errorf("read order %s for its buyer: %w", id, err)
	}
	order := read.orders[0]
	if order.ID == "" || order.LinkSerial != serial {
		return Order{}, nil, ErrNoOrder
	}
	if len(keys) == 0 {
		return order, nil, nil
	}
	order.arrange(keys)
	ids := make([]int64, len(keys))
	for i, k := range keys {
		ids[i] = k.KeyID
	}
	if _, err := s.db.Exec(ctx, markRevealed, merchant, id, now, ids); err != nil {
		return Order{}, nil, fmt.Errorf("note that the keys of order %s are revealed: %w", id, err)
	}
	return order, keys, nil
}

// EndLinks ends all links to the buyer's page of an order that were given out so far.
func (s *Service) EndLinks(ctx context.Context, merchant, query string, who Person) error {
	if err := who.check(); err != nil {
		return err
	}
	id, err := s.orderID(ctx, merchant, query)
	if err != nil {
		return err
	}
	return pg.InTx(ctx, s.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, endLinks, merchant, id); err != nil {
			return fmt.Errorf("end the links of order %s: %w", id, err)
		}
		return Record(ctx, tx, merchant, Act{At: s.now(), Actor: who.Name, Action: "end links", Order: id, Subject: id, Reason: who.Reason})
	})
}

// RevealLink notes in the audit that a person gets a link to an order's page, which shows its keys, and returns the order
// that the link is to name.
func (s *Service) RevealLink(ctx context.Context, merchant, query string, who Person) (Order, error) {
	if err := who.check(); err != nil {
		return Order{}, err
	}
	id, err := s.orderID(ctx, merchant, query)
	if err != nil {
		return Order{}, err
	}
	err = Record(ctx, s.db, merchant, Act{At: s.now(), Actor: who.Name, Action: "link", Order: id, Subject: id, Reason: who.Reason})
	if err != nil {
		return Order{}, err
	}
	return LoadOrder(ctx, s.db, merchant, id)
}
