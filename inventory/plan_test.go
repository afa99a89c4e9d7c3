package inventory

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keytill/keytill/internal/pgtest"
)

// What one claim may touch: to find and lock its key, and with all that it writes (the key's row, its entries in four
// indexes, and the movement).
const (
	maxFound   = 20
	maxTouched = 50
)

// bulk puts keys into a pool by SQL, the first of them sold.
func bulk(t *testing.T, db *pgxpool.Pool, pool Pool, from, n, sold int) {
	t.Helper()
	exec(t, db, `
INSERT INTO keytill.keys (merchant_id, key_id, pool_id, batch_id, position, state, ciphertext, fingerprint, order_id, line_id, unit)
SELECT $1, i, $2, 1, i, CASE WHEN i < $3 + $5 THEN 'allocated' ELSE 'available' END,
       decode(repeat('ab', 60), 'hex'), int8send(i), CASE WHEN i < $3 + $5 THEN 'cs_bulk_' || i END,
       CASE WHEN i < $3 + $5 THEN 'li_1' END, CASE WHEN i < $3 + $5 THEN 1 END
  FROM generate_series($3::bigint, $3::bigint + $4 - 1) AS i`, pool.Merchant, pool.ID, from, n, sold)
}

// A planNode is a part of what EXPLAIN (FORMAT JSON) prints.
type planNode struct {
	Type    string     `json:"Node Type"`
	CTE     string     `json:"Subplan Name"`
	Index   string     `json:"Index Name"`
	Table   string     `json:"Relation Name"`
	Hit     int        `json:"Shared Hit Blocks"`
	Read    int        `json:"Shared Read Blocks"`
	Removed float64    `json:"Rows Removed by Filter"`
	Plans   []planNode `json:"Plans"`
}

// String is the plan's tree: each node with its index and the buffers of it and what is below it.
func (n planNode) String() string {
	var b strings.Builder
	n.write(&b, 0)
	return b.String()
}

func (n planNode) write(b *strings.Builder, depth int) {
	fmt.Fprintf(b, "%*s%s %s%s%s: %d buffers\n", 2*depth, "", n.Type, n.CTE, n.Index, n.Table, n.Hit+n.Read)
	for _, p := range n.Plans {
		p.write(b, depth+1)
	}
}

func (n planNode) walk(f func(planNode)) {
	f(n)
	for _, p := range n.Plans {
		p.walk(f)
	}
}

// buffers are those read to find and lock the keys, which is what the UPDATE reads, and all of the statement.
func buffers(plan planNode) (found, touched int) {
	plan.walk(func(n planNode) {
		if n.Type == "ModifyTable" && n.CTE == "CTE taken" {
			for _, p := range n.Plans {
				found += p.Hit + p.Read
			}
		}
	})
	return found, plan.Hit + plan.Read
}

// explainClaim prepares the claim of one key, runs it ten times, and returns the plan of one more.
func explainClaim(t *testing.T, db *pgxpool.Pool, mode string, pool Pool, from int64) planNode {
	t.Helper()
	tx := begin(t, db, pgx.TxOptions{})
	exec(t, tx, `SET LOCAL plan_cache_mode = `+mode)
	exec(t, tx, `PREPARE claim AS `+fmt.Sprintf(claimKeys, 1, skipLocked))
	defer func() { _ = tx.Rollback(t.Context()) }()
	args := func(i int) string {
		return fmt.Sprintf(`EXECUTE claim ('%s', %d, %d, '{cs_%d}', '{li_1}', '{1}', 'paid', 'settle', '{""}', '2026-03-01')`,
			pool.Merchant, pool.ID, from, i)
	}
	for i := range 10 {
		if n := exec(t, tx, args(i)); n != 1 {
			t.Fatalf("execution %d claimed %d keys", i, n)
		}
	}
	text := one[string](t, tx, `EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) `+args(10))
	var plans []struct{ Plan planNode }
	if err := json.Unmarshal([]byte(text), &plans); err != nil {
		t.Fatal(err)
	}
	exec(t, tx, `DEALLOCATE claim`) // it outlives its transaction
	return plans[0].Plan
}

func TestTheClaimReadsFewBuffersWhateverWasSold(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pool, small, late := makePool(t, db, "game"), makePool(t, db, "small"), makePool(t, db, "late")
	exec(t, db, `ALTER TABLE keytill.keys SET (autovacuum_enabled = off)`)
	check := func(name string, pool Pool, hints ...int64) {
		for _, mode := range []string{"auto", "force_generic_plan"} {
			for _, from := range append(hints, 0) {
				plan := explainClaim(t, db, mode, pool, from)
				indexes := make(map[string]bool)
				plan.walk(func(n planNode) {
					if n.Index != "" {
						indexes[n.Type+" "+n.Index] = true
					}
					if n.Type == "Seq Scan" {
						t.Errorf("%s, %s: walks a whole table:\n%s", name, mode, plan)
					}
				})
				if !indexes["Index Scan keys_available"] || !indexes["Index Scan keys_pkey"] || len(indexes) > 2 {
					t.Errorf("%s, %s, from %d: scans %v", name, mode, from, indexes)
				}
				if found, touched := buffers(plan); found > maxFound || touched > maxTouched {
					t.Errorf("%s, %s, from %d: %d and %d buffers, want at most %d and %d\n%s", name, mode, from, found, touched,
						maxFound, maxTouched, plan)
				}
			}
		}
	}
	bulk(t, db, pool, 1, 100_000, 50_000)
	bulk(t, db, small, 200_001, 2_000, 1_000)
	check("never analyzed", pool, 50_001)
	exec(t, db, `ANALYZE keytill.keys`)
	check("analyzed", pool, 50_001)
	check("another pool of the table", small, 201_001)

	// The statistics say that nothing is available, and then a file is imported.
	exec(t, db, `UPDATE keytill.keys SET state = 'allocated', order_id = 'cs_bulk_' || key_id, line_id = 'li_1', unit = 1 WHERE state = 'available'`)
	exec(t, db, `VACUUM ANALYZE keytill.keys`)
	bulk(t, db, late, 300_001, 50_000, 0)
	check("an import that the statistics do not know", late)
	exec(t, db, `ANALYZE keytill.keys`)
	check("long sold out, then restocked", late)
}

// Dead entries at the head of the index, which a long transaction keeps, are what the hint is for.
func TestTheHintPassesOverWhatALongTransactionKeeps(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pool := makePool(t, db, "game")
	exec(t, db, `ALTER TABLE keytill.keys SET (autovacuum_enabled = off)`)
	bulk(t, db, pool, 1, 20_000, 0)
	long := begin(t, db, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	exec(t, long, `SELECT 1 FROM keytill.keys LIMIT 1`)
	exec(t, db, `UPDATE keytill.keys SET state = 'allocated', order_id = 'cs_bulk_' || key_id, line_id = 'li_1', unit = 1 WHERE position <= 10000`)
	head := explainClaim(t, db, "auto", pool, 0)
	near := explainClaim(t, db, "auto", pool, 10_001)
	if found, _ := buffers(near); found > maxFound {
		t.Errorf("%d buffers from the hint\n%s", found, near)
	}
	if found, _ := buffers(head); found < 2*maxFound {
		t.Errorf("%d buffers from the head: this test shows nothing\n%s", found, head)
	}
}
