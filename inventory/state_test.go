package inventory

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keytill/keytill/internal/pg"
	"github.com/keytill/keytill/internal/sqltest"
)

func TestStatesAreAllOfTheConstants(t *testing.T) {
	t.Parallel()
	constants, err := sqltest.Constants(".", "State")
	if err != nil {
		t.Fatal(err)
	}
	var states []string
	for _, s := range States {
		states = append(states, string(s))
		if _, ok := moves[s]; !ok {
			t.Errorf("moves says nothing about %s", s)
		}
	}
	slices.Sort(states)
	if diff := cmp.Diff(constants, states); diff != "" {
		t.Errorf("States (-constants +list):\n%s", diff)
	}
	for from, tos := range moves {
		for _, state := range append(tos, from) {
			if !slices.Contains(States, state) {
				t.Errorf("moves names a state that is none: %s", state)
			}
		}
	}
}

// keyIn makes a key and brings it into a state by SQL; its unit is that of the order, where the state has one.
func keyIn(t *testing.T, db *pgxpool.Pool, pool Pool, id int64, state State, order string) {
	t.Helper()
	var unit, reserved any
	if state.Live() || state == Revoked && order != "" {
		unit = order
	}
	if state == Reserved {
		reserved = "cs_cart"
	}
	exec(t, db, `
INSERT INTO keytill.keys (merchant_id, key_id, pool_id, batch_id, position, state, ciphertext, fingerprint,
                          order_id, line_id, unit, reserved_for, reserved_until)
SELECT $1, $2, $3, 1, $2, $4, '', int8send($2), $5, CASE WHEN $5::text IS NOT NULL THEN 'li_1' END,
       CASE WHEN $5::text IS NOT NULL THEN 1 END, $6, CASE WHEN $6::text IS NOT NULL THEN now() END`,
		pool.Merchant, id, pool.ID, state, unit, reserved)
}

func move(t *testing.T, db *pgxpool.Pool, keys []int64, from, to State) error {
	t.Helper()
	return pg.InTx(t.Context(), db, func(tx pgx.Tx) error {
		return Move(t.Context(), tx, DefaultMerchant, keys, from, to, Change{Reason: "test", Actor: "ann", At: noon})
	})
}

func stateOf(t *testing.T, db pg.Querier, key int64) State {
	t.Helper()
	return one[State](t, db, `SELECT state FROM keytill.keys WHERE key_id = $1`, key)
}

// What the table allows and Move cannot do, since it has no unit and no reference to give: Reserve and Claim do it.
var needsMore = map[[2]State]bool{
	{Available, Reserved}: true, {Available, Allocated}: true, {Reserved, Allocated}: true,
}

func TestMoveGoesWhereTheTableSaysAndNowhereElse(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 0)
	id := int64(0)
	for _, from := range States {
		for _, to := range States {
			id++
			keyIn(t, db, pool, id, from, "cs_"+string(from)+string(to))
			before := one[int64](t, db, countMovements)
			err := move(t, db, []int64{id}, from, to)
			moved := one[int64](t, db, countMovements) - before
			name := string(from) + " to " + string(to)
			switch {
			case !CanMove(from, to):
				if !errors.Is(err, ErrIllegalMove) || !strings.Contains(err.Error(), string(from)) || stateOf(t, db, id) != from || moved != 0 {
					t.Errorf("%s, illegal: error %v, now %s, %d movements", name, err, stateOf(t, db, id), moved)
				}
			case needsMore[[2]State{from, to}]:
				var constraint string
				if pgErr := asPgError(err); pgErr != nil {
					constraint = pgErr.ConstraintName
				}
				if !strings.HasPrefix(constraint, "keys_check") || stateOf(t, db, id) != from || moved != 0 {
					t.Errorf("%s without a unit or a reference: error %v, now %s, %d movements", name, err, stateOf(t, db, id), moved)
				}
			default:
				if err != nil || stateOf(t, db, id) != to || moved != 1 {
					t.Errorf("%s, legal: error %v, now %s, %d movements", name, err, stateOf(t, db, id), moved)
				}
			}
		}
	}
}

// Every pair, with a key in every other state than the one that is named: nothing moves.
func TestMoveOfAKeyThatHasLeftItsStateChangesNothing(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 0)
	ids := make(map[State]int64)
	for i, state := range States {
		ids[state] = int64(i + 1)
		keyIn(t, db, pool, ids[state], state, "cs_"+string(state))
	}
	const image = `SELECT string_agg(k::text, E'\n' ORDER BY key_id) FROM keytill.keys k`
	before := one[string](t, db, image)
	for from, tos := range moves {
		for _, to := range tos {
			for actual, id := range ids {
				if actual == from {
					continue
				}
				if err := move(t, db, []int64{id}, from, to); !errors.Is(err, ErrMoved) {
					t.Errorf("%s to %s of a key that is %s: %v", from, to, actual, err)
				}
			}
		}
	}
	if diff := cmp.Diff(before, one[string](t, db, image)); diff != "" {
		t.Errorf("keys changed:\n%s", diff)
	}
	if n := one[int64](t, db, countMovements); n != 0 {
		t.Errorf("%d movements were written", n)
	}
}

