package fulfillment

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"github.com/keytill/keytill/internal/pg"
	"github.com/keytill/keytill/inventory"
)

// Errors of a reservation. Nothing is held then, in none of the pools.
var (
	ErrSoldOut = errors.New("sold out")
	ErrTooMany = errors.New("more than may be held at once")
)

// DefaultHold is how long a reservation lasts unless it or the configuration says otherwise.
const DefaultHold = 15 * time.Minute

// maxHeldPerRef bounds what one cart can hold, so that nobody empties the shelf without paying.
const maxHeldPerRef = 100

// reserveTries is how often a reservation is tried: once in passing, once with the pools locked, and again if a unit has
// come to wait meanwhile.
const reserveTries = 4

// A Reservation holds stock before payment. Ref is what ties the payment to it: put it on the Checkout Session as
// client_reference_id, or on a PaymentIntent as the metadata keytill_reference.
type Reservation struct {
	Ref   string
	Lines []ReservationLine
	For   time.Duration // Config.HoldFor unless set
}

// A ReservationLine asks for keys of a pool.
type ReservationLine struct {
	SKU      string
	Quantity int // keys
}

// A Held reservation is what the storefront puts on its Checkout Session.
type Held struct {
	Ref       string    `json:"ref"`        // client_reference_id
	ExpiresAt time.Time `json:"expires_at"` // let the session expire no later
	Keys      int       `json:"keys"`       // held on the shelf
	Ahead     int       `json:"ahead"`      // sold ahead of stock: they will wait
}

const (
	// Lock: the reference, so that two requests of one cart come one after the other and each sees what the other holds.
	lockRef = `SELECT pg_advisory_xact_lock(hashtextextended('keytill.ref ' || $1 || ' ' || $2, 0))`

	// Whether units wait in the pools, and how many, and how many are reserved ahead. Index: fulfilments_waiting,
	// reservations_pool.
	readPoolPromises = `
SELECT p.pool_id, p.pending_supply, p.max_reserved,
       (SELECT count(*) FROM keytill.fulfilments f
         WHERE f.merchant_id = p.merchant_id AND f.pool_id = p.pool_id AND f.state = 'waiting'),
       (SELECT coalesce(sum(r.ahead), 0) FROM keytill.reservations r
         WHERE r.merchant_id = p.merchant_id AND r.pool_id = p.pool_id AND r.expires_at > $3 AND r.ref <> $4),
       (SELECT coalesce(sum(r.keys), 0) FROM keytill.reservations r
         WHERE r.merchant_id = p.merchant_id AND r.pool_id = p.pool_id AND r.expires_at > $3 AND r.ref <> $4)
  FROM keytill.pools p
 WHERE p.merchant_id = $1 AND p.pool_id = ANY ($2)`

	// Index: reservations_pkey.
	upsertReservation = `
INSERT INTO keytill.reservations (merchant_id, ref, pool_id, keys, ahead, expires_at, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (merchant_id, ref, pool_id) DO UPDATE
   SET keys = excluded.keys, ahead = excluded.ahead, expires_at = excluded.expires_at, created_at = excluded.created_at`

	deleteReservations = `DELETE FROM keytill.reservations WHERE merchant_id = $1 AND ref = ANY ($2) AND NOT pool_id = ANY ($3)`

	insertAttempts = `
INSERT INTO keytill.reservation_attempts (merchant_id, pool_id, at, result)
SELECT $1, pool_id, $3, $4 FROM unnest($2::bigint[]) AS p (pool_id)`
)

// Reserve holds keys for a reference, in all pools or in none. The same reference again changes what it holds to what it
// asks for now and starts its time anew, so that asking twice is asking once. Where a pool has no key left it may sell
// ahead, as far as its pending supply goes; without one it returns ErrSoldOut.
func (s *Service) Reserve(ctx context.Context, merchant string, r Reservation) (Held, error) {
	wanted, err := s.wanted(ctx, merchant, r)
	if err != nil {
		return Held{}, err
	}
	pools := slices.Sorted(maps.Keys(wanted))
	var held Held
	err = s.reserveOnce(ctx, merchant, r, wanted, nil, &held)
	for try := 1; errors.Is(err, inventory.ErrContended) && try < reserveTries; try++ {
		err = s.reserveOnce(ctx, merchant, r, wanted, pools, &held)
	}
	s.noteAttempt(ctx, merchant, pools, held, err)
	if err != nil {
		return Held{}, fmt.Errorf("reserve for %s: %w", r.Ref, err)
	}
	return held, nil
}

