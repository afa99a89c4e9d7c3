package fulfillment

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"github.com/keytill/keytill/internal/pg"
	"github.com/keytill/keytill/inventory"
)

const (
	// Lock: the units, in the order in which they are served. It does not skip locked ones: a unit that a settle holds
	// would then be overtaken by a newer order. Index: fulfilments_waiting.
	lockWaiting = `
SELECT order_id, line_id, unit
  FROM keytill.fulfilments
 WHERE merchant_id = $1 AND pool_id = $2 AND state = 'waiting'
 ORDER BY paid_at, order_id, line_id, unit
 LIMIT $3
   FOR NO KEY UPDATE`

	serveUnits = `
UPDATE keytill.fulfilments f
   SET state = 'fulfilled', key_id = u.key_id, changed_at = $2
  FROM unnest($3::text[], $4::text[], $5::int[], $6::bigint[]) AS u (order_id, line_id, unit, key_id)
 WHERE f.merchant_id = $1 AND f.order_id = u.order_id AND f.line_id = u.line_id AND f.unit = u.unit AND f.state = 'waiting'`

	// Whether the orders that were served still lack keys, and whom to tell. Index: orders_pkey, fulfilments_pkey.
	readServed = `
SELECT o.order_id, o.email,
       EXISTS (SELECT 1 FROM keytill.fulfilments f
                WHERE f.merchant_id = o.merchant_id AND f.order_id = o.order_id
                  AND f.state IN ('pending', 'waiting', 'failed'))
  FROM keytill.orders o
 WHERE o.merchant_id = $1 AND o.order_id = ANY ($2)
 ORDER BY o.paid_at, o.order_id`

	readRelease = `SELECT sku, release_at FROM keytill.pools WHERE merchant_id = $1 AND pool_id = $2`
)

// servedAtOnce bounds one round of serving, so that its arrays stay small; a transaction may do several rounds.
const servedAtOnce = 50_000

// Serve gives keys to the units that wait in a pool, oldest payment first, as far as the stock goes, and says how many
// it served. The caller holds the pool's lock (inventory.LockPools) and commits.
func (s *Service) Serve(ctx context.Context, tx pgx.Tx, merchant string, pool int64) (int, error) {
	var channels channelNames
	if err := tx.QueryRow(ctx, readChannels, merchant).Scan(&channels); err != nil {
		return 0, fmt.Errorf("read the channels: %w", err)
	}
	if s.elsewhere(channels) {
		return 0, insertJobs(ctx, s.jobs, tx, []river.InsertManyParams{{Args: ServeJob{Merchant: merchant, Pool: pool}}})
	}
	served := 0
	for {
		n, err := s.serveRound(ctx, tx, merchant, pool)
		if err != nil {
			return served, fmt.Errorf("serve the waiting units of pool %d: %w", pool, err)
		}
		served += n
		if n < servedAtOnce {
			return served, nil
		}
	}
}

func (s *Service) serveRound(ctx context.Context, tx pgx.Tx, merchant string, pool int64) (int, error) {
	rows, err := tx.Query(ctx, lockWaiting, merchant, pool, servedAtOnce)
	if err != nil {
		return 0, err
	}
	waiting, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (u inventory.Unit, err error) {
		err = row.Scan(&u.Order, &u.Line, &u.Unit)
		return u, err
	})
	if err != nil || len(waiting) == 0 {
		return 0, err
	}
	at := s.now()
	// Whoever holds a key's lock now gives it back or takes it for good; both are worth waiting for, since the units here
	// are the oldest.
	claimed, err := s.claimer.Claim(ctx, tx, inventory.Request{Merchant: merchant, Pool: pool, Units: waiting, Patient: true,
		Change: inventory.Change{Reason: "restock", Actor: actorSettle, At: at}})
	if err != nil || len(claimed) == 0 {
		return 0, err
	}
	return len(claimed), s.hand(ctx, tx, merchant, pool, claimed, at)
}

