package inventory

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// revoked sells keys and takes them back, each in a transaction of its own.
func revoked(t *testing.T, db *pgxpool.Pool, pool Pool, orders ...string) {
	t.Helper()
	for _, order := range orders {
		key := claim(t, db, NewClaimer(), pool, units(order, 1))[0].KeyID
		tx := begin(t, db, pgx.TxOptions{})
		if err := Move(t.Context(), tx, pool.Merchant, []int64{key}, Allocated, Revoked, Change{Reason: "test", Actor: "test", At: time.Now()}); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	settled(t, db)
}

// settled waits until no transaction of the cluster is older than what was written: another test's, say. The feed has
// nothing before.
func settled(t *testing.T, db *pgxpool.Pool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if one[bool](t, db, `SELECT coalesce(max(xid::text::bigint), 0) < pg_snapshot_xmin(pg_current_snapshot())::text::bigint FROM keytill.movements`) {
			return
		}
	}
	t.Fatal("a transaction runs for a minute")
}

func changesAfter(t *testing.T, db *pgxpool.Pool, cursor string) ([]KeyChange, string, error) {
	t.Helper()
	return Changes(t.Context(), db, DefaultMerchant, cursor, 2)
}

func TestTheFeedGoesOnWhereItsReaderIs(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 5)
	if changes, cursor, err := changesAfter(t, db, ""); err != nil || len(changes) != 0 || cursor != "" {
		t.Fatalf("an empty feed: %v, %q, %v", changes, cursor, err)
	}
	revoked(t, db, pool, "cs_1", "cs_2", "cs_3")
	first, cursor, err := changesAfter(t, db, "")
	if err != nil || len(first) != 2 {
		t.Fatalf("%d changes, %v", len(first), err)
	}
	rest, last, err := changesAfter(t, db, cursor)
	if err != nil || len(rest) != 1 || rest[0].Key == first[1].Key {
		t.Fatalf("then %v, %v", rest, err)
	}
	if none, again, err := changesAfter(t, db, last); err != nil || len(none) != 0 || again != last {
		t.Errorf("at the end: %v, %q, %v", none, again, err)
	}
	short := strings.Join(strings.Split(cursor, ".")[:2], ".") // as older versions gave them out
	if rest, _, err := changesAfter(t, db, short); err != nil || len(rest) != 1 {
		t.Errorf("a cursor of an older version: %v, %v", rest, err)
	}
	for _, text := range []string{"x", "1", "1.2.3", "1.2x", cursor + "0", "-1.2", " " + cursor, "1.2.3.zz"} {
		if _, _, err := changesAfter(t, db, text); !errors.Is(err, ErrCursor) {
			t.Errorf("cursor %q: %v", text, err)
		}
	}
}

// However a backup is restored, a reader who saw what it lacks is told so, and so is one who would be led past something.
func TestACursorOfAnotherHistoryIsRefused(t *testing.T) {
	t.Parallel()
	for name, restore := range map[string]string{
		"the change is not there": `DELETE FROM keytill.movements WHERE to_state = 'revoked' AND order_id = 'cs_2'`,
		"another change has its number": `UPDATE keytill.movements SET key_id = (SELECT key_id FROM keytill.keys WHERE order_id = 'cs_1')
			WHERE to_state = 'revoked' AND order_id = 'cs_2'`,
		"it was at another time":      `UPDATE keytill.movements SET at = at + interval '1 microsecond' WHERE to_state = 'revoked' AND order_id = 'cs_2'`,
		"changes were put before it":  `UPDATE keytill.movements SET xid = '1' WHERE to_state = 'revoked' AND order_id = 'cs_3'`,
		"it was put to the beginning": `UPDATE keytill.movements SET xid = '1' WHERE to_state = 'revoked' AND order_id = 'cs_2'`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, pool := stocked(t, 5)
			revoked(t, db, pool, "cs_1", "cs_2")
			_, cursor, err := changesAfter(t, db, "")
			if err != nil {
				t.Fatal(err)
			}
			revoked(t, db, pool, "cs_3")
			if exec(t, db, restore) != 1 {
				t.Fatal("nothing was restored")
			}
			changes, _, err := changesAfter(t, db, cursor)
			if !errors.Is(err, ErrCursorGone) || !strings.Contains(fmt.Sprint(err), "from its beginning") {
				t.Errorf("%v, %v", changes, err)
			}
			if _, _, err := changesAfter(t, db, ""); err != nil {
				t.Errorf("from the beginning: %v", err)
			}
		})
	}
}
