package integration_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/inventory"
)

// fillShelf makes a pool with keys that were sold, each with the order, line, unit and movement that this leaves behind, and
// keys that are available. The rows are as large as those of an import, and nothing is in their ciphertext: millions are
// made where they lie.
func fillShelf(b testing.TB, db *pgxpool.Pool, service *fulfillment.Service, sku string, available, sold int) inventory.Pool {
	b.Helper()
	pool := inventory.Pool{Merchant: inventory.DefaultMerchant, SKU: sku, CreatedAt: time.Now()}
	err := pgx.BeginFunc(context.Background(), db, func(tx pgx.Tx) (err error) {
		pool, err = inventory.CreatePool(context.Background(), tx, pool)
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	if err := service.Map(context.Background(), pool.Merchant, "price-"+sku, &pool, 1); err != nil {
		b.Fatal(err)
	}
	// Ids of imports stay far below these.
	vars := strings.NewReplacer("{pool}", fmt.Sprint(pool.ID), "{base}", fmt.Sprint(pool.ID*100_000_000), "{sold}", fmt.Sprint(sold),
		"{keys}", fmt.Sprint(sold+available), "{sku}", sku)
	fill := func(statements ...string) {
		b.Helper()
		for i := range statements {
			statements[i] = vars.Replace(statements[i])
		}
		execAll(b, db, statements...)
	}
	fill(`INSERT INTO keytill.batches (merchant_id, pool_id, file_name, file_hash, actor, keys, created_at) VALUES ('default', {pool}, 'keys.txt', sha256('{sku}'), 'bench', {keys}, now())`)
	withoutIndexes(b, db, sold+available, func() {
		fill(`
INSERT INTO keytill.keys (merchant_id, key_id, pool_id, batch_id, position, state, ciphertext, fingerprint, order_id, line_id, unit)
SELECT 'default', {base} + n, {pool}, (SELECT max(batch_id) FROM keytill.batches WHERE pool_id = {pool}), {base} + n, CASE WHEN n <= {sold} THEN 'allocated' ELSE 'available' END,
       sha256(n::text::bytea) || '\x0123456789abcdef0123456789abcdef0123', sha256(('{sku}' || n)::bytea), CASE WHEN n <= {sold} THEN 'cs_' || md5('{sku}' || n) END,
       CASE WHEN n <= {sold} THEN 'li_' || n END, CASE WHEN n <= {sold} THEN 1 END
  FROM generate_series(1, {keys}) n`,
			`INSERT INTO keytill.movements (merchant_id, pool_id, keys, batch_id, to_state, reason, actor, at)
SELECT merchant_id, pool_id, keys, batch_id, 'available', 'import', actor, created_at FROM keytill.batches WHERE pool_id = {pool} AND keys > 0`)
		if sold == 0 {
			return
		}
		fill(`
INSERT INTO keytill.movements (merchant_id, pool_id, key_id, from_state, to_state, order_id, line_id, unit, reason, actor, at)
SELECT merchant_id, pool_id, key_id, 'available', 'allocated', order_id, line_id, unit, 'paid', 'settle', now()
  FROM keytill.keys WHERE pool_id = {pool} AND state = 'allocated'`,
			`
INSERT INTO keytill.orders (merchant_id, order_id, payment_intent, charge, payment, currency, amount_total, amount_captured, amount_refunded,
                            email, placed_at, paid_at, ticket, settled_at)
SELECT merchant_id, order_id, 'pi_' || key_id, 'ch_' || key_id, 'paid', 'usd', 1000, 1000, 0, 'buyer' || key_id || '@example.com', now(), now(), key_id - {base}, now()
  FROM keytill.keys WHERE pool_id = {pool} AND state = 'allocated'`,
			`
INSERT INTO keytill.lines (merchant_id, order_id, line_id, ordinal, price, product, description, quantity, amount, pool_id)
SELECT merchant_id, order_id, line_id, 1, 'price-{sku}', 'prod_1', 'A game', 1, 1000, pool_id FROM keytill.keys WHERE pool_id = {pool} AND state = 'allocated'`,
			`
INSERT INTO keytill.fulfilments (merchant_id, order_id, line_id, unit, pool_id, state, key_id, paid_at, changed_at)
SELECT merchant_id, order_id, line_id, unit, pool_id, 'fulfilled', key_id, now(), now() FROM keytill.keys WHERE pool_id = {pool} AND state = 'allocated'`,
			`SELECT setval('keytill.ticket', greatest({sold} + 1, nextval('keytill.ticket')))`)
	})
	if err := inventory.FoldAll(context.Background(), db); err != nil {
		b.Fatal(err)
	}
	return pool
}

// withoutIndexes lets many rows be written before the indexes that no constraint needs, which are then made of all of them
// at once, and leaves the tables vacuumed.
func withoutIndexes(b testing.TB, db *pgxpool.Pool, rows int, write func()) {
	b.Helper()
	const tables = `keytill.keys, keytill.movements, keytill.orders, keytill.lines, keytill.fulfilments`
	if rows < 100_000 {
		write()
		execAll(b, db, `VACUUM ANALYZE `+tables)
		return
	}
	found, err := db.Query(context.Background(), `
SELECT indexrelid::regclass::text, pg_get_indexdef(indexrelid) FROM pg_index
 WHERE indrelid = ANY ('{`+strings.ReplaceAll(tables, " ", "")+`}'::regclass[]) AND NOT indisprimary`)
	if err != nil {
		b.Fatal(err)
	}
	var name, definition string
	var drop, create []string
	_, err = pgx.ForEachRow(found, []any{&name, &definition}, func() error {
		drop, create = append(drop, `DROP INDEX `+name), append(create, definition)
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	execAll(b, db, drop...)
	write()
	execAll(b, db, create...)
	execAll(b, db, `VACUUM ANALYZE `+tables)
}
