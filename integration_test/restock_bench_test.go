package integration_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keytill/keytill/inventory"
)

// BenchmarkRestock imports keys into a pool in which 50,000 paid orders wait, and counts from the file's first byte until all
// of them have their keys and the mails and notices that say so, committed. Beside it, turn by turn, as many orders are
// settled one by one as fit in a second.
func BenchmarkRestock(b *testing.B) {
	const rounds = 3
	ctx := b.Context()
	db := benchDatabase(b)
	service := benchService(b, db)
	waiting := quick(10_000, 50_000)
	shelf := fillShelf(b, db, service, "shelf", 20_000, 0)
	empty := fillShelf(b, db, service, "empty", 0, 0)

	var served, settled []float64
	var next int64
	for round := range rounds {
		waitInLine(b, db, empty, round, waiting)
		report := inventory.Report{}
		took := timed(b, func() (err error) {
			var n int
			report, n, err = service.Import(ctx, inventory.Import{Pool: empty, File: &manyKeys{rows: (round + 1) * waiting, row: round * waiting},
				FileName: fmt.Sprintf("restock-%d.txt", round), Actor: "bench"})
			if err == nil && n != waiting {
				err = fmt.Errorf("%d units were served of %d: %+v", n, waiting, report)
			}
			return err
		})
		served = append(served, float64(waiting)/took.Seconds())
		begin, first := time.Now(), next
		for time.Since(begin) < time.Second {
			next++
			if err := settleOne(ctx, service, shelf, next); err != nil {
				b.Fatal(err)
			}
		}
		settled = append(settled, float64(next-first)/time.Since(begin).Seconds())
	}
	b.Logf("restock: %.0f units a second; settled one by one: %.0f", served, settled)
	b.ReportMetric(median(served), "units/s")
	b.ReportMetric(median(settled), "settles/s")
	b.ReportMetric(median(served)/median(settled), "x/one-by-one")
	b.ReportMetric(0, "ns/op")
}

// waitInLine makes paid orders that wait for a key of a pool, as settles leave them.
func waitInLine(b *testing.B, db *pgxpool.Pool, pool inventory.Pool, round, orders int) {
	b.Helper()
	vars := strings.NewReplacer("{orders}", fmt.Sprint(orders), "{round}", fmt.Sprint(round), "{pool}", fmt.Sprint(pool.ID), "{sku}", pool.SKU)
	execAll(b, db, vars.Replace(`
INSERT INTO keytill.orders (merchant_id, order_id, payment_intent, charge, payment, currency, amount_total, amount_captured, amount_refunded,
                            email, placed_at, paid_at, ticket, settled_at)
SELECT 'default', 'cs_' || md5('{round}/' || n), 'pi_w{round}_' || n, 'ch_w{round}_' || n, 'paid', 'usd', 1000, 1000, 0, 'buyer' || n || '@example.com',
       now() - n * interval '1 second', now() - n * interval '1 second', nextval('keytill.ticket'), now() FROM generate_series(1, {orders}) n`),
		vars.Replace(`
INSERT INTO keytill.lines (merchant_id, order_id, line_id, ordinal, price, product, description, quantity, amount, pool_id)
SELECT merchant_id, order_id, 'li_' || ticket, 1, 'price-{sku}', 'prod_1', 'A game', 1, 1000, {pool} FROM keytill.orders WHERE charge LIKE 'ch_w{round}_%'`),
		vars.Replace(`
INSERT INTO keytill.fulfilments (merchant_id, order_id, line_id, unit, pool_id, state, paid_at, changed_at)
SELECT l.merchant_id, l.order_id, l.line_id, 1, l.pool_id, 'waiting', o.paid_at, now()
  FROM keytill.lines l JOIN keytill.orders o USING (merchant_id, order_id) WHERE o.charge LIKE 'ch_w{round}_%'`),
		`ANALYZE keytill.orders`, `ANALYZE keytill.lines`, `ANALYZE keytill.fulfilments`)
}
