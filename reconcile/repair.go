package reconcile

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/keytill/keytill/fulfillment"
)

const (
	// settlesAtOnce is small, since older payments should come to their keys first.
	settlesAtOnce = 4

	// settlesInRound are done between two renewals of the lease.
	settlesInRound = 24

	// maxFailedInRow settles mean that it is not about a payment.
	maxFailedInRow = 24
)

// outcome is what became of one payment.
type outcome int

const (
	repaired  outcome = iota
	unchanged         // a settle has looked, and the order is as it was
	ignored           // no order of keys
	failed
)

// repair settles what differs, the oldest first, and then what failed before. What fails stays for the next sweep.
func (s *Sweeper) repair(ctx context.Context, r *run) error {
	if r.dry {
		return nil
	}
	var total int
	if err := s.db.QueryRow(ctx, countTodo, r.merchant, r.report.ID).Scan(&total); err != nil {
		return fmt.Errorf("count what is to be settled: %w", err)
	}
	if total == 0 {
		return nil
	}
	done := 0
	for _, again := range []bool{false, true} {
		var last todo
		for row := 0; ; {
			if err := r.lease.renew(ctx); err != nil {
				return err
			}
			round, err := s.readTodo(ctx, r.merchant, r.report.ID, again, last)
			if err != nil {
				return err
			}
			if len(round) == 0 {
				break
			}
			last = round[len(round)-1]
			failures, err := s.round(ctx, r, round)
			if err != nil {
				return err
			}
			if failures < len(round) {
				row = 0
			}
			if row += failures; row >= maxFailedInRow && failures == len(round) {
				return fmt.Errorf("%w: %d payments in a row could not be settled", ErrUnavailable, row)
			}
			done += len(round)
			r.tell("", done, time.Duration(done), time.Duration(total))
		}
	}
	return nil
}

// round settles a few payments and returns how many of them failed.
func (s *Sweeper) round(ctx context.Context, r *run, round []todo) (failures int, err error) {
	var (
		mu    sync.Mutex
		group errgroup.Group
	)
	group.SetLimit(settlesAtOnce)
	for _, t := range round {
		group.Go(func() error {
			what, cause := s.settle(ctx, r.merchant, t)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err := s.note(ctx, r, t, what, cause); err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			r.settled(t, what, cause, s.now())
			if what == failed {
				failures++
			}
			return nil
		})
	}
	return failures, group.Wait()
}

func (s *Sweeper) settle(ctx context.Context, merchant string, t todo) (outcome, error) {
	order, err := s.settler.Settle(ctx, merchant, t.Ref)
	switch {
	case err == nil && t.aboutPayment() && string(order.Payment) == t.Payment:
		return unchanged, nil
	case err == nil:
		return repaired, nil
	case errors.Is(err, fulfillment.ErrNotOurs), errors.Is(err, fulfillment.ErrNotFound), errors.Is(err, fulfillment.ErrNoOrder):
		return ignored, err
	default:
		return failed, err
	}
}

// aboutPayment reports whether a settle that helps changes the state of the order's payment.
func (t todo) aboutPayment() bool {
	switch t.Reason {
	case PaidWithoutOrder, UnpaidWithoutOrder, PaidOrderOpen, DeliveredUnpaid, OrderAhead, ClosedOrderOpen:
		return true
	}
	return false
}

// note writes what became of a payment. What was settled is remembered as looked at: if the object differs in just the
// same way next time, another settle would not help.
func (s *Sweeper) note(ctx context.Context, r *run, t todo, what outcome, cause error) error {
	now := s.now()
	if what == failed {
		s.log.WarnContext(ctx, "a payment that differs could not be settled", "merchant", r.merchant, "ref", t.Ref, "reason", t.Reason,
			"error", cause)
		if _, err := s.db.Exec(ctx, failTodo, r.merchant, t.Ref, r.report.ID, cause.Error()); err != nil {
			return fmt.Errorf("note a payment that failed: %w", err)
		}
		return nil
	}
	if what == ignored {
		if _, err := s.db.Exec(ctx, ignoreEvents, r.merchant, t.Ref, now, "found by a sweep: "+cause.Error()); err != nil {
			return fmt.Errorf("ignore events: %w", err)
		}
	}
	if _, err := s.db.Exec(ctx, noteLooked, r.merchant, t.Objects, t.Digests, now); err != nil {
		return fmt.Errorf("note what was looked at: %w", err)
	}
	if _, err := s.db.Exec(ctx, deleteTodo, r.merchant, t.Ref); err != nil {
		return fmt.Errorf("note what was settled: %w", err)
	}
	return nil
}
