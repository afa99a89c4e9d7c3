package console_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keytill/keytill/adapter"
	"github.com/keytill/keytill/adapter/access"
	"github.com/keytill/keytill/inventory"
)

var long = flag.Bool("long", false, "read pages of a shop of a million keys and 200,000 orders")

// grow makes orders and pools between two numbers, in the database. Pool 1 is where all waits and is held, pool 2 is what is
// sold, the others are there. One address has bought every tenth order.
func grow(poolsFrom, pools, from, to, units int) []string {
	sql := func(text string) string {
		return strings.NewReplacer("{pf}", fmt.Sprint(poolsFrom), "{pt}", fmt.Sprint(pools), "{f}", fmt.Sprint(from), "{t}", fmt.Sprint(to),
			"{u}", fmt.Sprint(units)).Replace(text)
	}
	all := []string{
		`INSERT INTO keytill.pools (merchant_id, sku, name, created_at)
		 SELECT 'default', 'sku-' || lpad(n::text, 6, '0'), 'Product ' || n, now() - interval '400 days' FROM generate_series({pf}, {pt}) n`,
		`INSERT INTO keytill.stock (merchant_id, pool_id) SELECT merchant_id, pool_id FROM keytill.pools ON CONFLICT DO NOTHING`,
		`INSERT INTO keytill.price_map (merchant_id, item, pool_id) SELECT 'default', 'price_' || n, 1 FROM generate_series({f}, {t}) n`,
		`INSERT INTO keytill.batches (merchant_id, pool_id, file_name, file_hash, supplier, actor, keys, created_at)
		 SELECT 'default', 1 + n % 2, 'keys-' || n, int8send(n), 'Wholesale', 'jane', 0, now() FROM generate_series({f}, {t}, 10) n`,
		`INSERT INTO keytill.orders (merchant_id, order_id, payment_intent, charge, payment, currency, amount_total, amount_captured, amount_refunded,
		        email, placed_at, paid_at, ticket, settled_at)
		 SELECT 'default', 'cs_' || n, 'pi_' || n, 'ch_' || n, CASE WHEN n % 7 = 0 THEN 'refunded' ELSE 'paid' END, 'eur', 1, 1, 0,
		        CASE WHEN n % 10 = 0 THEN 'reseller' ELSE 'buyer' || n END || '@example.com', at, at, n, at
		   FROM (SELECT n, now() - interval '6 days' + n * interval '1 second' AS at FROM generate_series({f}, {t}) n) AS o`,
		`INSERT INTO keytill.lines (merchant_id, order_id, line_id, ordinal, price, product, description, quantity, amount, pool_id)
		 SELECT 'default', 'cs_' || n, 'li_' || n, 1, 'price_1', 'prod', 'Product', CASE WHEN n = {t} THEN {u} ELSE 2 END, 1, CASE WHEN n % 5 = 0 AND n < {t} THEN 1 ELSE 2 END
		   FROM generate_series({f}, {t}) n`,
		// Of pool 2's one batch, as many keys are never sold as are.
		`INSERT INTO keytill.keys (merchant_id, key_id, pool_id, batch_id, position, state, ciphertext, fingerprint, order_id, line_id, unit)
		 SELECT 'default', n * 100000::bigint + u, 2, 1, n * 100000::bigint + u, 'allocated', '\x00', int8send(n * 100000::bigint + u), 'cs_' || n, 'li_' || n, u
		   FROM generate_series({f}, {t}) n, generate_series(1, CASE WHEN n = {t} THEN {u} ELSE 2 END) u WHERE n % 5 > 0 OR n = {t}`,
		`INSERT INTO keytill.keys (merchant_id, key_id, pool_id, batch_id, position, state, ciphertext, fingerprint)
		 SELECT 'default', 1000000000000 + n, 2, 1, 1000000000000 + n, 'available', '\x00', int8send(1000000000000 + n) FROM generate_series({f} * 2, {t} * 2 + 1) n`,
		`INSERT INTO keytill.fulfilments (merchant_id, order_id, line_id, unit, pool_id, state, key_id, paid_at, changed_at)
		 SELECT 'default', l.order_id, l.line_id, u, l.pool_id, CASE WHEN k.key_id IS NULL THEN 'waiting' ELSE 'fulfilled' END, k.key_id, o.paid_at, o.paid_at
		   FROM keytill.lines l JOIN keytill.orders o USING (merchant_id, order_id) CROSS JOIN LATERAL generate_series(1, l.quantity::int) u
		   LEFT JOIN keytill.keys k ON k.merchant_id = 'default' AND k.order_id = l.order_id AND k.line_id = l.line_id AND k.unit = u AND k.state = 'allocated'
		  WHERE o.ticket BETWEEN {f} AND {t}`,
		`INSERT INTO keytill.movements (merchant_id, pool_id, keys, batch_id, to_state, reason, actor, at)
		 SELECT 'default', 2, count(*), 1, 'available', 'import', 'jane', now() FROM keytill.keys
		  WHERE key_id BETWEEN {f} * 100000::bigint AND {t} * 100000::bigint + 99999 OR key_id BETWEEN 1000000000000 + {f} * 2 AND 1000000000000 + {t} * 2 + 1`,
		`INSERT INTO keytill.movements (merchant_id, pool_id, key_id, from_state, to_state, order_id, line_id, unit, reason, actor, at)
		 SELECT 'default', 2, f.key_id, 'available', 'allocated', f.order_id, f.line_id, f.unit, 'paid', 'settle', f.changed_at
		   FROM keytill.fulfilments f JOIN keytill.orders o USING (merchant_id, order_id) WHERE f.key_id IS NOT NULL AND o.ticket BETWEEN {f} AND {t}`,
		`INSERT INTO keytill.events (merchant_id, event_id, type, object_id, payment, livemode, received_at, next_try_at, state, done_at)
		 SELECT 'default', 'evt_' || n, 'checkout.session.completed', 'cs_' || n, 'pi_' || n, false, now(), now(), 'done', now() FROM generate_series({f}, {t}) n`,
		`INSERT INTO keytill.deliveries (merchant_id, order_id, channel, type, recipient, state, attempts, send_after, created_at, done_at)
		 SELECT 'default', 'cs_' || n, 'email', 'keys.ready', 'a@example.com', 'sent', 1, now(), now(), now() FROM generate_series({f}, {t}) n`,
		`INSERT INTO keytill.audit (merchant_id, at, actor, action, order_id, subject, reason)
		 SELECT 'default', now(), 'jane', 'reveal', 'cs_' || n, 'cs_' || n, 'lost' FROM generate_series({f}, {t}) n`,
		`INSERT INTO keytill.findings (merchant_id, kind, subject, order_id, detail, opened_at, told)
		 SELECT 'default', CASE WHEN n % 2 = 0 THEN 'fraud_warning' ELSE 'unknown_price' END, 's' || n, 'cs_' || n, 'look', now(), true FROM generate_series({f}, {t}, 5) n`,
		`INSERT INTO keytill.reservation_attempts (merchant_id, pool_id, at, result)
		 SELECT 'default', 1 + n % 2, now() - interval '2 hours', CASE WHEN n % 20 = 0 THEN 'sold_out' ELSE 'ok' END FROM generate_series({f}, {t}) n`,
		`INSERT INTO keytill.reservations (merchant_id, ref, pool_id, keys, ahead, expires_at, created_at)
		 SELECT 'default', 'cart_' || n, 1, 0, 1, now() + interval '1 day', now() FROM generate_series({f}, {t}, 5) n`,
		`VACUUM ANALYZE`,
	}
	for i := range all {
		all[i] = sql(all[i])
	}
	return all
}

