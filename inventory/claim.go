package inventory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/internal/pg"
)

// A Unit is one key's worth of an order line.
type Unit struct {
	Order string
	Line  string
	Unit  int // from 1
}

// A Change is why a key's state changes, for the movement that records it.
type Change struct {
	Reason string // a word or two: "paid", "refund", …
	Actor  string // who: "settle", or a person's name
	Event  string // the Stripe event that made keytill look, if one did
	At     time.Time
}

// A Claimed key is allocated to its unit, in a transaction that is still open.
type Claimed struct {
	Unit  Unit
	KeyID int64
}

// ErrContended says that keys are left, but other transactions hold locks on them. Whoever gets it has neither sold out
// nor a key: roll back, and claim again with Patient.
var ErrContended = errors.New("the keys that are left are locked by other transactions")

// A Request asks for one key of a pool for each unit.
type Request struct {
	Merchant string
	Pool     int64
	Units    []Unit
	Change   Change
	Events   []string // the Stripe event behind each unit, where units of several payments are claimed; nil: the Change's

	// Patient waits for locked keys instead of returning ErrContended. The caller holds the pool's lock (LockPools) and
	// took it before any other lock, so that patient claims cannot wait for each other.
	Patient bool
}

// events are the event behind each unit.
func (r Request) events() []string {
	if r.Events != nil {
		return r.Events
	}
	return slices.Repeat([]string{r.Change.Event}, len(r.Units))
}

// Claimer claims keys. It remembers where in each pool it last found one.
type Claimer struct {
	hints hints

	claims, keys, empty, contended atomic.Int64
}

// ClaimStats count what a Claimer has done since it was made, also in transactions that were rolled back.
type ClaimStats struct {
	Claims    int64
	Keys      int64 // that they got
	Empty     int64 // claims that got fewer keys than they asked for: the pool is sold out
	Contended int64 // claims that ended with ErrContended
}

// Stats are the counts so far.
func (c *Claimer) Stats() ClaimStats {
	return ClaimStats{Claims: c.claims.Load(), Keys: c.keys.Load(), Empty: c.empty.Load(), Contended: c.contended.Load()}
}

func (c *Claimer) count(asked, got int, err error) {
	c.claims.Add(1)
	switch {
	case errors.Is(err, ErrContended):
		c.contended.Add(1)
	case err == nil && got < asked:
		c.empty.Add(1)
		fallthrough
	case err == nil:
		c.keys.Add(int64(got))
	}
}

// NewClaimer returns a Claimer without hints.
func NewClaimer() *Claimer { return &Claimer{hints: hints{of: make(map[poolRef]hint)}} }

// One claim, one statement. The rows are locked and counted before they are updated: a LIMIT below FOR UPDATE that
// stood inside the UPDATE's WHERE could be run again and take more than it should. The limit and the state are literals, so
// that no generic plan guesses at them and leaves the partial index. The UPDATE's guard is no literal, and its ids are an
// array, so that it goes by the primary key: with stale statistics (a new table, a large import), the planner has been
// seen to take keys_available for it and walk all that is on the shelf.
//
// Lock: the picked rows, FOR UPDATE. Index: keys_available, then keys_pkey.
const claimKeys = `
WITH picked AS MATERIALIZED (
    SELECT key_id, position, state
      FROM keytill.keys
     WHERE merchant_id = $1 AND pool_id = $2 AND state = 'available' AND position >= $3
       AND (use_by IS NULL OR use_by >= ($10::timestamptz AT TIME ZONE 'UTC')::date)
     ORDER BY position
     LIMIT %d
       FOR UPDATE %s
), ordered AS MATERIALIZED (
    SELECT array_agg(key_id ORDER BY position) AS ids, min(state) AS state FROM picked
), taken AS (
    UPDATE keytill.keys k
       SET state = 'allocated', order_id = u.order_id, line_id = u.line_id, unit = u.unit
      FROM unnest((SELECT ids FROM ordered), $4::text[], $5::text[], $6::int[], $9::text[])
           AS u (key_id, order_id, line_id, unit, event_id)
     WHERE k.merchant_id = $1 AND k.key_id = ANY ((SELECT ids FROM ordered)::bigint[]) AND k.key_id = u.key_id
       AND k.state = (SELECT state FROM ordered)
    RETURNING k.key_id, k.position, k.order_id, k.line_id, k.unit, u.event_id
), moved AS (
    INSERT INTO keytill.movements
           (merchant_id, pool_id, key_id, from_state, to_state, order_id, line_id, unit, reason, actor, event_id, at)
    SELECT $1, $2, key_id, 'available', 'allocated', order_id, line_id, unit, $7, $8, nullif(event_id, ''), $10 FROM taken
)
SELECT key_id, position, order_id, line_id, unit FROM taken`

const (
	skipLocked    = "SKIP LOCKED"
	waitForLocked = ""
)

