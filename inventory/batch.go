package inventory

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/internal/pg"
)

// ErrNoBatch says that a pool has no such batch.
var ErrNoBatch = errors.New("the pool has no such batch: `keytill batch list --pool SKU` shows those there are")

// ErrBatchState says that what was asked for makes no sense for a batch in its state.
var ErrBatchState = errors.New("this batch cannot be brought to that state")

// BatchState is what became of a batch as a whole.
type BatchState string

const (
	BatchImported    BatchState = "imported"    // on the shelf, or sold
	BatchQuarantined BatchState = "quarantined" // what was not sold is kept off the shelf
	BatchRecalled    BatchState = "recalled"    // what was not sold is gone for good
)

// A Batch is one import.
type Batch struct {
	ID        int64      `json:"id"`
	FileName  string     `json:"file"`
	Supplier  string     `json:"supplier,omitempty"`
	Actor     string     `json:"by"`
	State     BatchState `json:"state"`
	Keys      int64      `json:"keys"`
	CreatedAt time.Time  `json:"at"`
	Counts    Counts     `json:"counts"` // its keys by state, now
}

// A SoldKey is a key of a batch that somebody has.
type SoldKey struct {
	KeyID int64  `json:"key_id"`
	Order string `json:"order"`
	Line  string `json:"line"`
	Unit  int    `json:"unit"`
	State State  `json:"state"`
}

const (
	// Index: keys_batch.
	readBatches = `
SELECT b.batch_id, b.file_name, b.supplier, b.actor, b.state, b.keys, b.created_at,
       coalesce((SELECT jsonb_object_agg(state, keys)
                   FROM (SELECT k.state, count(*) AS keys FROM keytill.keys k
                          WHERE k.merchant_id = b.merchant_id AND k.batch_id = b.batch_id GROUP BY k.state) AS c), '{}')
  FROM keytill.batches b
 WHERE b.merchant_id = $1 AND b.pool_id = $2 AND ($3::bigint = 0 OR b.batch_id < $3)
 ORDER BY b.batch_id DESC
 LIMIT $4`

	// The same without a look at any key. Index: batches_pool, backwards.
	readBatchHeads = `
SELECT batch_id, file_name, supplier, actor, state, keys, created_at, '{}'::jsonb
  FROM keytill.batches
 WHERE merchant_id = $1 AND pool_id = $2 AND batch_id < $3
 ORDER BY batch_id DESC
 LIMIT $4`

	// What is folded, and the movements since (see countStock). A batch whose pool was never folded is all tail.
	// Index: batches_pkey, batch_counts_pkey, pool_figures_pkey, movements_pkey, keys_pkey.
	readBatch = `
SELECT b.batch_id, b.file_name, b.supplier, b.actor, b.state, b.keys, b.created_at,
       coalesce((SELECT jsonb_object_agg(state, keys) FROM (
           SELECT parts.state, sum(parts.keys) AS keys FROM (
               SELECT c.state, c.keys FROM keytill.batch_counts c WHERE c.merchant_id = b.merchant_id AND c.batch_id = b.batch_id
               UNION ALL
               SELECT ends.state, ends.keys
                 FROM (SELECT m.from_state, m.to_state, m.keys, m.key_id, m.batch_id FROM keytill.movements m
                        WHERE m.merchant_id = b.merchant_id AND m.pool_id = b.pool_id
                          AND m.xid >= coalesce((SELECT f.horizon FROM keytill.pool_figures f
                                                  WHERE f.merchant_id = b.merchant_id AND f.pool_id = b.pool_id), '0')
                        ORDER BY m.xid, m.movement_id OFFSET 0) AS tail
                 LEFT JOIN keytill.keys k ON k.merchant_id = b.merchant_id AND k.key_id = tail.key_id
                CROSS JOIN LATERAL (VALUES (tail.to_state, tail.keys), (tail.from_state, -tail.keys)) AS ends (state, keys)
                WHERE coalesce(tail.batch_id, k.batch_id) = b.batch_id AND ends.state IS NOT NULL
           ) AS parts GROUP BY parts.state HAVING sum(parts.keys) <> 0) AS sums), '{}')
  FROM keytill.batches b
 WHERE b.merchant_id = $1 AND b.pool_id = $2 AND b.batch_id = $3`

	// Lock: the batch. Its pool's lock is held already.
	lockBatch = `
SELECT batch_id, state FROM keytill.batches
 WHERE merchant_id = $1 AND pool_id = $2 AND ($3::bigint = 0 OR batch_id = $3)
 ORDER BY batch_id DESC
 LIMIT 1
   FOR UPDATE`

	setBatchState = `UPDATE keytill.batches SET state = $3 WHERE merchant_id = $1 AND batch_id = $2`

	// Lock: the batch's keys, waiting for those that a claim is at. Index: keys_batch.
	moveBatch = `
WITH picked AS MATERIALIZED (
    SELECT key_id, state FROM keytill.keys
     WHERE merchant_id = $1 AND batch_id = $2 AND state = ANY ($3)
     ORDER BY key_id
       FOR UPDATE
), moved AS (
    UPDATE keytill.keys k SET state = $4, reserved_for = NULL, reserved_until = NULL
      FROM picked p
     WHERE k.merchant_id = $1 AND k.key_id = p.key_id
    RETURNING k.key_id, k.pool_id, p.state AS was
), written AS (
    INSERT INTO keytill.movements (merchant_id, pool_id, key_id, from_state, to_state, reason, actor, at)
    SELECT $1, pool_id, key_id, was, $4, $5, $6, $7 FROM moved
)
SELECT count(*) FROM moved`

	// A stretch of the batch, so that what is read is bounded wherever its sold keys lie. Index: keys_batch.
	readBatchPart = `
SELECT key_id, coalesce(order_id, ''), coalesce(line_id, ''), coalesce(unit, 0), state FROM keytill.keys
 WHERE merchant_id = $1 AND batch_id = $2 AND key_id > $3
 ORDER BY key_id
 LIMIT $4`

	// Index: keys_batch.
	readBatchSold = `
SELECT key_id, order_id, line_id, unit, state FROM keytill.keys
 WHERE merchant_id = $1 AND batch_id = $2 AND state IN ('allocated', 'suspended')
 ORDER BY order_id, line_id, unit`
)

