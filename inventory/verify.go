package inventory

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/internal/pg"
)

// A Verdict is what keytill says of a key to those who let its owner in.
type Verdict string

const (
	Valid     Verdict = "valid"     // sold, and its owner may use it
	Withheld  Verdict = "suspended" // sold, and not to be used for now: a dispute, a refund under way
	TakenBack Verdict = "revoked"   // sold, and taken back
	Outdated  Verdict = "expired"   // never sold, and too old to be
	Unsold    Verdict = "unsold"    // in stock, which nobody outside should know
	Unknown   Verdict = "unknown"   // no key of this merchant
)

// verdicts are what a key's state means to those who let its owner in.
var verdicts = map[State]Verdict{
	Allocated: Valid, Suspended: Withheld, Revoked: TakenBack, Expired: Outdated,
	Available: Unsold, Reserved: Unsold, Quarantined: Unsold,
}

// A Verified key is one that somebody asked about. Its shape is the same whatever the verdict.
type Verified struct {
	Verdict Verdict `json:"status"`
	Key     string  `json:"key"` // its name in the feed of changes: key_123; empty if unknown
	SKU     string  `json:"sku"` // empty if unknown
}

// Where a key lies in several pools, the one that somebody may use is what counts. Index: pools_pkey, keys_fingerprint.
const verifyKey = `
SELECT k.key_id, k.state, p.sku
  FROM keytill.pools p
  JOIN keytill.keys k ON k.merchant_id = p.merchant_id AND k.pool_id = p.pool_id AND k.fingerprint = ANY ($2)
 WHERE p.merchant_id = $1 AND (p.sku = $3 OR $3 = '')
 ORDER BY array_position(ARRAY['allocated', 'suspended', 'revoked'], k.state), k.key_id
 LIMIT 1`

// Verify says whether a key, given by its text, may be used. With a SKU it looks in that pool alone.
func (k *Keyset) Verify(ctx context.Context, db pg.Querier, merchant, text, sku string) (Verified, error) {
	fingerprints, err := k.Fingerprints([]byte(strings.Trim(text, " ")))
	if err != nil {
		return Verified{}, err
	}
	var (
		id    int64
		state State
		found Verified
	)
	err = db.QueryRow(ctx, verifyKey, merchant, fingerprints, sku).Scan(&id, &state, &found.SKU)
	if errors.Is(err, pgx.ErrNoRows) {
		return Verified{Verdict: Unknown}, nil
	}
	if err != nil {
		return Verified{}, fmt.Errorf("look for a key: %w", err)
	}
	found.Verdict, found.Key = verdicts[state], keyName(id)
	return found, nil
}

func keyName(id int64) string { return fmt.Sprintf("key_%d", id) }

// A KeyChange says that a key that was sold may no longer be used, or may be used again.
type KeyChange struct {
	Key     string    `json:"key"` // as in Verified
	SKU     string    `json:"sku"`
	Verdict Verdict   `json:"status"`
	At      time.Time `json:"at"`
}

// Only transactions before the oldest that still runs: they have all ended, so nothing can appear below a cursor that
// was given out. Index: movements_changes.
const readChanges = `
SELECT m.xid::text, m.movement_id, m.key_id, m.to_state, p.sku, m.at
  FROM keytill.movements m
  JOIN keytill.pools p ON p.merchant_id = m.merchant_id AND p.pool_id = m.pool_id
 WHERE m.merchant_id = $1
   AND m.from_state IN ('allocated', 'suspended', 'revoked') AND m.to_state IN ('allocated', 'suspended', 'revoked')
   AND (m.xid, m.movement_id) > ($2::xid8, $3::bigint) AND m.xid < pg_snapshot_xmin(pg_current_snapshot())
 ORDER BY m.xid, m.movement_id
 LIMIT $4`

// ErrCursor is the error of a cursor that Changes did not give out.
var ErrCursor = errors.New("not a cursor of the feed: begin without one")

// Changes lists what became of sold keys after a cursor, oldest first, at most so many, and returns the cursor to go on
// from. An empty cursor begins at the beginning. A key that changed twice is there twice: the later one counts.
func Changes(ctx context.Context, db pg.Querier, merchant, cursor string, most int) ([]KeyChange, string, error) {
	xid, movement, err := readCursor(cursor)
	if err != nil {
		return nil, "", err
	}
	rows, err := db.Query(ctx, readChanges, merchant, fmt.Sprint(xid), movement, most)
	if err != nil {
		return nil, "", fmt.Errorf("read the changes of keys: %w", err)
	}
	changes, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c KeyChange, err error) {
		var (
			transaction string
			number, id  int64
			state       State
		)
		if err = row.Scan(&transaction, &number, &id, &state, &c.SKU, &c.At); err != nil {
			return c, err
		}
		c.Key, c.Verdict = keyName(id), verdicts[state]
		cursor = fmt.Sprintf("%s.%d", transaction, number)
		return c, nil
	})
	if err != nil {
		return nil, "", fmt.Errorf("read the changes of keys: %w", err)
	}
	return changes, cursor, nil
}

func readCursor(cursor string) (xid uint64, movement int64, err error) {
	if cursor == "" {
		return 0, 0, nil
	}
	if n, err := fmt.Sscanf(cursor, "%d.%d", &xid, &movement); n != 2 || err != nil || fmt.Sprintf("%d.%d", xid, movement) != cursor {
		return 0, 0, ErrCursor
	}
	return xid, movement, nil
}
