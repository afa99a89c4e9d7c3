package reconcile

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/internal/pgtest"
)

// grow fills the tables that a page is compared with.
var grow = []string{
	`INSERT INTO keytill.pools (merchant_id, sku, name, created_at) VALUES ('default', 'game', 'Game', now())`,
	`INSERT INTO keytill.orders (merchant_id, order_id, payment_intent, charge, payment, currency, amount_total, amount_captured,
                                amount_refunded, placed_at, ticket, settled_at)
     SELECT 'default', 'cs_' || i, 'pi_' || i, 'ch_' || i, 'paid', 'usd', 1, 1, 0, now(), 1, now() FROM generate_series(1, 30000) AS i`,
	`INSERT INTO keytill.lines (merchant_id, order_id, line_id, ordinal, price, product, description, quantity, amount, pool_id)
     SELECT merchant_id, order_id, 'li_1', 1, 'p', 'p', '', 1, 1, (SELECT pool_id FROM keytill.pools) FROM keytill.orders`,
	`INSERT INTO keytill.fulfilments (merchant_id, order_id, line_id, unit, pool_id, state, key_id, changed_at)
     SELECT merchant_id, order_id, line_id, 1, pool_id, 'fulfilled', row_number() OVER (), now() FROM keytill.lines`,
	`INSERT INTO keytill.refunds (merchant_id, refund_id, order_id, amount, status, created_at)
     SELECT 'default', 're_' || i, 'cs_' || i, 1, 'succeeded', now() FROM generate_series(1, 30000) AS i`,
	`INSERT INTO keytill.disputes (merchant_id, dispute_id, order_id, amount, status, created_at)
     SELECT 'default', 'dp_' || i, 'cs_' || i, 1, 'won', now() FROM generate_series(1, 30000) AS i`,
	`INSERT INTO keytill.events (merchant_id, event_id, type, object_id, payment, livemode, received_at, next_try_at, state)
     SELECT 'default', 'evt_' || i, 't', 'cs_' || i, 'pi_' || i, false, now(), now(), 'done' FROM generate_series(1, 30000) AS i`,
	`INSERT INTO keytill.sweep_looked (merchant_id, object_id, digest, looked_at)
     SELECT 'default', 'cs_' || i, '\x00', now() FROM generate_series(1, 30000) AS i`,
	`INSERT INTO keytill.sweep_todo (merchant_id, ref, kind, object_ids, digests, reason, created_at, known_at)
     SELECT 'default', 'cs_' || i, 'sessions', ARRAY['cs_1'], ARRAY['\x00'::bytea], 'x', now(), now() FROM generate_series(1, 30000) AS i`,
	`ANALYZE`,
}

// Nothing that is done for each page, or each round of settles, reads a whole table, also by the plan that PostgreSQL makes
// for good after some executions.
func TestNoStatementOfAPageReadsAWholeTable(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn, err := db.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for _, statement := range append(grow, `SET plan_cache_mode = force_generic_plan`) {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%v\n%s", err, statement)
		}
	}
	for name, q := range map[string]struct{ types, query, args string }{
		"readStored":    {"(text, text[], text[], text[], text[])", readStored, "('default', ARRAY['cs_7'], ARRAY['cs_7'], ARRAY['pi_7'], ARRAY['ch_7'])"},
		"readTodo":      {"(text, bigint, timestamptz, text, boolean, int)", readTodo, "('default', 7, now(), 'cs_7', false, 24)"},
		"readLastEvent": {"(text)", readLastEvent, "('default')"},
		"readOpen":      {"(text, text, int)", readOpen, "('default', 'cs_7', 100)"},
	} {
		if _, err := conn.Exec(t.Context(), `PREPARE `+name+q.types+` AS `+q.query); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		rows, err := conn.Query(t.Context(), `EXPLAIN EXECUTE `+name+q.args)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, line := range lines {
			// Tables that hold next to nothing may be read as they please.
			if strings.Contains(line, "Seq Scan") && !strings.Contains(line, "pools") && !strings.Contains(line, "findings") {
				t.Errorf("%s reads a table as a whole:\n%s", name, strings.Join(lines, "\n"))
				break
			}
		}
	}
}