// hand writes that the units have their keys, and tells whom it concerns.
func (s *Service) hand(ctx context.Context, tx pgx.Tx, merchant string, pool int64, claimed []inventory.Claimed, at time.Time) error {
	var (
		orders, lines []string
		numbers       []int32
		keys          []int64
		sku           string
		release       *time.Time
		channels      channelNames
	)
	for _, c := range claimed {
		orders, lines = append(orders, c.Unit.Order), append(lines, c.Unit.Line)
		numbers, keys = append(numbers, int32(c.Unit.Unit)), append(keys, c.KeyID)
	}
	batch := &pgx.Batch{}
	batch.Queue(serveUnits, merchant, at, orders, lines, numbers, keys).Exec(affects(len(claimed), inventory.ErrMoved))
	batch.Queue(readChannels, merchant).QueryRow(func(row pgx.Row) error { return row.Scan(&channels) })
	batch.Queue(readRelease, merchant, pool).QueryRow(func(row pgx.Row) error { return row.Scan(&sku, &release) })
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return err
	}
	after := at
	if release != nil && release.After(at) {
		after = *release
	}
	units := make(map[string][]NoticeUnit)
	moves := make(map[string][]UnitMove)
	for _, c := range claimed {
		moves[c.Unit.Order] = append(moves[c.Unit.Order], UnitMove{Line: c.Unit.Line, Unit: c.Unit.Unit, SKU: sku,
			From: UnitWaiting, To: UnitFulfilled, KeyID: c.KeyID})
		units[c.Unit.Order] = append(units[c.Unit.Order], NoticeUnit{Line: c.Unit.Line, Unit: c.Unit.Unit, SKU: sku})
	}
	rows, err := tx.Query(ctx, readServed, merchant, orders)
	if err != nil {
		return err
	}
	var told deliveries
	var order, email string
	var lacks bool
	_, err = pgx.ForEachRow(rows, []any{&order, &email, &lacks}, func() error {
		if channels.has(ChannelEmail) && email != "" {
			told.add(order, ChannelEmail, notice{kind: KeysReady, units: units[order], after: after}, email)
		}
		for _, channel := range channels.storefront() {
			if !lacks {
				told.add(order, channel, notice{kind: FulfillmentCompleted, units: units[order], after: after}, "")
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	jobs, err := told.insert(ctx, tx, merchant, at)
	if err != nil {
		return err
	}
	if err := insertJobs(ctx, s.jobs, tx, spreadLater(merchant, jobs)); err != nil {
		return err
	}
	for _, order := range slices.Sorted(maps.Keys(moves)) {
		if err := s.changed(ctx, tx, Change{Merchant: merchant, Order: order, At: at, Units: moves[order]}); err != nil {
			return err
		}
	}
	return nil
}

// ServeWaiting serves a pool's waiting units in a transaction of its own.
func (s *Service) ServeWaiting(ctx context.Context, merchant string, pool int64) (served int, err error) {
	err = pg.InTx(ctx, s.db, func(tx pgx.Tx) error {
		if err := inventory.LockPools(ctx, tx, merchant, []int64{pool}); err != nil {
			return err
		}
		served, err = s.Serve(ctx, tx, merchant, pool)
		return err
	})
	return served, err
}

const (
	// The finding about a price closes with the price or its product. Index: findings_open, lines_unmapped_product.
	closeUnknownPrice = `
UPDATE keytill.findings SET closed_at = $3
 WHERE merchant_id = $1 AND kind = 'unknown_price' AND closed_at IS NULL
   AND (subject = $2 OR subject IN (SELECT price FROM keytill.lines
                                     WHERE merchant_id = $1 AND product = $2 AND pool_id IS NULL AND NOT keyless))`

	// Lock: the lines. Index: lines_unmapped_price, lines_unmapped_product.
	markKeyless = `
UPDATE keytill.lines SET keyless = true
 WHERE merchant_id = $1 AND pool_id IS NULL AND NOT keyless
   AND (price = $2 OR product = $2 AND NOT EXISTS (SELECT 1 FROM keytill.price_map m
                                                    WHERE m.merchant_id = lines.merchant_id AND m.item = lines.price))`

	// Orders with a line of this price or product that had no pool when they were settled. Index: lines_unmapped_price,
	// lines_unmapped_product.
	readUnmapped = `
SELECT DISTINCT order_id FROM keytill.lines
 WHERE merchant_id = $1 AND pool_id IS NULL AND NOT keyless AND (price = $2 OR product = $2)`
)

// Map says what a price or product hands out (pool nil: no keys), closes the finding about it, and leaves the orders
// that waited for it to a job.
func (s *Service) Map(ctx context.Context, merchant, item string, pool *inventory.Pool, perUnit int) error {
	return pg.InTx(ctx, s.db, func(tx pgx.Tx) error {
		if err := inventory.Map(ctx, tx, merchant, item, pool, perUnit); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, closeUnknownPrice, merchant, item, s.now()); err != nil {
			return fmt.Errorf("close the finding about %s: %w", item, err)
		}
		if pool == nil {
			// The orders that asked have their answer too, and keep to it.
			if _, err := tx.Exec(ctx, markKeyless, merchant, item); err != nil {
				return fmt.Errorf("answer the orders of %s: %w", item, err)
			}
		}
		return insertJobs(ctx, s.jobs, tx, []river.InsertManyParams{{Args: MappedJob{Merchant: merchant, Item: item}}})
	})
}

// SettleMapped leaves a settle for each order that waited for a price or product to be mapped.
func (s *Service) SettleMapped(ctx context.Context, merchant, item string) error {
	return pg.InTx(ctx, s.db, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, readUnmapped, merchant, item)
		if err != nil {
			return fmt.Errorf("look for orders of %s: %w", item, err)
		}
		orders, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return fmt.Errorf("look for orders of %s: %w", item, err)
		}
		jobs := make([]river.InsertManyParams, len(orders))
		for i, order := range orders {
			jobs[i].Args = SettleJob{Merchant: merchant, Ref: order}
		}
		return insertJobs(ctx, s.jobs, tx, jobs)
	})
}
