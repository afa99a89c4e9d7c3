package fulfillment

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/internal/pg"
)

// An Act is what a person did, and why. It holds no key.
type Act struct {
	At      time.Time `json:"at"`
	Actor   string    `json:"actor"`
	Action  string    `json:"action"`
	Order   string    `json:"order,omitempty"`
	Subject string    `json:"subject"`
	Reason  string    `json:"reason,omitempty"`
}

const (
	insertAct = `
INSERT INTO keytill.audit (merchant_id, at, actor, action, order_id, subject, reason) VALUES ($1, $2, $3, $4, nullif($5, ''), $6, $7)`

	// Index: audit_pkey, backwards.
	readActs = `
SELECT at, actor, action, coalesce(order_id, ''), subject, reason FROM keytill.audit
 WHERE merchant_id = $1
 ORDER BY audit_id DESC
 LIMIT $2`
)

// Record writes an act into the audit, in the transaction that does it.
func Record(ctx context.Context, db pg.Querier, merchant string, act Act) error {
	if _, err := db.Exec(ctx, insertAct, merchant, act.At, act.Actor, act.Action, act.Order, act.Subject, act.Reason); err != nil {
		return fmt.Errorf("record in the audit: %w", err)
	}
	return nil
}

// Audit lists what people did last, newest first.
func Audit(ctx context.Context, db pg.Querier, merchant string, most int) ([]Act, error) {
	rows, err := db.Query(ctx, readActs, merchant, most)
	if err != nil {
		return nil, fmt.Errorf("read the audit: %w", err)
	}
	acts, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Act])
	if err != nil {
		return nil, fmt.Errorf("read the audit: %w", err)
	}
	return acts, nil
}
