package fulfillment

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/inventory"
)

// OwnedKeys decrypts the keys that an order's buyer may use and be told of now, in the order of its lines and units: for a
// storefront that shows them on its own pages.
func (s *Service) OwnedKeys(ctx context.Context, merchant, id string) ([]inventory.Owned, error) {
	var keys []inventory.Owned
	batch := &pgx.Batch{}
	read := queueOrders(batch, merchant, id)
	s.keyset.QueueOwned(batch, merchant, id, s.now(), &keys)
	if err := s.db.SendBatch(ctx, batch).Close(); err != nil {
		return nil, fmt.Errorf("read the keys of order %s: %w", id, err)
	}
	order := read.orders[0]
	if order.ID == "" {
		return nil, ErrNoOrder
	}
	order.arrange(keys)
	return keys, nil
}