// wanted adds up what a reservation asks for, by pool.
func (s *Service) wanted(ctx context.Context, merchant string, r Reservation) (map[int64]int, error) {
	if r.Ref == "" || len(r.Ref) > 200 {
		return nil, errors.New("a reservation needs a reference of 1 to 200 bytes, as Stripe's client_reference_id")
	}
	if r.For < 0 {
		return nil, fmt.Errorf("a reservation cannot last %s", r.For)
	}
	wanted := make(map[int64]int)
	total := 0
	for _, line := range r.Lines {
		if line.Quantity < 1 {
			return nil, fmt.Errorf("reserve %d of %s: it must be at least one", line.Quantity, line.SKU)
		}
		pool, err := inventory.PoolBySKU(ctx, s.db, merchant, line.SKU)
		if err != nil {
			return nil, err
		}
		if line.Quantity > maxHeldPerRef-total {
			return nil, fmt.Errorf("reserve for %s: one reference holds at most %d keys: %w", r.Ref, maxHeldPerRef, ErrTooMany)
		}
		wanted[pool.ID] += line.Quantity
		total += line.Quantity
	}
	if total == 0 {
		return nil, errors.New("a reservation needs at least one line")
	}
	return wanted, nil
}

// reserveOnce is one transaction. patient are the pools whose locked keys are waited for; none at first.
func (s *Service) reserveOnce(ctx context.Context, merchant string, r Reservation, wanted map[int64]int, patient []int64, held *Held) error {
	return pg.InTx(ctx, s.db, func(tx pgx.Tx) error {
		now := s.now()
		lasts := r.For
		if lasts == 0 {
			lasts = s.holdFor
		}
		*held = Held{Ref: r.Ref, ExpiresAt: now.Add(lasts)}
		h := holding{Service: s, tx: tx, merchant: merchant, ref: r.Ref, now: now, until: held.ExpiresAt, patient: patient != nil}
		if err := inventory.LockPools(ctx, tx, merchant, patient); err != nil {
			return err
		}
		if err := h.start(ctx, slices.Sorted(maps.Keys(wanted))); err != nil {
			return err
		}
		for _, pool := range slices.Sorted(maps.Keys(wanted)) {
			keys, ahead, err := h.hold(ctx, pool, wanted[pool])
			if err != nil {
				return err
			}
			held.Keys += keys
			held.Ahead += ahead
		}
		return h.finish(ctx)
	})
}

// holding is a reservation under way.
type holding struct {
	*Service
	tx         pgx.Tx
	merchant   string
	ref        string
	now, until time.Time
	patient    bool

	pools    []int64
	shelf    []int64       // of whose shelf keys were taken
	has      map[int64]int // held before
	promises map[int64]promise
}

// promise is what a pool has promised to others.
type promise struct {
	pendingSupply *int64
	maxReserved   *int64
	waiting       int64
	ahead         int64
	reserved      int64
}

func (h *holding) change(reason string) inventory.Change {
	return inventory.Change{Reason: reason, Actor: "storefront", At: h.now}
}

// start reads what the reference holds already, and extends that: it is the buyer's as long as the cart is alive.
func (h *holding) start(ctx context.Context, pools []int64) (err error) {
	h.pools = pools
	if _, err := h.tx.Exec(ctx, lockRef, h.merchant, h.ref); err != nil {
		return fmt.Errorf("lock the reference: %w", err)
	}
	if err := inventory.ExtendHeld(ctx, h.tx, h.merchant, h.ref, h.until); err != nil {
		return err
	}
	if h.has, err = inventory.Held(ctx, h.tx, h.merchant, h.ref); err != nil {
		return err
	}
	rows, err := h.tx.Query(ctx, readPoolPromises, h.merchant, pools, h.now, h.ref)
	if err != nil {
		return fmt.Errorf("read what the pools have promised: %w", err)
	}
	h.promises = make(map[int64]promise)
	var (
		pool int64
		p    promise
	)
	_, err = pgx.ForEachRow(rows, []any{&pool, &p.pendingSupply, &p.maxReserved, &p.waiting, &p.ahead, &p.reserved}, func() error {
		h.promises[pool] = p
		return nil
	})
	if err != nil {
		return fmt.Errorf("read what the pools have promised: %w", err)
	}
	return nil
}

// hold brings what the reference holds of a pool to n keys, or sells the missing ones ahead.
func (h *holding) hold(ctx context.Context, pool int64, n int) (keys, ahead int, err error) {
	p := h.promises[pool]
	keys = h.has[pool]
	if keys > n {
		if _, err := inventory.ReleaseHeld(ctx, h.tx, h.merchant, []string{h.ref}, pool, keys-n, h.change("cart changed")); err != nil {
			return 0, 0, err
		}
		keys = n
	}
	if p.maxReserved != nil && p.reserved+int64(n) > *p.maxReserved {
		return 0, 0, fmt.Errorf("pool %d holds %d keys of at most %d: %w", pool, p.reserved, *p.maxReserved, ErrTooMany)
	}
	// What is on the shelf belongs to those who wait, if any do.
	if keys < n && p.waiting == 0 {
		got, err := h.claimer.Hold(ctx, h.tx, inventory.Hold{Merchant: h.merchant, Pool: pool, Ref: h.ref, Keys: n - keys, Until: h.until,
			Change: h.change("reserved")}, h.patient)
		if err != nil {
			return 0, 0, err
		}
		if keys += got; got > 0 {
			h.shelf = append(h.shelf, pool)
		}
	}
	if ahead = n - keys; ahead > 0 {
		if err := h.sellAhead(ctx, pool, int64(ahead)); err != nil {
			return 0, 0, err
		}
	}
	_, err = h.tx.Exec(ctx, upsertReservation, h.merchant, h.ref, pool, keys, ahead, h.until, h.now)
	if err != nil {
		return 0, 0, fmt.Errorf("write the reservation: %w", err)
	}
	return keys, ahead, nil
}