// statements notes what is asked of the database.
type statements struct {
	mu    sync.Mutex
	asked []statement
}

type statement struct {
	sql  string
	args []any
}

func (s *statements) note(sql string, args []any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, statement{sql, args})
}

// TraceQueryStart notes a statement.
func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	s.note(data.SQL, data.Args)
	return ctx
}

// TraceQueryEnd is not needed.
func (s *statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart is not needed.
func (s *statements) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

// TraceBatchQuery notes a statement of a batch.
func (s *statements) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	s.note(data.SQL, data.Args)
}

// TraceBatchEnd is not needed.
func (s *statements) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// cost is what a page reads.
type cost struct {
	rows, blocks int
	most         string // the statement that reads most rows
}

// plan is as much of an explained statement as is looked at.
type plan struct {
	Node     string  `json:"Node Type"`
	Relation string  `json:"Relation Name"`
	Rows     float64 `json:"Actual Rows"`
	Loops    float64 `json:"Actual Loops"`
	Filtered float64 `json:"Rows Removed by Filter"`
	Recheck  float64 `json:"Rows Removed by Index Recheck"`
	Joined   float64 `json:"Rows Removed by Join Filter"`
	Hit      int     `json:"Shared Hit Blocks"`
	Read     int     `json:"Shared Read Blocks"`
	Plans    []plan
}

// read are the rows of tables that a plan looks at, also those that it does not want.
func (p plan) read() int {
	n := 0
	if p.Relation != "" || strings.Contains(p.Node, "Index") {
		n = int((p.Rows + p.Filtered + p.Recheck) * p.Loops)
	}
	for _, sub := range p.Plans {
		n += sub.read()
	}
	return n
}

// explain runs statements again, in a transaction that comes to nothing, and sums up what they read.
func (s *shop) explain(asked []statement) (c cost) {
	s.t.Helper()
	tx, err := s.db.Begin(s.t.Context())
	s.must(err)
	defer func() { s.must(tx.Rollback(context.WithoutCancel(s.t.Context()))) }()
	_, err = tx.Exec(s.t.Context(), `SELECT set_config('max_parallel_workers_per_gather', '0', true), set_config('jit', 'off', true)`)
	s.must(err)
	most := 0
	for _, q := range asked {
		word, _, _ := strings.Cut(strings.TrimSpace(q.sql), " ")
		if word != "SELECT" && word != "WITH" && word != "INSERT" && word != "UPDATE" && word != "DELETE" {
			continue
		}
		var text []byte
		s.must(tx.QueryRow(s.t.Context(), "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) "+q.sql, q.args...).Scan(&text))
		var explained []struct{ Plan plan }
		s.must(json.Unmarshal(text, &explained))
		p := explained[0].Plan
		n := p.read()
		c.rows, c.blocks = c.rows+n, c.blocks+p.Hit+p.Read
		if n >= most {
			most, c.most = n, fmt.Sprintf("%d rows:%s\n%s", n, q.sql, text)
		}
	}
	return c
}

