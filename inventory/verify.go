package inventory

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
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

// Errors of cursors of the feed.
var (
	// ErrCursor is the error of a cursor that Changes did not give out.
	ErrCursor = errors.New("not a cursor of the feed: begin without one")

	// ErrCursorGone is the error of a cursor that was given out by a database of which this one is a restored backup.
	ErrCursorGone = errors.New("the database was restored from a backup since this cursor was given out: forget the list that it belongs to, " +
		"and read the feed again from its beginning, without a cursor")
)

const (
	// changed is what the feed has of the ledger, as movements_changes has it.
	changed = `m.from_state IN ('allocated', 'suspended', 'revoked') AND m.to_state IN ('allocated', 'suspended', 'revoked')`

	// Only transactions before the oldest that still runs: they have all ended, so nothing can appear below a cursor that
	// was given out. Index: movements_changes.
	readChanges = `
SELECT m.xid::text, m.movement_id, m.key_id, m.to_state, p.sku, m.at
  FROM keytill.movements m
  JOIN keytill.pools p ON p.merchant_id = m.merchant_id AND p.pool_id = m.pool_id
 WHERE m.merchant_id = $1 AND ` + changed + `
   AND (m.xid, m.movement_id) > ($2::xid8, $3::bigint) AND m.xid < pg_snapshot_xmin(pg_current_snapshot())
 ORDER BY m.xid, m.movement_id
 LIMIT $4`

	// The last change that a reader saw. Index: movements_changes.
	readSeen = `
SELECT m.key_id, m.to_state, m.at FROM keytill.movements m
 WHERE m.merchant_id = $1 AND ` + changed + ` AND m.xid = $2::xid8 AND m.movement_id = $3`

	// How far changes were put before all others: see rebaseMovements, which begins all readers anew. Index:
	// movements_changes, backwards.
	readRebased = `
SELECT coalesce((SELECT m.movement_id FROM keytill.movements m
                  WHERE m.merchant_id = $1 AND ` + changed + ` AND m.xid = '1'
                  ORDER BY m.movement_id DESC LIMIT 1), 0)`
)

// A feedCursor is where a reader of the feed is: behind the last change that they saw. What it was is in the cursor as
// well, in short: a database that was restored from a backup lacks it, or has another one in its place, and neither it nor
// what came after is to be passed over in silence.
type feedCursor struct {
	xid      uint64
	movement int64
	rebased  int64  // as readRebased says
	check    uint32 // of the change; unknown in cursors of older versions
	checked  bool
}

func (c feedCursor) String() string {
	return fmt.Sprintf("%d.%d.%d.%08x", c.xid, c.movement, c.rebased, c.check)
}

// checkChange is short for what a change was.
func checkChange(key int64, state State, at time.Time) uint32 {
	hash := fnv.New32a()
	_, _ = fmt.Fprintf(hash, "%d %s %d", key, state, at.UnixMicro()) // never fails
	return hash.Sum32()
}

// Changes lists what became of sold keys after a cursor, oldest first, at most so many, and returns the cursor to go on
// from. An empty cursor begins at the beginning. A key that changed twice is there twice: the later one counts.
func Changes(ctx context.Context, db pg.Querier, merchant, text string, most int) ([]KeyChange, string, error) {
	cursor, err := readCursor(text)
	if err != nil {
		return nil, "", err
	}
	var rebased int64
	if err := db.QueryRow(ctx, readRebased, merchant).Scan(&rebased); err != nil {
		return nil, "", fmt.Errorf("read the changes of keys: %w", err)
	}
	if text != "" {
		if err := cursor.holds(ctx, db, merchant, rebased); err != nil {
			return nil, "", err
		}
	}
	rows, err := db.Query(ctx, readChanges, merchant, fmt.Sprint(cursor.xid), cursor.movement, most)
	if err != nil {
		return nil, "", fmt.Errorf("read the changes of keys: %w", err)
	}
	next := text
	changes, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c KeyChange, err error) {
		var (
			at    feedCursor
			id    int64
			state State
			xid   string
		)
		if err = row.Scan(&xid, &at.movement, &id, &state, &c.SKU, &c.At); err != nil {
			return c, err
		}
		if at.xid, err = strconv.ParseUint(xid, 10, 64); err != nil {
			return c, err
		}
		at.rebased, at.check = rebased, checkChange(id, state, c.At)
		next = at.String()
		c.Key, c.Verdict = keyName(id), verdicts[state]
		return c, nil
	})
	if err != nil {
		return nil, "", fmt.Errorf("read the changes of keys: %w", err)
	}
	return changes, next, nil
}

// holds reports ErrCursorGone unless the change that a reader saw last is still what it was.
func (c feedCursor) holds(ctx context.Context, db pg.Querier, merchant string, rebased int64) error {
	var (
		key   int64
		state State
		at    time.Time
	)
	err := db.QueryRow(ctx, readSeen, merchant, fmt.Sprint(c.xid), c.movement).Scan(&key, &state, &at)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return ErrCursorGone
	case err != nil:
		return fmt.Errorf("look for the change of a cursor: %w", err)
	case c.rebased != rebased || c.checked && c.check != checkChange(key, state, at):
		return ErrCursorGone
	}
	return nil
}

func readCursor(text string) (c feedCursor, err error) {
	if text == "" {
		return c, nil
	}
	if n, err := fmt.Sscanf(text, "%d.%d.%d.%08x", &c.xid, &c.movement, &c.rebased, &c.check); n == 4 && err == nil && c.String() == text {
		c.checked = true
		return c, nil
	}
	c = feedCursor{}
	if n, err := fmt.Sscanf(text, "%d.%d", &c.xid, &c.movement); n != 2 || err != nil || fmt.Sprintf("%d.%d", c.xid, c.movement) != text {
		return c, ErrCursor
	}
	return c, nil
}
