package integration_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/keytill/keytill/inventory"
)

// A restock that serves many leaves few jobs, and these give every delivery one of its own and no second one.
func TestDeliveriesOfALargeRestockGetAJobEach(t *testing.T) {
	t.Parallel()
	const units = 1200
	w := newTown(t)
	quiet := w.open() // serves, and works no jobs
	pool := w.stock(quiet.shop, "game", 0, 1, "price_game")
	w.waitInLine(pool, units)
	_, err := w.db.Exec(w.ctx, `UPDATE keytill.merchants SET channels = '{hook}'`)
	w.must(err)
	_, served, err := quiet.shop.Service().Import(w.ctx, inventory.Import{Pool: pool, File: bytes.NewReader(keysNamed("K", units)), FileName: "k", Actor: "test"})
	w.must(err)
	if served != units {
		t.Fatalf("%d units are served, want %d", served, units)
	}
	if got := w.number(`SELECT count(*) FROM keytill.river_job WHERE kind IN ('deliver', 'spread_deliveries')`); got > 5 {
		t.Errorf("the restock left %d jobs for %d deliveries", got, units)
	}

	w.run()
	deadline := time.Now().Add(time.Minute)
	for w.number(`SELECT count(*) FROM keytill.deliveries WHERE state = 'pending'`) > 0 && time.Now().Before(deadline) {
		time.Sleep(20 * time.Millisecond)
	}
	if pending := w.number(`SELECT count(*) FROM keytill.deliveries WHERE state = 'pending'`); pending != 0 {
		t.Errorf("%d deliveries are pending still", pending)
	}
	jobs := w.number(`SELECT count(*) FROM keytill.river_job WHERE kind = 'deliver' AND args->>'channel' = 'hook' AND args->>'order_id' LIKE 'cs_w%'`)
	each := w.number(`SELECT count(DISTINCT args->>'delivery_id') FROM keytill.river_job WHERE kind = 'deliver' AND args->>'order_id' LIKE 'cs_w%'`)
	if jobs != units || each != units {
		t.Errorf("%d jobs for %d deliveries, want %d of each", jobs, each, units)
	}
	w.hold()
}

// waitInLine makes paid orders that wait for a key of a pool, the first with the oldest payment.
func (w *town) waitInLine(pool inventory.Pool, orders int) {
	w.t.Helper()
	for _, sql := range []string{
		`INSERT INTO keytill.orders (merchant_id, order_id, payment, currency, amount_total, amount_captured, amount_refunded, email, placed_at, paid_at, ticket, settled_at)
		 SELECT 'default', 'cs_w' || i, 'paid', 'usd', 1, 1, 0, 'b@example.com', now(), now() - interval '1 day' + i * interval '1 second', i, now() FROM generate_series(1, $1::int) i WHERE $2::bigint > 0`,
		`INSERT INTO keytill.lines (merchant_id, order_id, line_id, ordinal, price, product, description, quantity, amount, pool_id)
		 SELECT 'default', 'cs_w' || i, 'li_1', 1, 'price_game', 'prod_game', '', 1, 1, $2 FROM generate_series(1, $1::int) i`,
		`INSERT INTO keytill.fulfilments (merchant_id, order_id, line_id, unit, pool_id, state, paid_at, changed_at)
		 SELECT 'default', 'cs_w' || i, 'li_1', 1, $2, 'waiting', now() - interval '1 day' + i * interval '1 second', now() FROM generate_series(1, $1::int) i`,
	} {
		_, err := w.db.Exec(w.ctx, sql, orders, pool.ID)
		w.must(err)
	}
}

func (w *town) number(sql string) (n int) {
	w.t.Helper()
	w.must(w.db.QueryRow(w.ctx, sql).Scan(&n))
	return n
}