// maxRows is what a page of 50 entries, or of 200 units, may read: each entry with what belongs to it.
const maxRows = 6000

func TestNoPageReadsMoreThanItShows(t *testing.T) {
	t.Parallel()
	asked := &statements{}
	s := newShop(t, func(c *adapter.Config) {
		config := c.Pool.Config()
		config.ConnConfig.Tracer = asked
		traced, err := pgxpool.NewWithConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(traced.Close)
		c.Pool = traced
	})
	pools, orders, more, morePools := 205, 1100, 4400, 300
	if *long {
		pools, orders, more, morePools = 205, 20_000, 380_000, 2000
	}
	b := s.as(access.Admin)
	pages := map[string]string{
		"GET /console": "/console", "GET /console/pools": "/console/pools", "GET /console/pool": "/console/pool?sku=sku-000001",
		"GET /console/pool (sold)": "/console/pool?sku=sku-000002", "GET /console/pool/edit": "/console/pool/edit?sku=sku-000001",
		"GET /console/pools/new": "/console/pools/new", "GET /console/batch": "/console/batch?sku=sku-000002&id=1",
		"GET /console/orders": "/console/orders", "GET /console/orders (waiting)": "/console/orders?waiting=1",
		"GET /console/orders (refunded)": "/console/orders?payment=refunded", "GET /console/orders (lost)": "/console/orders?payment=lost",
		"GET /console/orders/{id}": "/console/orders/cs_7", "GET /console/findings": "/console/findings", "GET /console/audit": "/console/audit",
		"POST /console/orders": "reseller@example.com", "POST /console/orders (charge)": "ch_7", "POST /console/orders (nothing)": "nobody",
		"GET /console/imports/{id}": "",
	}
	for name := range allowed {
		if strings.HasPrefix(name, "GET ") && pages[name] == "" && name != "GET /console/imports/{id}" {
			t.Errorf("nobody looks at what %s reads", name)
		}
	}
	measure := func(large string) map[string]cost {
		if err := inventory.FoldAll(t.Context(), s.db); err != nil {
			t.Fatal(err)
		}
		s.must(s.shop.Service().FoldFigures(t.Context()))
		pages["GET /console/imports/{id}"] = b.upload("k.txt", "A\nB\n", "sku", "sku-000001").to()
		pages["GET /console/orders/{id} (large)"], pages["GET /console/orders/{id} (far)"] = "/console/orders/"+large, "/console/orders/"+large+"?from=1.401"
		costs := make(map[string]cost)
		look := func(name, method, path string) answer {
			asked.mu.Lock()
			asked.asked = nil
			asked.mu.Unlock()
			var a answer
			if method == http.MethodPost {
				a = b.post("/console/orders", url.Values{"q": {path}})
			} else {
				a = b.get(path).want(http.StatusOK)
			}
			asked.mu.Lock()
			statements := asked.asked
			asked.mu.Unlock()
			costs[name] = s.explain(statements)
			return a
		}
		for name, path := range pages {
			method, _, _ := strings.Cut(name, " ")
			a := look(name, method, path)
			if _, link, found := strings.Cut(a.body, `rel="next" href="`); found {
				link, _, _ = strings.Cut(link, `"`)
				link, _, _ = strings.Cut(link, "#")
				look(name+", next", http.MethodGet, strings.ReplaceAll(link, "&amp;", "&"))
			}
		}
		return costs
	}
	s.exec(grow(1, pools, 1, orders, 1000)...)
	small := measure(fmt.Sprintf("cs_%d", orders))
	s.exec(grow(pools+1, pools+morePools, orders+1, orders+more, 5000)...)
	large := measure(fmt.Sprintf("cs_%d", orders+more))
	for name, is := range large {
		was := small[name]
		t.Logf("%-45s %5d rows, %5d blocks; in the small shop %5d and %5d", name, is.rows, is.blocks, was.rows, was.blocks)
		if name == "POST /console/orders (nothing)" {
			was.rows += morePools // what may be a key's text is looked for in each pool, by its index
			was.blocks += 4 * morePools
		}
		if is.rows > maxRows || is.rows > was.rows+was.rows/5+100 || is.blocks > was.blocks+was.blocks/2+300 {
			t.Errorf("%s reads %d rows and %d blocks; in a shop of a fifth of the size %d and %d. Most are read by %s", name, is.rows, is.blocks, was.rows, was.blocks, is.most)
		}
	}
}

func (s *shop) exec(queries ...string) {
	s.t.Helper()
	for _, query := range queries {
		if _, err := s.db.Exec(s.t.Context(), query); err != nil {
			s.t.Fatalf("%v in\n%s", err, query)
		}
	}
}
