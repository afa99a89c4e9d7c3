package inventory

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/internal/pg"
)

// Errors about pools, each for the name that was given.
var (
	ErrNoPool     = errors.New("no pool of this SKU: `keytill pool list` shows those there are")
	ErrPoolExists = errors.New("a pool of this SKU exists already")
	ErrNoMerchant = errors.New("no such merchant: `keytill merchant add` makes one")
)

// Shortage says what a pool does with a paid unit that it has no key for.
type Shortage string

const (
	Wait Shortage = "wait" // the unit waits for stock, oldest payment first
	Fail Shortage = "fail" // the unit fails at once, and a person is asked
)

// A Pool is the shelf: all keys of one SKU of one merchant.
type Pool struct {
	Merchant      string
	ID            int64
	SKU           string
	Name          string // what a buyer reads
	Shortage      Shortage
	PendingSupply *int64     // how many units may be sold ahead; nil: any number
	ReleaseAt     *time.Time // nothing is announced before
	LowKeys       *int64     // tell when no more keys than this are left; nil: do not
	LowPercent    *int       // … or no more than this of what was last stocked; nil: do not
	MaxReserved   *int64     // how many keys may be held at once; nil: any number
	CreatedAt     time.Time
}

// WatchesStock reports whether somebody wants to be told when the pool runs low.
func (p Pool) WatchesStock() bool { return p.LowKeys != nil || p.LowPercent != nil }

const (
	insertPool = `
INSERT INTO keytill.pools
       (merchant_id, sku, name, shortage, pending_supply, release_at, low_keys, low_percent, max_reserved, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
RETURNING pool_id`

	insertStock = `INSERT INTO keytill.stock (merchant_id, pool_id) VALUES ($1, $2)`

	// Index: pools_merchant_id_sku_key.
	readPool = `SELECT ` + PoolColumns + ` FROM keytill.pools p WHERE p.merchant_id = $1 AND p.sku = $2`

	readPools = `SELECT ` + PoolColumns + ` FROM keytill.pools p WHERE p.merchant_id = $1 ORDER BY p.sku`

	// Index: pools_merchant_id_sku_key.
	readPoolsAfter = `SELECT ` + PoolColumns + ` FROM keytill.pools p WHERE p.merchant_id = $1 AND p.sku > $2 ORDER BY p.sku LIMIT $3`

	// Index: pools_pkey.
	readPoolsOf = `SELECT ` + PoolColumns + ` FROM keytill.pools p WHERE p.merchant_id = $1 AND p.pool_id = ANY ($2)`

	// What was told of low stock is told again only by the new marks. Lock: the pool. Index: pools_merchant_id_sku_key.
	updatePool = `
UPDATE keytill.pools
   SET name = $3, shortage = $4, pending_supply = $5, release_at = $6, low_keys = $7, low_percent = $8, max_reserved = $9,
       low_told = low_told AND (low_keys, low_percent) IS NOT DISTINCT FROM ($7, $8)
 WHERE merchant_id = $1 AND sku = $2
RETURNING pool_id, created_at`

	// Lock: the pools' rows, in the order of their ids. Held to the end of the transaction by whoever brings stock,
	// serves waiting units or claims patiently; a usual claim does not need it.
	lockPools = `SELECT pool_id FROM keytill.pools WHERE merchant_id = $1 AND pool_id = ANY ($2) ORDER BY pool_id FOR NO KEY UPDATE`
)

// CreatePool makes a pool, empty.
func CreatePool(ctx context.Context, tx pgx.Tx, pool Pool) (Pool, error) {
	pool.SKU = strings.TrimSpace(pool.SKU)
	if pool.SKU == "" {
		return Pool{}, errors.New("a pool needs a SKU")
	}
	if pool.Name == "" {
		pool.Name = pool.SKU
	}
	if pool.Shortage == "" {
		pool.Shortage = Wait
	}
	err := tx.QueryRow(ctx, insertPool, pool.Merchant, pool.SKU, pool.Name, pool.Shortage, pool.PendingSupply, pool.ReleaseAt,
		pool.LowKeys, pool.LowPercent, pool.MaxReserved, pool.CreatedAt).Scan(&pool.ID)
	switch {
	case pg.Violates(err, "pools_merchant_id_sku_key"):
		return Pool{}, fmt.Errorf("%s: %w", pool.SKU, ErrPoolExists)
	case pg.Violates(err, "pools_merchant_id_fkey"):
		return Pool{}, fmt.Errorf("%s: %w", pool.Merchant, ErrNoMerchant)
	case err != nil:
		return Pool{}, fmt.Errorf("make pool %s: %w", pool.SKU, err)
	}
	if _, err := tx.Exec(ctx, insertStock, pool.Merchant, pool.ID); err != nil {
		return Pool{}, fmt.Errorf("make pool %s: %w", pool.SKU, err)
	}
	return pool, nil
}