// Batches lists a pool's imports, newest first.
func Batches(ctx context.Context, db pg.Querier, merchant string, pool int64) ([]Batch, error) {
	return BatchesBefore(ctx, db, merchant, pool, 0, math.MaxInt32)
}

// BatchesBefore lists a page of a pool's imports, newest first, before the one with an id (0: from the newest).
func BatchesBefore(ctx context.Context, db pg.Querier, merchant string, pool, before int64, most int) ([]Batch, error) {
	return readBatchList(ctx, db, readBatches, merchant, pool, before, most)
}

// BatchHeadsBefore is BatchesBefore without counts: it reads no more than it returns, however many keys the batches have.
func BatchHeadsBefore(ctx context.Context, db pg.Querier, merchant string, pool, before int64, most int) ([]Batch, error) {
	if before == 0 {
		before = math.MaxInt64
	}
	return readBatchList(ctx, db, readBatchHeads, merchant, pool, before, most)
}

// BatchByID reads one batch of a pool, with its counts as the ledger has them: it looks at no key that has not moved since
// the last fold (see fulfillment.FoldFigures), however many the batch has.
func BatchByID(ctx context.Context, db pg.Querier, merchant string, pool, id int64) (Batch, error) {
	rows, err := db.Query(ctx, readBatch, merchant, pool, id)
	if err != nil {
		return Batch{}, fmt.Errorf("read batch %d: %w", id, err)
	}
	batch, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Batch])
	if errors.Is(err, pgx.ErrNoRows) {
		return Batch{}, ErrNoBatch
	}
	if err != nil {
		return Batch{}, fmt.Errorf("read batch %d: %w", id, err)
	}
	return batch, nil
}

