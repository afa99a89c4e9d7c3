package inventory

import (
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// An Owned key is one that its buyer may use, with its text: it lives only while it is rendered.
type Owned struct {
	KeyID int64
	Line  string
	Unit  int
	SKU   string
	Name  string // of its product
	Text  string
}

// Lock: none. Index: keys_live_unit, pools_pkey.
const readOwned = `
SELECT k.key_id, k.pool_id, k.line_id, k.unit, p.sku, p.name, k.ciphertext
  FROM keytill.keys k
  JOIN keytill.pools p ON p.merchant_id = k.merchant_id AND p.pool_id = k.pool_id
 WHERE k.merchant_id = $1 AND k.order_id = $2 AND k.state = 'allocated' AND (p.release_at IS NULL OR p.release_at <= $3)
 ORDER BY k.line_id, k.unit`

// QueueOwned reads and decrypts the keys that an order's buyer may use and be told of now, by line and unit, as part of a
// batch.
func (k *Keyset) QueueOwned(batch *pgx.Batch, merchant, order string, now time.Time, into *[]Owned) {
	batch.Queue(readOwned, merchant, order, now).Query(func(rows pgx.Rows) (err error) {
		*into, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (s Owned, err error) {
			var (
				pool       int64
				ciphertext []byte
			)
			if err = row.Scan(&s.KeyID, &pool, &s.Line, &s.Unit, &s.SKU, &s.Name, &ciphertext); err != nil {
				return s, err
			}
			text, err := k.open(merchant, pool, s.KeyID, ciphertext)
			s.Text = string(text)
			return s, err
		})
		if err != nil {
			return fmt.Errorf("read the keys of order %s: %w", order, err)
		}
		return nil
	})
}
