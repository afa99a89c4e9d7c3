package inventory

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// The last day of use is a day in UTC, wherever keytill runs: what a claim may sell, a cart may hold.
func TestAHoldGoesByTheSameDayAsAClaim(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 3)
	exec(t, db, `UPDATE keytill.keys SET use_by = '2026-03-01'`)
	late := time.Date(2026, 3, 1, 23, 30, 0, 0, time.UTC).In(time.FixedZone("east", 2*60*60)) // there it is the second already
	tx := begin(t, db, pgx.TxOptions{})
	change := Change{Reason: "reserved", Actor: "storefront", At: late}
	held, err := NewClaimer().Hold(t.Context(), tx, Hold{Merchant: pool.Merchant, Pool: pool.ID, Ref: "cart", Keys: 1, Until: late.Add(time.Minute), Change: change}, false)
	if held != 1 || err != nil {
		t.Errorf("%d held, %v", held, err)
	}
	req := request(pool, units("cs_1", 1))
	req.Change.At = late
	if got, err := NewClaimer().Claim(t.Context(), tx, req); len(got) != 1 || err != nil {
		t.Errorf("%d claimed, %v", len(got), err)
	}
	change.At = late.Add(time.Hour)
	if held, err := NewClaimer().Hold(t.Context(), tx, Hold{Merchant: pool.Merchant, Pool: pool.ID, Ref: "cart", Keys: 1, Until: late, Change: change}, false); held != 0 || err != nil {
		t.Errorf("a day later %d held, %v", held, err)
	}
	req.Units, req.Change.At = units("cs_2", 1), late.Add(time.Hour)
	if got, err := NewClaimer().Claim(t.Context(), tx, req); len(got) != 0 || err != nil {
		t.Errorf("a day later %d claimed, %v", len(got), err)
	}
}
