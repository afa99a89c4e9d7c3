package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/internal/pg"
)

const (
	// Index: sweep_cursors_pkey.
	readCursor = `
SELECT horizon, walking, coalesce(looked_at, 'epoch'), coalesce(looked_from, 'epoch'), coalesce(looked_to, 'epoch')
  FROM keytill.sweep_cursors WHERE merchant_id = $1 AND kind = $2`

	// Index: sweep_spans_pkey.
	readSpans = `
SELECT created_from, created_to, after, moved_at
  FROM keytill.sweep_spans WHERE merchant_id = $1 AND kind = $2`

	// A walk begins: the horizon moves, and what is behind it and not walked yet is in the spans.
	beginWalk = `
INSERT INTO keytill.sweep_cursors (merchant_id, kind, horizon, walking) VALUES ($1, $2, $3, true)
ON CONFLICT (merchant_id, kind) DO UPDATE SET horizon = greatest(keytill.sweep_cursors.horizon, $3), walking = true`

	deleteSpans = `DELETE FROM keytill.sweep_spans WHERE merchant_id = $1 AND kind = $2`

	insertSpan = `
INSERT INTO keytill.sweep_spans (merchant_id, kind, created_from, created_to, after, moved_at, note)
VALUES ($1, $2, $3, $4, $5, $6, $7)`

	// A page is walked: the lease and the place in one statement, and neither without the other. Index: sweep_leases_pkey,
	// sweep_spans_pkey.
	moveSpan = `
WITH held AS (
    UPDATE keytill.sweep_leases SET expires_at = $3 WHERE merchant_id = $1 AND holder = $2 RETURNING merchant_id
)
UPDATE keytill.sweep_spans s SET created_to = $6, after = $7, moved_at = $8
  FROM held
 WHERE s.merchant_id = held.merchant_id AND s.merchant_id = $1 AND s.kind = $4 AND s.created_from = $5`

	endSpan = `
WITH held AS (
    UPDATE keytill.sweep_leases SET expires_at = $3 WHERE merchant_id = $1 AND holder = $2 RETURNING merchant_id
)
DELETE FROM keytill.sweep_spans s
 USING held
 WHERE s.merchant_id = held.merchant_id AND s.merchant_id = $1 AND s.kind = $4 AND s.created_from = $5`

	noteSpan = `
UPDATE keytill.sweep_spans SET note = $4 WHERE merchant_id = $1 AND kind = $2 AND created_from = $3`

	endWalk = `UPDATE keytill.sweep_cursors SET walking = false WHERE merchant_id = $1 AND kind = $2`

	// A walk that left nothing out has looked at all that was created in its stretch.
	endWholeWalk = `
UPDATE keytill.sweep_cursors SET walking = false, looked_at = $3, looked_from = $4, looked_to = $5
 WHERE merchant_id = $1 AND kind = $2`
)

func (s *Sweeper) readCursor(ctx context.Context, merchant string, kind Kind) (cursor, error) {
	c := cursor{exists: true}
	err := s.db.QueryRow(ctx, readCursor, merchant, kind).Scan(&c.horizon, &c.walking, &c.lookedAt, &c.looked.From,
		&c.looked.To)
	if errors.Is(err, pgx.ErrNoRows) {
		return cursor{}, nil
	}
	if err != nil {
		return c, fmt.Errorf("read the cursor: %w", err)
	}
	rows, err := s.db.Query(ctx, readSpans, merchant, kind)
	if err != nil {
		return c, fmt.Errorf("read the cursor: %w", err)
	}
	var (
		left  span
		moved time.Time
	)
	_, err = pgx.ForEachRow(rows, []any{&left.From, &left.To, &left.after, &moved}, func() error {
		left.From, left.To = left.From.UTC(), left.To.UTC()
		c.spans = append(c.spans, left)
		if moved.After(c.moved) {
			c.moved = moved
		}
		return nil
	})
	if err != nil {
		return c, fmt.Errorf("read the cursor: %w", err)
	}
	return c, nil
}

// beginWalk makes a plan durable before its first page.
func (s *Sweeper) beginWalk(ctx context.Context, merchant string, kind Kind, horizon time.Time, plan []span) error {
	return pg.InTx(ctx, s.db, func(tx pgx.Tx) error {
		batch := &pgx.Batch{}
		batch.Queue(beginWalk, merchant, kind, horizon)
		batch.Queue(deleteSpans, merchant, kind)
		for _, sp := range plan {
			batch.Queue(insertSpan, merchant, kind, sp.From, sp.To, sp.after, s.now(), "")
		}
		if err := tx.SendBatch(ctx, batch).Close(); err != nil {
			return fmt.Errorf("begin to walk: %w", err)
		}
		return nil
	})
}

// split replaces a span by its halves.
func (s *Sweeper) split(ctx context.Context, merchant string, kind Kind, whole span, halves []span, why string) error {
	return pg.InTx(ctx, s.db, func(tx pgx.Tx) error {
		batch := &pgx.Batch{}
		batch.Queue(deleteSpan, merchant, kind, whole.From)
		for _, sp := range halves {
			batch.Queue(insertSpan, merchant, kind, sp.From, sp.To, sp.after, s.now(), why)
		}
		if err := tx.SendBatch(ctx, batch).Close(); err != nil {
			return fmt.Errorf("split a span: %w", err)
		}
		return nil
	})
}

const deleteSpan = `DELETE FROM keytill.sweep_spans WHERE merchant_id = $1 AND kind = $2 AND created_from = $3`
