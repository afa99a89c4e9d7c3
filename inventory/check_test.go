package inventory

import (
	"fmt"
	"strings"
	"testing"

	"github.com/keytill/keytill/internal/pg"
)

func TestCheckFindsEachKindOfBreach(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, tamper string
		want         []string // one line for each, in any order
	}{
		{"a unit with two live keys",
			`DROP INDEX keytill.keys_live_unit; UPDATE keytill.keys SET unit = 1 WHERE state = 'allocated'`,
			[]string{"unit cs_1/li_1/1 of merchant default has 2 live keys"}},
		{"two live keys, one of them suspended",
			`DROP INDEX keytill.keys_live_unit; UPDATE keytill.keys SET state = 'suspended', unit = 1 WHERE unit = 2`,
			[]string{"unit cs_1/li_1/1 of merchant default has 2 live keys", "allocated", "suspended", "is suspended, its movements say allocated"}},
		{"a state without a movement", `UPDATE keytill.keys SET state = 'quarantined' WHERE position = (SELECT max(position) FROM keytill.keys)`,
			[]string{"has 3 keys available by its counts and 2 by its rows", "has 0 keys quarantined by its counts and 1 by its rows", "is quarantined, its movements say available"}},
		{"a sold key on the shelf again", `UPDATE keytill.keys SET state = 'available', order_id = NULL, line_id = NULL, unit = NULL WHERE unit = 1`,
			[]string{"has 3 keys available by its counts and 4", "has 2 keys allocated by its counts and 1", "is available, its movements say allocated"}},
		{"a key that is gone", `DELETE FROM keytill.keys WHERE position = (SELECT max(position) FROM keytill.keys)`,
			[]string{"has 3 keys available by its counts and 2 by its rows"}},
		{"a key that nobody imported", `INSERT INTO keytill.keys (merchant_id, key_id, pool_id, batch_id, position, ciphertext, fingerprint) SELECT merchant_id, 1, pool_id, 1, 1, '', '' FROM keytill.pools`,
			[]string{"has 3 keys available by its counts and 4 by its rows"}},
		{"wrong folded counts", `UPDATE keytill.stock SET counts = '{"revoked": 2}'`, []string{"has 2 keys revoked by its counts and 0 by its rows"}},
		{"no counts at all", `DELETE FROM keytill.stock`, []string{"has 0 keys available by its counts and 3", "has 0 keys allocated by its counts and 2"}},
		{"a horizon of another cluster", `UPDATE keytill.stock SET horizon = '9223372036854775807'`,
			[]string{"was restored into a cluster whose transaction ids began anew"}},
		{"a movement that is gone", `DELETE FROM keytill.movements WHERE unit = 1`,
			[]string{"has 4 keys available by its counts and 3", "has 1 keys allocated by its counts and 2", "is allocated, its movements say available"}},
		{"a movement that does not begin where the key was",
			`UPDATE keytill.movements SET from_state = 'reserved' WHERE unit = 1`,
			[]string{"moved from reserved while it was available", "available by its counts", "reserved by its counts"}},
		{"a movement of another pool", `UPDATE keytill.movements SET pool_id = 77 WHERE unit = 1`, []string{"4", "1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			db, pool := stocked(t, 5)
			claim(t, db, NewClaimer(), pool, units("cs_1", 2))
			whole(t, db)
			exec(t, db, tc.tamper)
			got := check(t, db)
			if len(got) != len(tc.want) {
				t.Errorf("%d breaches, want %d: %q", len(got), len(tc.want), got)
			}
			for _, want := range tc.want {
				if !strings.Contains(strings.Join(got, "\n"), want) {
					t.Errorf("no breach says %q: %q", want, got)
				}
			}
		})
	}
}

func check(t *testing.T, db pg.Querier) []string {
	t.Helper()
	breaches, err := Check(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	return breaches
}

func TestCheckSaysAFewOfEachKind(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 50)
	for i := range 20 {
		claim(t, db, NewClaimer(), pool, units(fmt.Sprint("cs_", i), 2))
	}
	exec(t, db, `DROP INDEX keytill.keys_live_unit; UPDATE keytill.keys SET unit = 1 WHERE state = 'allocated'; DELETE FROM keytill.movements WHERE key_id IS NOT NULL`)
	if got := check(t, db); len(got) != 10+2+10 {
		t.Errorf("%d breaches: %q", len(got), got)
	}
}

func TestCheckOfAnEmptyDatabaseFindsNothing(t *testing.T) {
	t.Parallel()
	db, _ := stocked(t, 0)
	whole(t, db)
}