func readBatchList(ctx context.Context, db pg.Querier, query, merchant string, pool, before int64, most int) ([]Batch, error) {
	rows, err := db.Query(ctx, query, merchant, pool, before, most)
	if err != nil {
		return nil, fmt.Errorf("read the batches: %w", err)
	}
	batches, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Batch])
	if err != nil {
		return nil, fmt.Errorf("read the batches: %w", err)
	}
	return batches, nil
}

// batchMoves says which of a batch's keys a state of the batch concerns, and what becomes of them. What is sold stays with
// its buyer: taking that back is a matter of each order.
var batchMoves = map[BatchState]struct {
	from []State
	to   State
}{
	BatchQuarantined: {[]State{Available, Reserved}, Quarantined},
	BatchRecalled:    {[]State{Available, Reserved, Quarantined}, Revoked},
	BatchImported:    {[]State{Quarantined}, Available},
}

// SetBatchState quarantines, recalls or releases a batch (id 0: the pool's newest), and says how many keys moved. A
// recalled batch stays recalled. The caller holds the pool's lock, and after a release serves who waits.
func SetBatchState(ctx context.Context, tx pgx.Tx, merchant string, pool, id int64, state BatchState, change Change) (batch, moved int64, err error) {
	var was BatchState
	err = tx.QueryRow(ctx, lockBatch, merchant, pool, id).Scan(&batch, &was)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return 0, 0, ErrNoBatch
	case err != nil:
		return 0, 0, fmt.Errorf("lock the batch: %w", err)
	case was == BatchRecalled && state != BatchRecalled:
		return batch, 0, fmt.Errorf("batch %d was recalled: %w", batch, ErrBatchState)
	}
	if _, err := tx.Exec(ctx, setBatchState, merchant, batch, state); err != nil {
		return batch, 0, fmt.Errorf("write batch %d: %w", batch, err)
	}
	m := batchMoves[state]
	err = tx.QueryRow(ctx, moveBatch, merchant, batch, m.from, m.to, change.Reason, change.Actor, change.At).Scan(&moved)
	if err != nil {
		return batch, 0, fmt.Errorf("move the keys of batch %d: %w", batch, err)
	}
	return batch, moved, nil
}

// SoldOfBatch lists the keys of a batch that somebody has.
func SoldOfBatch(ctx context.Context, db pg.Querier, merchant string, batch int64) ([]SoldKey, error) {
	rows, err := db.Query(ctx, readBatchSold, merchant, batch)
	if err != nil {
		return nil, fmt.Errorf("read the sold keys of batch %d: %w", batch, err)
	}
	sold, err := pgx.CollectRows(rows, pgx.RowToStructByPos[SoldKey])
	if err != nil {
		return nil, fmt.Errorf("read the sold keys of batch %d: %w", batch, err)
	}
	return sold, nil
}

// batchStretch is how many keys of a batch are looked at for one page of those that are sold.
const batchStretch = 1000

// SoldOfBatchAfter lists a page of the keys of a batch that somebody has, by their ids, after one (0: from the beginning),
// and says where to go on: 0 at the batch's end. Keys are sold in the order of their ids, so that the sold ones lie
// together; where they do not, a page may have fewer than most although there are more.
func SoldOfBatchAfter(ctx context.Context, db pg.Querier, merchant string, batch, after int64, most int) (sold []SoldKey, next int64, err error) {
	rows, err := db.Query(ctx, readBatchPart, merchant, batch, after, batchStretch)
	if err != nil {
		return nil, 0, fmt.Errorf("read the sold keys of batch %d: %w", batch, err)
	}
	part, err := pgx.CollectRows(rows, pgx.RowToStructByPos[SoldKey])
	if err != nil {
		return nil, 0, fmt.Errorf("read the sold keys of batch %d: %w", batch, err)
	}
	for i, k := range part {
		if !k.State.Live() {
			continue
		}
		if sold = append(sold, k); len(sold) == most && i < len(part)-1 {
			return sold, k.KeyID, nil
		}
	}
	if len(part) == batchStretch {
		next = part[len(part)-1].KeyID
	}
	return sold, next, nil
}
