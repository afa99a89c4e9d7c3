package fulfillment

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/internal/pg"
	"github.com/keytill/keytill/inventory"
)

// A BatchChange is what became of a batch.
type BatchChange struct {
	Batch  int64                `json:"batch"`
	State  inventory.BatchState `json:"state"`
	Moved  int64                `json:"moved"`  // keys that changed their state
	Served int                  `json:"served"` // waiting units that got a key
	Sold   []inventory.SoldKey  `json:"sold"`   // keys of the batch that buyers have
}

// SetBatchState quarantines, recalls or releases a batch of a pool (id 0: its newest). What a release brings goes to who
// waits, in the same transaction.
func (s *Service) SetBatchState(ctx context.Context, pool inventory.Pool, id int64, state inventory.BatchState, who Person) (BatchChange, error) {
	done := BatchChange{State: state}
	err := pg.InTx(ctx, s.db, func(tx pgx.Tx) error {
		if err := inventory.LockPools(ctx, tx, pool.Merchant, []int64{pool.ID}); err != nil {
			return err
		}
		at := s.now()
		var err error
		done.Batch, done.Moved, err = inventory.SetBatchState(ctx, tx, pool.Merchant, pool.ID, id, state,
			inventory.Change{Reason: "batch " + string(state), Actor: who.Name, At: at})
		if err != nil {
			return fmt.Errorf("pool %s: %w", pool.SKU, err)
		}
		if state == inventory.BatchImported {
			if done.Served, err = s.Serve(ctx, tx, pool.Merchant, pool.ID); err != nil {
				return err
			}
		}
		if done.Sold, err = inventory.SoldOfBatch(ctx, tx, pool.Merchant, done.Batch); err != nil {
			return err
		}
		if err := s.tellStockLevel(ctx, tx, pool.Merchant, pool.ID, false); err != nil {
			return err
		}
		return Record(ctx, tx, pool.Merchant, Act{At: at, Actor: who.Name, Action: batchAction[state],
			Subject: fmt.Sprintf("batch %d of %s, %d keys", done.Batch, pool.SKU, done.Moved), Reason: who.Reason})
	})
	return done, err
}

var batchAction = map[inventory.BatchState]string{
	inventory.BatchQuarantined: "quarantine",
	inventory.BatchRecalled:    "recall",
	inventory.BatchImported:    "release",
}
