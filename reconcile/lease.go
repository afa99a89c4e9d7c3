package reconcile

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/internal/pg"
)

// ErrBusy says that another process sweeps this merchant.
var ErrBusy = errors.New("another process is sweeping this merchant")

// errLeaseLost says that this sweep stood still for so long that another one took over.
var errLeaseLost = errors.New("this sweep stood still for so long that another process took over")

// leaseTime is how long a sweep may stand still, or be dead, before another may take over. A page and a round of
// settles, with all their retries, take less.
const leaseTime = 5 * time.Minute

const (
	// Lock: the merchant's lease row. No row comes back where the lease is another's.
	takeLease = `
INSERT INTO keytill.sweep_leases AS l (merchant_id, holder, taken_at, expires_at) VALUES ($1, $2, $3, $4)
ON CONFLICT (merchant_id) DO UPDATE SET holder = $2, taken_at = $3, expires_at = $4
  WHERE l.expires_at <= $3`

	readLease = `SELECT taken_at, expires_at FROM keytill.sweep_leases WHERE merchant_id = $1`

	renewLease = `UPDATE keytill.sweep_leases SET expires_at = $3 WHERE merchant_id = $1 AND holder = $2`

	endLease = `DELETE FROM keytill.sweep_leases WHERE merchant_id = $1 AND holder = $2`
)

// lease is the right to sweep one merchant. It is a row and not a lock of a session, which a pooler would give to
// somebody else.
type lease struct {
	db       pg.Querier
	merchant string
	holder   string
	now      func() time.Time
}

// take takes the lease, or returns ErrBusy.
func (s *Sweeper) take(ctx context.Context, merchant string) (*lease, error) {
	l := &lease{db: s.db, merchant: merchant, holder: rand.Text(), now: s.now}
	now := s.now()
	tag, err := s.db.Exec(ctx, takeLease, merchant, l.holder, now, now.Add(leaseTime))
	if err != nil {
		return nil, fmt.Errorf("take the lease: %w", err)
	}
	if tag.RowsAffected() == 1 {
		return l, nil
	}
	var taken, expires time.Time
	err = s.db.QueryRow(ctx, readLease, merchant).Scan(&taken, &expires)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, ErrBusy // it has just ended
	case err != nil:
		return nil, fmt.Errorf("read the lease: %w", err)
	}
	return nil, fmt.Errorf("%w, since %s UTC; if it died, its lease ends at %s UTC", ErrBusy,
		taken.UTC().Format(time.TimeOnly), expires.UTC().Format(time.TimeOnly))
}

// renew keeps the lease, or returns errLeaseLost.
func (l *lease) renew(ctx context.Context) error {
	if l == nil {
		return nil // a dry run needs none
	}
	tag, err := l.db.Exec(ctx, renewLease, l.merchant, l.holder, l.until())
	if err != nil {
		return fmt.Errorf("renew the lease: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return errLeaseLost
	}
	return nil
}

func (l *lease) until() time.Time { return l.now().Add(leaseTime) }

// end gives the lease back, also when the sweep was told to stop.
func (l *lease) end(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
	defer cancel()
	_, _ = l.db.Exec(ctx, endLease, l.merchant, l.holder) // else it expires
}

// lastWords is how long a sweep that was told to stop may take to say where it stopped.
const lastWords = 15 * time.Second
