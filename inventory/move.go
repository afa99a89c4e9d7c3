package inventory

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/internal/pg"
)

// ErrMoved says that a key is no longer in the state it was read in. Roll back and read again.
var ErrMoved = errors.New("a key has moved meanwhile")

// ErrIllegalMove says that no key may go from the one state to the other.
var ErrIllegalMove = errors.New("illegal move")

// Lock: the keys, in the order of the index. Index: keys_pkey.
const moveKeys = `
WITH moved AS (
    UPDATE keytill.keys
       SET state = $4::text,
           order_id = CASE WHEN $4::text IN ('allocated', 'suspended', 'revoked') THEN order_id END,
           line_id = CASE WHEN $4::text IN ('allocated', 'suspended', 'revoked') THEN line_id END,
           unit = CASE WHEN $4::text IN ('allocated', 'suspended', 'revoked') THEN unit END,
           reserved_for = NULL, reserved_until = NULL
     WHERE merchant_id = $1 AND key_id = ANY ($2) AND state = $3
    RETURNING key_id, pool_id, order_id, line_id, unit
), written AS (
    INSERT INTO keytill.movements
           (merchant_id, pool_id, key_id, from_state, to_state, order_id, line_id, unit, reason, actor, event_id, at)
    SELECT $1, pool_id, key_id, $3, $4::text, order_id, line_id, unit, $5, $6, nullif($7, ''), $8 FROM moved
)
SELECT count(*) FROM moved`

// Move brings keys of one merchant from one state to another, all or none: ErrMoved if any of them has left the first
// state. It does not make a key reserved or allocate one that was not its unit's: those are Reserve and Claim.
func Move(ctx context.Context, tx pgx.Tx, merchant string, keys []int64, from, to State, change Change) error {
	if len(keys) == 0 {
		return nil
	}
	if !CanMove(from, to) {
		return fmt.Errorf("%w: from %s to %s", ErrIllegalMove, from, to)
	}
	var moved int
	err := tx.QueryRow(ctx, moveKeys, merchant, keys, from, to, change.Reason, change.Actor, change.Event, change.At).Scan(&moved)
	if err != nil {
		return fmt.Errorf("move %d keys from %s to %s: %w", len(keys), from, to, err)
	}
	if moved != len(keys) {
		return fmt.Errorf("%d of %d keys were %s: %w", moved, len(keys), from, ErrMoved)
	}
	return nil
}

// Lock: none. Index: keys_pkey.
const readCiphertexts = `
SELECT key_id, pool_id, ciphertext FROM keytill.keys WHERE merchant_id = $1 AND key_id = ANY ($2)`

// Texts decrypts keys, by key id. It is called when a delivery is rendered or a person with a reason looks, and its
// result goes nowhere else.
func (k *Keyset) Texts(ctx context.Context, db pg.Querier, merchant string, keys []int64) (map[int64]string, error) {
	rows, err := db.Query(ctx, readCiphertexts, merchant, keys)
	if err != nil {
		return nil, fmt.Errorf("read %d keys: %w", len(keys), err)
	}
	defer rows.Close()
	texts := make(map[int64]string, len(keys))
	for rows.Next() {
		var (
			keyID, poolID int64
			ciphertext    []byte
		)
		if err := rows.Scan(&keyID, &poolID, &ciphertext); err != nil {
			return nil, fmt.Errorf("read %d keys: %w", len(keys), err)
		}
		text, err := k.open(merchant, poolID, keyID, ciphertext)
		if err != nil {
			return nil, err
		}
		texts[keyID] = string(text)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read %d keys: %w", len(keys), err)
	}
	return texts, nil
}
