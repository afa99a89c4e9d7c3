package inventory

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// The last key's hold has run out, and another transaction is at that key: a patient claim waits for it in the database
// and does not ask again and again.
func TestPatientClaimWaitsForAKeyWhoseHoldRanOut(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 1)
	exec(t, db, `UPDATE keytill.keys SET state = 'reserved', reserved_for = 'cs_cart', reserved_until = $1`, noon.Add(-time.Hour))
	holder := begin(t, db, pgx.TxOptions{})
	exec(t, holder, `SELECT FROM keytill.keys FOR UPDATE`)
	type answer struct {
		got []Claimed
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		got, err := settleClaim(t.Context(), db, NewClaimer(), request(pool, units("cs_1", 1)))
		answers <- answer{got, err}
	}()
	waiting(t, db)
	if err := holder.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a := <-answers; a.err != nil || len(a.got) != 1 {
		t.Errorf("claimed %v, error %v", a.got, a.err)
	}
}

// A key that was changed while the claim waited for it, and is on the shelf all the same.
func TestPatientClaimTakesAKeyThatWasChangedMeanwhile(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 2)
	holder := begin(t, db, pgx.TxOptions{})
	exec(t, holder, `UPDATE keytill.keys SET state = 'quarantined'`)
	exec(t, holder, `UPDATE keytill.keys SET state = 'available'`)
	answers := make(chan []Claimed, 1)
	go func() {
		got, err := settleClaim(t.Context(), db, NewClaimer(), request(pool, units("cs_1", 2)))
		if err != nil {
			t.Error(err)
		}
		answers <- got
	}()
	waiting(t, db)
	if err := holder.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := <-answers; len(got) != 2 || distinct(got) != 2 {
		t.Errorf("claimed %v, want both", got)
	}
}