// The second look. SKIP LOCKED finds nothing where rows are locked or gone; this one sees locked rows too, so only its
// "none" means sold out. A key whose hold has run out is on the shelf too. Index: keys_available, keys_reserved.
const anyAvailable = `
SELECT EXISTS (SELECT 1 FROM keytill.keys
                WHERE merchant_id = $1 AND pool_id = $2 AND state = 'available'
                  AND (use_by IS NULL OR use_by >= ($3::timestamptz AT TIME ZONE 'UTC')::date))
    OR EXISTS (SELECT 1 FROM keytill.keys
                WHERE merchant_id = $1 AND pool_id = $2 AND state = 'reserved' AND reserved_until <= $3)`

// Claim allocates a key to each unit, oldest keys to the first units, and returns those it got. Fewer than asked means
// that the pool is sold out.
func (c *Claimer) Claim(ctx context.Context, tx pgx.Tx, req Request) ([]Claimed, error) {
	claimed, err := c.claim(ctx, tx, req)
	c.count(len(req.Units), len(claimed), err)
	return claimed, err
}

func (c *Claimer) claim(ctx context.Context, tx pgx.Tx, req Request) ([]Claimed, error) {
	ref := poolRef{req.Merchant, req.Pool}
	rest, events := req.Units, req.events()
	var claimed []Claimed
	from := c.hints.from(ref)
	take := func(at int64, locked string) error {
		began := time.Now()
		got, err := claimOnce(ctx, tx, req, rest, events, at, locked)
		if err != nil {
			return err
		}
		if len(got) > 0 {
			from.position = at
			c.hints.remember(ref, from, got[0].position, time.Since(began))
		}
		for _, g := range got {
			claimed = append(claimed, g.Claimed)
		}
		rest, events = rest[len(got):], events[len(got):]
		return nil
	}
	if from.position > 0 {
		if err := take(from.position, skipLocked); err != nil {
			return nil, err
		}
		if len(rest) > 0 {
			c.hints.forget(ref)
		}
	}
	if len(rest) > 0 {
		if err := take(0, skipLocked); err != nil {
			return nil, err
		}
	}
	locked := skipLocked
	if req.Patient {
		locked = waitForLocked
	}
	for len(rest) > 0 {
		if freed, err := freeExpired(ctx, tx, req.Merchant, req.Pool, len(rest), req.Change.At, locked); err != nil {
			return nil, err
		} else if freed > 0 {
			if err := take(0, skipLocked); err != nil {
				return nil, err
			}
			continue
		}
		left, err := Any(ctx, tx, req.Merchant, req.Pool, req.Change.At)
		if err != nil || !left {
			return claimed, err
		}
		if !req.Patient {
			return nil, fmt.Errorf("pool %d: %w", req.Pool, ErrContended)
		}
		if err := take(0, waitForLocked); err != nil {
			return nil, err
		}
	}
	return claimed, nil
}

// Any reports whether the pool has an available key, locked or not.
func Any(ctx context.Context, db pg.Querier, merchant string, pool int64, now time.Time) (any bool, err error) {
	if err := db.QueryRow(ctx, anyAvailable, merchant, pool, now).Scan(&any); err != nil {
		return false, fmt.Errorf("look for a key in pool %d: %w", pool, err)
	}
	return any, nil
}

type claimedAt struct {
	Claimed
	position int64
}

func claimOnce(ctx context.Context, tx pgx.Tx, req Request, units []Unit, events []string, from int64, locked string) ([]claimedAt, error) {
	orders, lines, numbers := unitColumns(units)
	rows, err := tx.Query(ctx, fmt.Sprintf(claimKeys, len(units), locked), req.Merchant, req.Pool, from, orders, lines, numbers,
		req.Change.Reason, req.Change.Actor, events, req.Change.At)
	if err != nil {
		return nil, fmt.Errorf("claim %d keys of pool %d: %w", len(units), req.Pool, err)
	}
	got, err := collectClaimed(rows)
	if err != nil {
		return nil, fmt.Errorf("claim %d keys of pool %d: %w", len(units), req.Pool, err)
	}
	return got, nil
}

// collectClaimed reads claimed keys and puts them in the order of the shelf, which is that of the units.
func collectClaimed(rows pgx.Rows) ([]claimedAt, error) {
	got, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (claimedAt, error) {
		var c claimedAt
		err := row.Scan(&c.KeyID, &c.position, &c.Unit.Order, &c.Unit.Line, &c.Unit.Unit)
		return c, err
	})
	slices.SortFunc(got, func(a, b claimedAt) int { return cmp.Compare(a.position, b.position) })
	return got, err
}

func unitColumns(units []Unit) (orders, lines []string, numbers []int32) {
	orders = make([]string, len(units))
	lines = make([]string, len(units))
	numbers = make([]int32, len(units))
	for i, u := range units {
		orders[i], lines[i], numbers[i] = u.Order, u.Line, int32(u.Unit)
	}
	return orders, lines, numbers
}
