package inventory

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/internal/pg"
)

// A Mapping says what one unit of a Stripe price or product hands out: keys of a pool, or none.
type Mapping struct {
	Item    string // price_… or prod_…, or what a PaymentIntent's keytill_lines names
	Pool    *Pool  // nil: no keys here
	PerUnit int    // keys for each unit of quantity
}

const (
	maxPerUnit = 100

	// Lock: the item, shared by settles that found it unmapped and exclusive to whoever maps it, so that an order is
	// either settled with the new mapping or seen by those who look for the orders that waited for it.
	lockItemShared = `SELECT pg_advisory_xact_lock_shared(hashtextextended('keytill.item ' || $1 || ' ' || $2, 0))`
	lockItem       = `SELECT pg_advisory_xact_lock(hashtextextended('keytill.item ' || $1 || ' ' || $2, 0))`

	upsertMapping = `
INSERT INTO keytill.price_map (merchant_id, item, pool_id, per_unit) VALUES ($1, $2, $3, $4)
ON CONFLICT (merchant_id, item) DO UPDATE SET pool_id = excluded.pool_id, per_unit = excluded.per_unit`

	// A pool's own SKU names it too, where nothing is mapped under that name.
	// Index: price_map_pkey, pools_pkey, pools_merchant_id_sku_key.
	readMappings = `
SELECT m.item, m.per_unit, ` + PoolColumns + `
  FROM keytill.price_map m
  LEFT JOIN keytill.pools p ON p.merchant_id = m.merchant_id AND p.pool_id = m.pool_id
 WHERE m.merchant_id = $1 AND m.item = ANY ($2)
UNION ALL
SELECT p.sku, 1, ` + PoolColumns + `
  FROM keytill.pools p
 WHERE p.merchant_id = $1 AND p.sku = ANY ($2)
   AND NOT EXISTS (SELECT 1 FROM keytill.price_map m WHERE m.merchant_id = $1 AND m.item = p.sku)`

	// Index: price_map_pkey, pools_pkey.
	readItemsAfter = `
SELECT m.item, m.pool_id, m.per_unit, coalesce(p.sku, '')
  FROM keytill.price_map m
  LEFT JOIN keytill.pools p ON p.merchant_id = m.merchant_id AND p.pool_id = m.pool_id
 WHERE m.merchant_id = $1 AND m.item > $2
 ORDER BY m.item
 LIMIT $3`

	// Index: price_map_pool.
	readItemsOf = `
SELECT item, pool_id, per_unit, '' FROM keytill.price_map WHERE merchant_id = $1 AND pool_id = $2 ORDER BY item LIMIT $3`

	readItems = `SELECT item, pool_id, per_unit, '' FROM keytill.price_map WHERE merchant_id = $1 ORDER BY item`
)

// Map says what a price or product hands out from now on; pool nil marks it *no keys here*. Units that exist keep the
// pool they have. The orders that waited for the item are fulfillment's to settle, after the commit.
func Map(ctx context.Context, tx pgx.Tx, merchant, item string, pool *Pool, perUnit int) error {
	if item == "" {
		return errors.New("name a Stripe price (price_…) or product (prod_…) to map")
	}
	if perUnit < 1 || perUnit > maxPerUnit {
		return fmt.Errorf("%d keys per unit: it must be from 1 to %d", perUnit, maxPerUnit)
	}
	if _, err := tx.Exec(ctx, lockItem, merchant, item); err != nil {
		return fmt.Errorf("lock the mapping of %s: %w", item, err)
	}
	var poolID *int64
	if pool != nil {
		poolID = &pool.ID
	}
	if _, err := tx.Exec(ctx, upsertMapping, merchant, item, poolID, perUnit); err != nil {
		return fmt.Errorf("map %s: %w", item, err)
	}
	return nil
}

// Mappings finds what is mapped among the items.
func Mappings(ctx context.Context, db pg.Querier, merchant string, items []string) (map[string]Mapping, error) {
	rows, err := db.Query(ctx, readMappings, merchant, items)
	if err != nil {
		return nil, fmt.Errorf("read the price map: %w", err)
	}
	return CollectMappings(rows, merchant)
}

// QueueMappings puts the question of Mappings into a batch; CollectMappings reads its answer.
func QueueMappings(batch *pgx.Batch, merchant string, items []string) *pgx.QueuedQuery {
	return batch.Queue(readMappings, merchant, items)
}

// CollectMappings reads the answer to Mappings' question.
func CollectMappings(rows pgx.Rows, merchant string) (map[string]Mapping, error) {
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Mapping, error) { return scanMapping(row, merchant) })
	if err != nil {
		return nil, fmt.Errorf("read the price map: %w", err)
	}
	mappings := make(map[string]Mapping, len(list))
	for _, m := range list {
		mappings[m.Item] = m
	}
	return mappings, nil
}

// LockUnmapped holds the items' mappings still until the transaction ends, and reads them again.
func LockUnmapped(ctx context.Context, tx pgx.Tx, merchant string, items []string) (map[string]Mapping, error) {
	for _, item := range items {
		if _, err := tx.Exec(ctx, lockItemShared, merchant, item); err != nil {
			return nil, fmt.Errorf("lock the mapping of %s: %w", item, err)
		}
	}
	return Mappings(ctx, tx, merchant, items)
}

func scanMapping(row pgx.CollectableRow, merchant string) (Mapping, error) {
	var (
		m Mapping
		r PoolRow
	)
	err := row.Scan(append([]any{&m.Item, &m.PerUnit}, r.Dest()...)...)
	m.Pool = r.Pool(merchant)
	return m, err
}

// An Item is a row of the price map as it is listed.
type Item struct {
	Item    string
	PoolID  *int64
	PerUnit int
	SKU     string // of the pool, where ItemsAfter lists it
}

// ItemsAfter lists a page of a merchant's price map, after an item (empty: from the beginning).
func ItemsAfter(ctx context.Context, db pg.Querier, merchant, after string, most int) ([]Item, error) {
	return readItemList(ctx, db, readItemsAfter, merchant, after, most)
}

// ItemsOf lists what is sold from a pool, so many at most.
func ItemsOf(ctx context.Context, db pg.Querier, merchant string, pool int64, most int) ([]Item, error) {
	return readItemList(ctx, db, readItemsOf, merchant, pool, most)
}

// Items lists a merchant's price map.
func Items(ctx context.Context, db pg.Querier, merchant string) ([]Item, error) {
	return readItemList(ctx, db, readItems, merchant)
}

func readItemList(ctx context.Context, db pg.Querier, query string, args ...any) ([]Item, error) {
	rows, err := db.Query(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("read the price map: %w", err)
	}
	items, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Item])
	if err != nil {
		return nil, fmt.Errorf("read the price map: %w", err)
	}
	return items, nil
}