func TestMoveIsAllOrNone(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 0)
	keyIn(t, db, pool, 1, Available, "")
	keyIn(t, db, pool, 2, Quarantined, "")
	for name, keys := range map[string][]int64{"one of two has moved": {1, 2}, "one does not exist": {1, 99}, "one is named twice": {1, 1}} {
		if err := move(t, db, keys, Available, Quarantined); !errors.Is(err, ErrMoved) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := pg.InTx(t.Context(), db, func(tx pgx.Tx) error {
		return Move(t.Context(), tx, "other", []int64{1}, Available, Quarantined, paid)
	}); !errors.Is(err, ErrMoved) {
		t.Errorf("another merchant's key: %v", err)
	}
	if stateOf(t, db, 1) != Available || one[int64](t, db, countMovements) != 0 {
		t.Errorf("key 1 is %s, %d movements", stateOf(t, db, 1), one[int64](t, db, countMovements))
	}
	if err := move(t, db, nil, Available, Quarantined); err != nil {
		t.Errorf("no keys: %v", err)
	}
}

func TestAKeyRemembersItsUnitUntilItIsOnTheShelfAgain(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 2)
	claimed := claim(t, db, NewClaimer(), pool, units("cs_1", 1))
	key := claimed[0].KeyID
	for _, step := range [][2]State{{Allocated, Suspended}, {Suspended, Revoked}, {Revoked, Suspended}, {Suspended, Allocated}, {Allocated, Revoked}, {Revoked, Allocated}} {
		if err := move(t, db, []int64{key}, step[0], step[1]); err != nil {
			t.Fatal(err)
		}
		if order := one[*string](t, db, `SELECT order_id FROM keytill.keys WHERE key_id = $1`, key); order == nil || *order != "cs_1" {
			t.Errorf("from %s to %s: the key's order is %v", step[0], step[1], order)
		}
	}
	rows := all[string](t, db, `SELECT concat_ws(' ', from_state, to_state, order_id, line_id, unit, reason, actor, event_id) FROM keytill.movements WHERE key_id = $1 ORDER BY movement_id LIMIT 2`, key)
	want := []string{"available allocated cs_1 li_1 1 paid settle evt_1", "allocated suspended cs_1 li_1 1 test ann"}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("movements (-want +got):\n%s", diff)
	}
	whole(t, db)
}

func TestARevokedKeysUnitCanHaveAnotherKeyAndThenTheFirstStaysRevoked(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 2)
	first := claim(t, db, NewClaimer(), pool, units("cs_1", 1))[0].KeyID
	if err := move(t, db, []int64{first}, Allocated, Revoked); err != nil {
		t.Fatal(err)
	}
	claim(t, db, NewClaimer(), pool, units("cs_1", 1))
	for _, to := range []State{Allocated, Suspended} {
		if err := move(t, db, []int64{first}, Revoked, to); !pg.Violates(err, "keys_live_unit") {
			t.Errorf("a second live key, %s: %v", to, err)
		}
	}
	whole(t, db)
}

// The schema's own refusals, whatever the code does.
func TestTheSchemaRefusesKeysThatCannotBe(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 0)
	for i, state := range States {
		keyIn(t, db, pool, int64(i+1), state, "cs_"+string(state))
	}
	for name, change := range map[string]string{
		"a state that is none":       `state = 'sold' WHERE state = 'available'`,
		"allocated without an order": `order_id = NULL WHERE state = 'allocated'`,
		"allocated without a line":   `line_id = NULL WHERE state = 'allocated'`,
		"suspended without a unit":   `unit = NULL WHERE state = 'suspended'`,
		"available with an order":    `order_id = 'cs_1' WHERE state = 'available'`,
		"quarantined with an order":  `order_id = 'cs_1' WHERE state = 'quarantined'`,
		"reserved for nobody":        `reserved_for = NULL WHERE state = 'reserved'`,
		"reserved for ever":          `reserved_until = NULL WHERE state = 'reserved'`,
		"available and yet reserved": `reserved_for = 'cs_1', reserved_until = now() WHERE state = 'available'`,
		"a unit's second live key":   `order_id = 'cs_allocated', line_id = 'li_1', unit = 1 WHERE state = 'suspended'`,
		"a text twice in a pool":     `fingerprint = (SELECT fingerprint FROM keytill.keys WHERE state = 'expired') WHERE state = 'available'`,
	} {
		_, err := db.Exec(t.Context(), `UPDATE keytill.keys SET `+change)
		if pgErr := asPgError(err); pgErr == nil || pgErr.Code != "23514" && pgErr.Code != "23505" {
			t.Errorf("%s: %v", name, err)
		}
	}
}
