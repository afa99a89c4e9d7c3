package inventory

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const (
	// Lock: the pool.
	lockLow = `
SELECT sku, low_keys, low_percent, low_told, out_told, last_stock
  FROM keytill.pools WHERE merchant_id = $1 AND pool_id = $2 FOR NO KEY UPDATE`

	writeLow = `
UPDATE keytill.pools SET low_told = $3, out_told = $4, last_stock = $5
 WHERE merchant_id = $1 AND pool_id = $2 AND (low_told, out_told, last_stock) <> ($3, $4, $5)`
)

// A StockLevel is how much is left of a pool, and what is to be told of it.
type StockLevel struct {
	SKU       string
	Available int64
	Low       bool // fell to its mark just now
	Out       bool // fell to nothing just now
}

// Level looks at a pool's stock and says what is to be told. Each is told once, and again only after the stock has been
// above the mark. restocked is set by who just brought stock: what is available then is what a percentage is of.
func Level(ctx context.Context, tx pgx.Tx, merchant string, pool int64, restocked bool) (StockLevel, error) {
	var (
		level            StockLevel
		keys             *int64
		percent          *int64
		lowTold, outTold bool
		last             int64
	)
	if err := tx.QueryRow(ctx, lockLow, merchant, pool).Scan(&level.SKU, &keys, &percent, &lowTold, &outTold, &last); err != nil {
		return level, fmt.Errorf("lock pool %d: %w", pool, err)
	}
	counts, err := Stock(ctx, tx, merchant, pool)
	if err != nil {
		return level, err
	}
	level.Available = counts[pool][Available]
	if restocked {
		last = level.Available
	}
	isLow := keys != nil && level.Available <= *keys || percent != nil && level.Available*100 <= *percent*last
	isOut := level.Available == 0
	level.Low, level.Out = isLow && !lowTold, isOut && !outTold
	if _, err := tx.Exec(ctx, writeLow, merchant, pool, isLow, isOut, last); err != nil {
		return level, fmt.Errorf("note the stock of pool %d: %w", pool, err)
	}
	return level, nil
}
