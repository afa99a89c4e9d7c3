package fulfillment

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/internal/pg"
	"github.com/keytill/keytill/inventory"
)

const (
	// releasedAtOnce bounds one transaction of the sweeper.
	releasedAtOnce = 10_000

	// attemptsKept is how long the results of reservations are kept.
	attemptsKept = 31 * 24 * time.Hour

	deleteExpiredReservations = `DELETE FROM keytill.reservations WHERE merchant_id = $1 AND expires_at <= $2`

	// Index: reservation_attempts_at.
	deleteOldAttempts = `DELETE FROM keytill.reservation_attempts WHERE merchant_id = $1 AND at < $2`
)

// TidyShelf puts back what carts held too long, takes off what may no longer be used, and serves who waits with what came
// back. It says how many holds it ended: many more than usual mean that something upstream leaks reservations.
func (s *Service) TidyShelf(ctx context.Context) (released int, err error) {
	merchants, err := s.merchants(ctx)
	if err != nil {
		return 0, err
	}
	for _, merchant := range merchants {
		if err := s.tidyMerchant(ctx, merchant); err != nil {
			return 0, err
		}
	}
	pools, err := inventory.PoolsWithExpiredHolds(ctx, s.db, s.now())
	if err != nil {
		return 0, err
	}
	for _, ref := range pools {
		for {
			n, err := s.releaseExpired(ctx, ref)
			if err != nil {
				return released, err
			}
			if released += n; n < releasedAtOnce {
				break
			}
		}
	}
	s.noteReleased(ctx, released)
	return released, s.serveForgotten(ctx)
}

// Pools in which units wait beside stock. Index: fulfilments_waiting, keys_available.
const readForgotten = `
SELECT p.merchant_id, p.pool_id FROM keytill.pools p
 WHERE EXISTS (SELECT 1 FROM keytill.fulfilments f
                WHERE f.merchant_id = p.merchant_id AND f.pool_id = p.pool_id AND f.state = 'waiting')
   AND EXISTS (SELECT 1 FROM keytill.keys k
                WHERE k.merchant_id = p.merchant_id AND k.pool_id = p.pool_id AND k.state = 'available')`

// serveForgotten serves the pools whose job was lost or given up. Usually there are none.
func (s *Service) serveForgotten(ctx context.Context) error {
	rows, err := s.db.Query(ctx, readForgotten)
	if err != nil {
		return fmt.Errorf("look for units that wait beside stock: %w", err)
	}
	pools, err := pgx.CollectRows(rows, pgx.RowToStructByPos[inventory.PoolRef])
	if err != nil {
		return fmt.Errorf("look for units that wait beside stock: %w", err)
	}
	for _, ref := range pools {
		if _, err := s.ServeWaiting(ctx, ref.Merchant, ref.Pool); err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) tidyMerchant(ctx context.Context, merchant string) error {
	now := s.now()
	for {
		n, err := inventory.ExpireKeys(ctx, s.db, merchant, now)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
	}
	if _, err := s.db.Exec(ctx, deleteExpiredReservations, merchant, now); err != nil {
		return fmt.Errorf("delete expired reservations: %w", err)
	}
	if _, err := s.db.Exec(ctx, forgetNothing, merchant, now.Add(-nothingKept)); err != nil {
		return fmt.Errorf("forget what came to nothing: %w", err)
	}
	if _, err := s.db.Exec(ctx, deleteOldAttempts, merchant, now.Add(-attemptsKept)); err != nil {
		return fmt.Errorf("delete old results of reservations: %w", err)
	}
	return nil
}

func (s *Service) releaseExpired(ctx context.Context, ref inventory.PoolRef) (released int, err error) {
	err = pg.InTx(ctx, s.db, func(tx pgx.Tx) error {
		if err := inventory.LockPools(ctx, tx, ref.Merchant, []int64{ref.Pool}); err != nil {
			return err
		}
		released, err = inventory.ReleaseExpired(ctx, tx, ref.Merchant, ref.Pool, releasedAtOnce, s.now())
		if err != nil || released == 0 {
			return err
		}
		_, err = s.Serve(ctx, tx, ref.Merchant, ref.Pool)
		return err
	})
	return released, err
}

const (
	spikeFactor = 4  // times the usual number
	spikeLeast  = 20 // holds: fewer are no spike whatever is usual
)

// noteReleased logs what a round released, and warns on a spike. The usual number is a moving average of this process.
func (s *Service) noteReleased(ctx context.Context, released int) {
	usual := s.usualReleased.swap(released)
	switch {
	case released >= spikeLeast && float64(released) > spikeFactor*usual:
		s.log.WarnContext(ctx, "many more holds than usual ran out: does the storefront still tell keytill of payments and left carts?",
			"released", released, "usual", int(usual))
	case released > 0:
		s.log.InfoContext(ctx, "holds ran out", "released", released)
	}
}
