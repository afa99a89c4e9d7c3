package integration_test

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/inventory"
)

// crashRounds bounds a test that kills at each statement in turn.
const crashRounds = 200

func keysNamed(prefix string, n int) []byte {
	var text bytes.Buffer
	for i := range n {
		fmt.Fprintf(&text, "%s-%05d\n", prefix, i)
	}
	return text.Bytes()
}

// An import that dies at any of its statements leaves nothing, and the next one imports all.
func TestAnImportThatDiesLeavesNothing(t *testing.T) {
	t.Parallel()
	w := newTown(t, func(w *town) { w.tracer = crashes{} })
	l := w.open()
	pool := w.stock(l.shop, "game", 3, 1, "price_game")
	w.sell("cs_waits", "price_game*5")
	w.must(w.buy(l, "cs_waits"))
	imp := func(file []byte) inventory.Import {
		return inventory.Import{Pool: pool, File: bytes.NewReader(file), FileName: "keys.txt", Actor: "test"}
	}
	died := 0
	for n := 1; ; n++ {
		if n == crashRounds {
			t.Fatal("it dies for ever")
		}
		ctx, struck := crashAt(w.ctx, n)
		_, _, err := l.shop.Service().Import(ctx, imp(keysNamed("A", 500)))
		if !struck() {
			w.must(err)
			break
		}
		died++
		if err == nil {
			t.Fatalf("at statement %d it died and says that it has not", n)
		}
		w.wantKeys(pool, 3)
		w.wantUnits(pool, map[fulfillment.UnitState]int{fulfillment.UnitFulfilled: 3, fulfillment.UnitWaiting: 2})
	}
	if died < 10 {
		t.Errorf("it died at %d statements", died)
	}
	w.wantKeys(pool, 503)
	w.wantUnits(pool, map[fulfillment.UnitState]int{fulfillment.UnitFulfilled: 5})

	// In the midst of the file.
	file := keysNamed("B", 60_000)
	broken := imp(nil)
	broken.File = io.MultiReader(bytes.NewReader(file[:len(file)/2]), cutting{l.cut}, bytes.NewReader(file[len(file)/2:]))
	if _, _, err := l.shop.Service().Import(w.ctx, broken); err == nil {
		t.Error("in the midst of the file it died and says that it has not")
	}
	w.wantKeys(pool, 503)
	report, _, err := w.open().shop.Service().Import(w.ctx, imp(file))
	if err != nil || report.New != 60_000 {
		t.Errorf("%+v, %v", report, err)
	}
	w.hold()
}

// cutting is an empty part of a file that cuts the connections of who reads it.
type cutting struct{ cut func() }

func (c cutting) Read([]byte) (int, error) {
	c.cut()
	return 0, io.EOF
}

func (w *town) wantKeys(pool inventory.Pool, want int) {
	w.t.Helper()
	ids, err := w.keyIDs(pool)
	w.must(err)
	if len(ids) != want {
		w.t.Errorf("%d keys, want %d", len(ids), want)
	}
}

// A rotation that dies at any of its statements is gone on with by the next.
func TestARotationThatDiesIsGoneOnWith(t *testing.T) {
	t.Parallel()
	w := newTown(t, func(w *town) { w.tracer = crashes{} })
	var promoted *inventory.Keyset
	w.keyset, promoted = rotation(t)
	pool := w.stock(w.open().shop, "game", 900, 1, "price_game")
	w.keyset = promoted
	l := w.open()
	died := 0
	for n := 1; ; n++ {
		if n == crashRounds {
			t.Fatal("it dies for ever")
		}
		ctx, struck := crashAt(w.ctx, n)
		_, err := promoted.Rotate(ctx, l.pool, nil)
		if !struck() {
			w.must(err)
			break
		}
		died++
		w.opensAll(promoted, pool)
	}
	if died < 10 {
		t.Errorf("it died at %d statements", died)
	}
	w.must(promoted.Unused(w.ctx, w.db))
	last, err := promoted.WithoutOldKeys()
	w.must(err)
	w.opensAll(last, pool)
	w.hold()
}

// However many units wait, what serves them are the same statements.
func TestAnImportServesManyWaitingUnitsWithAHandfulOfStatements(t *testing.T) {
	t.Parallel()
	counter := &statements{}
	w := newTown(t, func(w *town) { w.tracer = counter })
	l := w.open()
	pool := w.stock(l.shop, "game", 0, 1, "price_game")
	n := length(5_000, 50_000)
	for _, sql := range []string{
		`INSERT INTO keytill.orders (merchant_id, order_id, payment, currency, amount_total, amount_captured, amount_refunded, email, placed_at, paid_at, ticket, settled_at)
		 SELECT 'default', 'cs_' || i, 'paid', 'usd', 1, 1, 0, 'b@example.com', now(), now() - interval '1 day' + i * interval '1 second', i, now() FROM generate_series(1, $1::int) i`,
		`INSERT INTO keytill.lines (merchant_id, order_id, line_id, ordinal, price, product, description, quantity, amount, pool_id)
		 SELECT 'default', 'cs_' || i, 'li_1', 1, 'price_game', 'prod_game', '', 1, 1, $2 FROM generate_series(1, $1::int) i`,
		`INSERT INTO keytill.fulfilments (merchant_id, order_id, line_id, unit, pool_id, state, paid_at, changed_at)
		 SELECT 'default', 'cs_' || i, 'li_1', 1, $2, 'waiting', now() - interval '1 day' + i * interval '1 second', now() FROM generate_series(1, $1::int) i`,
	} {
		args := []any{n, pool.ID}
		if !strings.Contains(sql, "$2") {
			args = args[:1]
		}
		_, err := w.db.Exec(w.ctx, sql, args...)
		w.must(err)
	}
	_, err := w.db.Exec(w.ctx, `UPDATE keytill.merchants SET channels = '{email,hook}'`)
	w.must(err)
	ctx, seen := counter.count(w.ctx)
	report, served, err := l.shop.Service().Import(ctx, inventory.Import{Pool: pool, File: bytes.NewReader(keysNamed("K", n)), FileName: "k", Actor: "test"})
	if err != nil || served != n || report.New != int64(n) {
		t.Fatalf("%d served of %+v: %v", served, report, err)
	}
	if got := len(seen()); got > 40 {
		t.Errorf("%d statements:\n%s", got, strings.Join(seen(), "\n"))
	} else {
		t.Logf("%d statements for %d units", got, n)
	}
	// The oldest payment has the first key.
	var inOrder bool
	w.must(w.db.QueryRow(w.ctx, `
SELECT bool_and(rank = place) FROM (SELECT rank() OVER (ORDER BY f.paid_at) AS rank, rank() OVER (ORDER BY k.position) AS place
  FROM keytill.fulfilments f JOIN keytill.keys k ON k.merchant_id = f.merchant_id AND k.key_id = f.key_id) AS both_orders`).Scan(&inOrder))
	if !inOrder {
		t.Error("the keys are not in the order of payment")
	}
	w.hold()
}