// sellAhead checks that the pool may promise more keys than it has. The pool's lock makes the sum of promises one that
// nobody else adds to meanwhile.
func (h *holding) sellAhead(ctx context.Context, pool, n int64) error {
	if h.promises[pool].pendingSupply == nil {
		return fmt.Errorf("pool %d: %w", pool, ErrSoldOut)
	}
	if !h.patient {
		// Start over with the pool locked.
		return fmt.Errorf("pool %d: %w", pool, inventory.ErrContended)
	}
	if p := h.promises[pool]; p.waiting+p.ahead+n > *p.pendingSupply {
		return fmt.Errorf("pool %d has promised %d keys of %d to come: %w", pool, p.waiting+p.ahead, *p.pendingSupply, ErrSoldOut)
	}
	return nil
}

// finish lets go of pools that the reference no longer asks for.
func (h *holding) finish(ctx context.Context) error {
	if len(h.shelf) > 0 {
		// As a settle looks again after its claim: see errOvertook.
		tag, err := h.tx.Exec(ctx, readQueued, h.merchant, h.shelf, []string{})
		if err != nil {
			return fmt.Errorf("look who waits: %w", err)
		}
		if tag.RowsAffected() > 0 {
			return fmt.Errorf("a unit has come to wait meanwhile: %w", inventory.ErrContended)
		}
	}
	if _, err := h.tx.Exec(ctx, deleteReservations, h.merchant, []string{h.ref}, h.pools); err != nil {
		return fmt.Errorf("write the reservation: %w", err)
	}
	var served []river.InsertManyParams
	for pool, keys := range h.has {
		if slices.Contains(h.pools, pool) {
			continue
		}
		if _, err := inventory.ReleaseHeld(ctx, h.tx, h.merchant, []string{h.ref}, pool, keys, h.change("cart changed")); err != nil {
			return err
		}
		served = append(served, river.InsertManyParams{Args: ServeJob{Merchant: h.merchant, Pool: pool}})
	}
	return insertJobs(ctx, h.jobs, h.tx, served)
}

// noteAttempt counts how a reservation ended. It is for the dashboard and fails silently but for the log.
func (s *Service) noteAttempt(ctx context.Context, merchant string, pools []int64, held Held, err error) {
	result := "ok"
	switch {
	case errors.Is(err, ErrSoldOut):
		result = "sold_out"
	case errors.Is(err, ErrTooMany):
		result = "too_many"
	case err != nil:
		return
	case held.Ahead > 0:
		result = "backorder"
	}
	if _, err := s.db.Exec(ctx, insertAttempts, merchant, pools, s.now(), result); err != nil {
		s.log.WarnContext(ctx, "could not count a reservation", "error", err)
	}
}

// Release lets go of what a reference holds, as when a cart is emptied. It says how many keys came back; letting go
// twice is no error.
func (s *Service) Release(ctx context.Context, merchant, ref string) (released int, err error) {
	err = pg.InTx(ctx, s.db, func(tx pgx.Tx) error {
		released, err = s.releaseRefs(ctx, tx, merchant, []string{ref}, inventory.Change{Reason: "released", Actor: "storefront", At: s.now()})
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("release %s: %w", ref, err)
	}
	return released, nil
}

// releaseRefs gives back what references hold, and leaves jobs that serve the pools.
func (s *Service) releaseRefs(ctx context.Context, tx pgx.Tx, merchant string, refs []string, change inventory.Change) (released int, err error) {
	freed, err := inventory.ReleaseHeld(ctx, tx, merchant, refs, 0, maxHeldPerRef*len(refs), change)
	if err != nil {
		return 0, err
	}
	if _, err := tx.Exec(ctx, deleteReservations, merchant, refs, []int64{}); err != nil {
		return 0, fmt.Errorf("delete the reservation: %w", err)
	}
	var jobs []river.InsertManyParams
	for pool, keys := range freed {
		released += keys
		jobs = append(jobs, river.InsertManyParams{Args: ServeJob{Merchant: merchant, Pool: pool}})
	}
	return released, insertJobs(ctx, s.jobs, tx, jobs)
}
