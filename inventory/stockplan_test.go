package inventory

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/internal/pgtest"
)

// A ledger of tens of thousands of rows, all folded: counting must read the few that came since, whatever the planner
// believes of them.
func TestStockReadsTheTailOfTheLedgerAlone(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for _, query := range []string{
		`INSERT INTO keytill.pools (merchant_id, sku, name, created_at) VALUES ('default', 'game', 'Game', now())`,
		`INSERT INTO keytill.stock (merchant_id, pool_id) SELECT merchant_id, pool_id FROM keytill.pools`,
		`INSERT INTO keytill.movements (merchant_id, pool_id, key_id, from_state, to_state, reason, actor, at)
		 SELECT 'default', pool_id, n, 'available', 'allocated', 'paid', 'settle', now() FROM keytill.pools, generate_series(1, 50000) AS n`,
	} {
		if _, err := db.Exec(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
	if err := FoldAll(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(t.Context(), `ANALYZE`); err != nil {
		t.Fatal(err)
	}
	for _, pool := range []any{nil, int64(1)} {
		rows, err := db.Query(t.Context(), `EXPLAIN (ANALYZE, COSTS OFF) `+countStock, "default", pool)
		if err != nil {
			t.Fatal(err)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		plan := strings.Join(lines, "\n")
		if strings.Contains(plan, "Seq Scan on movements") || !strings.Contains(plan, "movements_pkey") {
			t.Errorf("pool %v: the whole ledger is read:\n%s", pool, plan)
		}
	}
}