// ChangePool gives the pool of a SKU the rules and the name of this one. The caller holds its lock, so that no claim goes
// by half of the old rules.
func ChangePool(ctx context.Context, tx pgx.Tx, pool Pool) (Pool, error) {
	if pool.Name == "" {
		pool.Name = pool.SKU
	}
	if pool.Shortage == "" {
		pool.Shortage = Wait
	}
	err := tx.QueryRow(ctx, updatePool, pool.Merchant, pool.SKU, pool.Name, pool.Shortage, pool.PendingSupply, pool.ReleaseAt,
		pool.LowKeys, pool.LowPercent, pool.MaxReserved).Scan(&pool.ID, &pool.CreatedAt)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Pool{}, fmt.Errorf("%s: %w", pool.SKU, ErrNoPool)
	case err != nil:
		return Pool{}, fmt.Errorf("change pool %s: %w", pool.SKU, err)
	}
	return pool, nil
}

// PoolBySKU finds a pool, or ErrNoPool.
func PoolBySKU(ctx context.Context, db pg.Querier, merchant, sku string) (Pool, error) {
	rows, err := db.Query(ctx, readPool, merchant, sku)
	if err != nil {
		return Pool{}, fmt.Errorf("read pool %s: %w", sku, err)
	}
	pool, err := pgx.CollectExactlyOneRow(rows, scanPool(merchant))
	if errors.Is(err, pgx.ErrNoRows) {
		return Pool{}, fmt.Errorf("%s: %w", sku, ErrNoPool)
	}
	if err != nil {
		return Pool{}, fmt.Errorf("read pool %s: %w", sku, err)
	}
	return pool, nil
}

// Pools lists a merchant's pools by SKU.
func Pools(ctx context.Context, db pg.Querier, merchant string) ([]Pool, error) {
	return readPoolList(ctx, db, merchant, readPools, merchant)
}

// PoolsAfter lists a page of a merchant's pools by SKU, after one (empty: from the beginning).
func PoolsAfter(ctx context.Context, db pg.Querier, merchant, after string, most int) ([]Pool, error) {
	return readPoolList(ctx, db, merchant, readPoolsAfter, merchant, after, most)
}

// PoolsOf reads the pools with some ids, in no order.
func PoolsOf(ctx context.Context, db pg.Querier, merchant string, ids []int64) ([]Pool, error) {
	return readPoolList(ctx, db, merchant, readPoolsOf, merchant, ids)
}

func readPoolList(ctx context.Context, db pg.Querier, merchant, query string, args ...any) ([]Pool, error) {
	rows, err := db.Query(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("read the pools: %w", err)
	}
	pools, err := pgx.CollectRows(rows, scanPool(merchant))
	if err != nil {
		return nil, fmt.Errorf("read the pools: %w", err)
	}
	return pools, nil
}

// LockPools takes the pools' locks, which comes before any other lock of a transaction.
func LockPools(ctx context.Context, tx pgx.Tx, merchant string, pools []int64) error {
	if len(pools) == 0 {
		return nil
	}
	if _, err := tx.Exec(ctx, lockPools, merchant, pools); err != nil {
		return fmt.Errorf("lock the pools %v: %w", pools, err)
	}
	return nil
}

// PoolColumns are a pool's columns, of a table or a left join that is called p, as PoolRow scans them.
const PoolColumns = `p.pool_id, p.sku, p.name, p.shortage, p.pending_supply, p.release_at, p.low_keys, p.low_percent,
       p.max_reserved, p.created_at`

// A PoolRow takes PoolColumns, all of which are null where a left join found no pool.
type PoolRow struct {
	id        *int64
	sku, name *string
	shortage  *Shortage
	created   *time.Time
	pool      Pool
}

// Dest is where the columns go.
func (r *PoolRow) Dest() []any {
	return []any{&r.id, &r.sku, &r.name, &r.shortage, &r.pool.PendingSupply, &r.pool.ReleaseAt, &r.pool.LowKeys, &r.pool.LowPercent,
		&r.pool.MaxReserved, &r.created}
}

// Pool is the pool that was scanned, or nil.
func (r *PoolRow) Pool(merchant string) *Pool {
	if r.id == nil {
		return nil
	}
	pool := r.pool
	pool.Merchant, pool.ID, pool.SKU, pool.Name, pool.Shortage, pool.CreatedAt = merchant, *r.id, *r.sku, *r.name, *r.shortage, *r.created
	return &pool
}

func scanPool(merchant string) pgx.RowToFunc[Pool] {
	return func(row pgx.CollectableRow) (Pool, error) {
		var r PoolRow
		if err := row.Scan(r.Dest()...); err != nil {
			return Pool{}, err
		}
		return *r.Pool(merchant), nil
	}
}
