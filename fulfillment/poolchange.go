package fulfillment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/internal/pg"
	"github.com/keytill/keytill/inventory"
)

// ErrReleased says that a pool's release date cannot be moved any more.
var ErrReleased = errors.New("the release date stays: keys of this pool were given out, and their mails go by it")

// CreatePool makes a pool, and notes in the audit who did.
func (s *Service) CreatePool(ctx context.Context, pool inventory.Pool, who Person) (made inventory.Pool, err error) {
	pool.CreatedAt = s.now()
	err = pg.InTx(ctx, s.db, func(tx pgx.Tx) error {
		if made, err = inventory.CreatePool(ctx, tx, pool); err != nil {
			return err
		}
		return Record(ctx, tx, pool.Merchant, Act{At: pool.CreatedAt, Actor: who.Name, Action: "create pool", Subject: made.SKU, Reason: who.Reason})
	})
	return made, err
}

// ChangePool gives the pool of a SKU other rules and another name, and notes in the audit who did. Units that wait or have
// failed already stay as they are. The release date can be moved only until keys are given out: their mails go by it.
func (s *Service) ChangePool(ctx context.Context, pool inventory.Pool, who Person) (changed inventory.Pool, err error) {
	now := s.now()
	err = pg.InTx(ctx, s.db, func(tx pgx.Tx) error {
		old, err := inventory.PoolBySKU(ctx, tx, pool.Merchant, pool.SKU)
		if err != nil {
			return err
		}
		if err := inventory.LockPools(ctx, tx, pool.Merchant, []int64{old.ID}); err != nil {
			return err
		}
		if old, err = inventory.PoolBySKU(ctx, tx, pool.Merchant, pool.SKU); err != nil {
			return err
		}
		if !sameDate(old.ReleaseAt, pool.ReleaseAt) {
			counts, err := inventory.StockOf(ctx, tx, pool.Merchant, []int64{old.ID})
			if err != nil {
				return err
			}
			if c := counts[old.ID]; c[inventory.Allocated]+c[inventory.Suspended]+c[inventory.Revoked] > 0 {
				return fmt.Errorf("pool %s: %w", pool.SKU, ErrReleased)
			}
		}
		if changed, err = inventory.ChangePool(ctx, tx, pool); err != nil {
			return err
		}
		return Record(ctx, tx, pool.Merchant, Act{At: now, Actor: who.Name, Action: "change pool", Subject: pool.SKU, Reason: who.Reason})
	})
	return changed, err
}

func sameDate(a, b *time.Time) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Equal(*b)
}
