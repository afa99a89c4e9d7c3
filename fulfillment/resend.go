package fulfillment

import (
	"context"
	"fmt"
	"net/mail"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/internal/pg"
)

const (
	// Index: findings_open.
	closeNoRecipient = `
UPDATE keytill.findings SET closed_at = $3
 WHERE merchant_id = $1 AND kind = 'no_recipient' AND subject = $2 AND closed_at IS NULL`

	// Of the order's mails that were given up. Index: findings_order, deliveries_order.
	closeUndeliverable = `
UPDATE keytill.findings SET closed_at = $3
 WHERE merchant_id = $1 AND order_id = $2 AND kind = 'undeliverable' AND closed_at IS NULL
   AND subject IN (SELECT 'delivery ' || delivery_id FROM keytill.deliveries
                    WHERE merchant_id = $1 AND order_id = $2 AND channel = 'email')`
)

// Resend sends an order's keys again, to the address it has or to another, which is then the order's no more than
// before: Stripe's stays. Keys that were taken back are not in it.
func (s *Service) Resend(ctx context.Context, merchant, query, to string, who Person) error {
	id, err := s.orderID(ctx, merchant, query)
	if err != nil {
		return err
	}
	order, err := LoadOrder(ctx, s.db, merchant, id)
	if err != nil {
		return err
	}
	if to == "" {
		to = order.Email
	}
	address, err := mail.ParseAddress(to)
	if err != nil {
		return fmt.Errorf("order %s: %w: name one with --to", id, ErrNoAddress)
	}
	if len(order.KeyIDs(UnitFulfilled)) == 0 {
		return fmt.Errorf("order %s: %w", id, ErrRecalled)
	}
	return pg.InTx(ctx, s.db, func(tx pgx.Tx) error {
		now := s.now()
		after, err := announceable(ctx, tx, merchant, id, now)
		if err != nil {
			return err
		}
		var rows deliveries
		rows.add(id, ChannelEmail, notice{kind: KeysReady, units: []NoticeUnit{}, after: after}, address.Address)
		jobs, err := rows.insert(ctx, tx, merchant, now)
		if err != nil {
			return err
		}
		if err := insertJobs(ctx, s.jobs, tx, jobs); err != nil {
			return err
		}
		for _, query := range []string{closeNoRecipient, closeUndeliverable} {
			if _, err := tx.Exec(ctx, query, merchant, id, now); err != nil {
				return fmt.Errorf("close the findings: %w", err)
			}
		}
		return Record(ctx, tx, merchant, Act{At: now, Actor: who.Name, Action: "resend", Order: id, Subject: id, Reason: who.Reason})
	})
}

// Reveal decrypts an order's live keys for a person who says why. The audit has it before the person does.
func (s *Service) Reveal(ctx context.Context, merchant string, order Order, who Person) (map[int64]string, error) {
	if err := who.check(); err != nil {
		return nil, err
	}
	err := Record(ctx, s.db, merchant, Act{At: s.now(), Actor: who.Name, Action: "reveal", Order: order.ID, Subject: order.ID, Reason: who.Reason})
	if err != nil {
		return nil, err
	}
	return s.keyset.Texts(ctx, s.db, merchant, order.KeyIDs(UnitFulfilled, UnitSuspended, UnitRevoked))
}
