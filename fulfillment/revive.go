package fulfillment

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/internal/pg"
)

// A mail holds what the buyer may use when it is sent. If a key was taken back by then, the mail's row is marked
// revivable: when a settle restores a key of the order, the buyer gets another mail.

const (
	// Index: fulfilments_pkey.
	readUnitStates = `SELECT line_id, unit, state FROM keytill.fulfilments WHERE merchant_id = $1 AND order_id = $2`

	// Lock: the mails. Index: deliveries_revivable.
	takeRevivable = `
UPDATE keytill.deliveries
   SET revivable = false, state = CASE state WHEN 'held' THEN 'canceled' ELSE state END, done_at = coalesce(done_at, $3)
 WHERE merchant_id = $1 AND order_id = $2 AND revivable
RETURNING recipient, units`

	// A held mail of an order in which nothing is suspended any more has nothing to wait for. Index:
	// deliveries_revivable, fulfilments_pkey.
	cancelHeld = `
UPDATE keytill.deliveries d SET state = 'canceled', done_at = $3
 WHERE merchant_id = $1 AND order_id = $2 AND revivable AND state = 'held'
   AND NOT EXISTS (SELECT 1 FROM keytill.fulfilments f
                    WHERE f.merchant_id = d.merchant_id AND f.order_id = d.order_id AND f.state = 'suspended')`
)

// finishIncomplete ends a mail that lacks keys of units it is about: sent without them if the provider answered, else
// held or canceled. It holds the order, so that a settle which restores them comes before or after, and not between.
func (s *Service) finishIncomplete(ctx context.Context, d delivery, answer string, lacking []NoticeUnit) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTimeout)
	defer cancel()
	err := pg.InTx(ctx, s.db, func(tx pgx.Tx) error {
		now := s.now()
		var email string
		if err := tx.QueryRow(ctx, lockOrderByID, d.merchant, d.order).Scan(&email); err != nil {
			return err
		}
		states, err := unitStates(ctx, tx, d.merchant, d.order)
		if err != nil {
			return err
		}
		state, why, done := DeliveryCanceled, "no unit of the order has a usable key any more", &now
		switch {
		case answer != "":
			state, why = DeliverySent, ""
		case slices.Contains(slices.Collect(maps.Values(states)), UnitSuspended):
			state, why, done = DeliveryHeld, "the order's keys are suspended", nil
		}
		if _, err := tx.Exec(ctx, finishDelivery, d.merchant, d.id, state, answer, why, done, true); err != nil {
			return err
		}
		restored := func(u NoticeUnit) bool { return states[unitName{u.Line, u.Unit}] == UnitFulfilled }
		if !slices.ContainsFunc(lacking, restored) {
			return nil
		}
		return s.revive(ctx, tx, d.merchant, d.order, now)
	})
	if err != nil {
		return fmt.Errorf("note what became of delivery %d: %w", d.id, err)
	}
	return nil
}

type unitName struct {
	line   string
	number int
}

func unitStates(ctx context.Context, tx pgx.Tx, merchant, order string) (map[unitName]UnitState, error) {
	rows, err := tx.Query(ctx, readUnitStates, merchant, order)
	if err != nil {
		return nil, err
	}
	states := make(map[unitName]UnitState)
	var (
		name  unitName
		state UnitState
	)
	_, err = pgx.ForEachRow(rows, []any{&name.line, &name.number, &state}, func() error {
		states[name] = state
		return nil
	})
	return states, err
}

// revive writes new mails for those that lacked keys. The caller holds the order, and has restored some of them.
func (s *Service) revive(ctx context.Context, tx pgx.Tx, merchant, order string, at time.Time) error {
	rows, err := tx.Query(ctx, takeRevivable, merchant, order, at)
	if err != nil {
		return fmt.Errorf("take the mails of order %s that lacked keys: %w", order, err)
	}
	var (
		told      deliveries
		recipient string
		units     []NoticeUnit
		byAddress = make(map[string]*notice)
		addresses []string
	)
	_, err = pgx.ForEachRow(rows, []any{&recipient, &units}, func() error {
		if byAddress[recipient] == nil {
			byAddress[recipient] = &notice{kind: KeysReady}
			addresses = append(addresses, recipient)
		}
		n := byAddress[recipient]
		n.units = append(n.units, units...)
		units = nil
		return nil
	})
	if err != nil {
		return fmt.Errorf("take the mails of order %s that lacked keys: %w", order, err)
	}
	if len(addresses) == 0 {
		return nil
	}
	after, err := announceable(ctx, tx, merchant, order, at)
	if err != nil {
		return err
	}
	for _, address := range addresses {
		n := byAddress[address]
		n.after = after
		told.add(order, ChannelEmail, *n, address)
	}
	jobs, err := told.insert(ctx, tx, merchant, at)
	if err != nil {
		return err
	}
	return insertJobs(ctx, s.jobs, tx, jobs)
}

// announceable is when an order's keys may be announced: now, or on the last release date of its pools.
func announceable(ctx context.Context, tx pgx.Tx, merchant, order string, now time.Time) (time.Time, error) {
	var release *time.Time
	if err := tx.QueryRow(ctx, readOrderRelease, merchant, order).Scan(&release); err != nil {
		return now, fmt.Errorf("read the release date of order %s: %w", order, err)
	}
	if release != nil && release.After(now) {
		return *release, nil
	}
	return now, nil
}

// reviveRestored brings the buyer the keys of a plan that gives back what an unsent mail lacked, and lets go of mails
// that have nothing to wait for any more.
func (a *application) reviveRestored(ctx context.Context, tx pgx.Tx) error {
	restored := slices.ContainsFunc(a.plan.changed, func(u *unitChange) bool { return u.step == restore })
	revoked := slices.ContainsFunc(a.plan.changed, func(u *unitChange) bool { return u.next == UnitRevoked })
	switch {
	case restored && a.serves(ChannelEmail):
		return a.revive(ctx, tx, a.merchant, a.order.id, a.at)
	case revoked:
		if _, err := tx.Exec(ctx, cancelHeld, a.merchant, a.order.id, a.at); err != nil {
			return fmt.Errorf("cancel the held mails of order %s: %w", a.order.id, err)
		}
	}
	return nil
}
