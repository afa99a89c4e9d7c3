package fulfillment

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"github.com/keytill/keytill/internal/pg"
)

// A Change is what one transaction did to units of one order.
type Change struct {
	Merchant string
	Order    string
	At       time.Time
	Units    []UnitMove
}

// A UnitMove is a unit's way from a state to another, with the key it has then. A replaced unit moves from fulfilled to
// fulfilled.
type UnitMove struct {
	Line  string
	Unit  int
	SKU   string
	From  UnitState // empty: the unit is new
	To    UnitState
	KeyID int64 // 0: none
}

// processTx stands among a merchant's channels while its daemon has a function that runs in the transaction. No other
// process may change units then: it would leave the storefront's tables behind.
const processTx = "process-tx"

// elsewhere reports whether another process alone may change units.
func (s *Service) elsewhere(channels channelNames) bool {
	return s.inTx == nil && channels.has(processTx)
}

// changed tells the storefront's function of a change, in its transaction.
func (s *Service) changed(ctx context.Context, tx pgx.Tx, c Change) error {
	if s.inTx == nil || len(c.Units) == 0 {
		return nil
	}
	if err := s.inTx(ctx, tx, c); err != nil {
		return fmt.Errorf("the storefront's function for order %s: %w", c.Order, err)
	}
	return nil
}

// moved is what the settle did to the order's units.
func (a *application) moved() Change {
	c := Change{Merchant: a.merchant, Order: a.order.id, At: a.at}
	for _, u := range a.plan.changed {
		if u.state != u.next {
			c.Units = append(c.Units, UnitMove{Line: u.line, Unit: u.number, SKU: u.sku, From: u.state, To: u.next, KeyID: u.key})
		}
	}
	return c
}

// leaveToProcess leaves a settle to the process that may do it.
func (s *Service) leaveToProcess(ctx context.Context, c cause) error {
	return pg.InTx(ctx, s.db, func(tx pgx.Tx) error {
		return insertJobs(ctx, s.jobs, tx, []river.InsertManyParams{{Args: SettleJob{Merchant: c.merchant, Ref: c.ref, Retry: c.retry}}})
	})
}
