package linear_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/integration_test/shoptest"
	"github.com/keytill/keytill/internal/stripefake"
	"github.com/keytill/keytill/inventory"
)

// Clients settle, refund, restore, replace, revoke, reserve, release and restock at the same time, and some go away in the
// midst of it: there is an order in which a shop that does one thing at a time would have answered all of them the same.
func TestWhatClientsSeeIsWhatOneAtATimeWouldHaveShown(t *testing.T) {
	t.Parallel()
	start := *seed
	if start == 0 {
		start = rand.Uint64()
	}
	t.Logf("seed %d", start)
	s := shoptest.Open(t, shoptest.Config{OnRequest: dawdle})
	operations, unknown := 0, 0
	for n := range histories() {
		h := newHistory(s, n, start)
		h.record()
		operations += len(h.done)
		for _, op := range h.done {
			if op.Output.(output).unknown {
				unknown++
			}
		}
		h.check(t)
		if t.Failed() {
			t.Fatalf("history %d of seed %d", n, start)
		}
	}
	breaches, err := fulfillment.Check(t.Context(), s.DB, s.Now(), 0)
	s.Must(err)
	for _, b := range breaches {
		if !strings.Contains(b, "waits in pool") { // a replacement waits for the job that serves its pool, which nobody works here
			t.Error(b)
		}
	}
	t.Logf("%d histories of %d operations, %d of an outcome that nobody knows", histories(), operations, unknown)
}

// dawdle has Stripe take its time now and then, so that what one client has read is old when it comes to be used.
func dawdle(*http.Request) *stripefake.Fault {
	if rand.IntN(4) > 0 {
		return nil
	}
	return &stripefake.Fault{Delay: time.Duration(rand.IntN(60)) * time.Millisecond}
}

// A history is what clients did with one pool.
type history struct {
	*shoptest.Shop
	n     int
	seed  uint64
	pool  inventory.Pool
	began time.Time
	keys  int // at first

	mu     sync.Mutex
	done   []porcupine.Operation
	client int
	looks  []keyed
	broken []error
	batch  int
}

// keyed is a look with the key that it saw, by its name in the database.
type keyed struct {
	at  int // in done
	key int64
}

func newHistory(s *shoptest.Shop, n int, seed uint64) *history {
	h := &history{Shop: s, n: n, seed: seed, began: time.Now(), keys: 3 + n%3}
	h.T.Logf("history %d: %d keys at first", n, h.keys)
	h.pool = inventory.Pool{Merchant: inventory.DefaultMerchant, SKU: fmt.Sprintf("sku%d", n), Shortage: inventory.Fail, CreatedAt: s.Now()}
	s.Must(pgx.BeginFunc(s.T.Context(), s.DB, func(tx pgx.Tx) (err error) {
		h.pool, err = inventory.CreatePool(s.T.Context(), tx, h.pool)
		return err
	}))
	s.Must(s.Service.Map(s.T.Context(), inventory.DefaultMerchant, "price_"+h.pool.SKU, &h.pool, 1))
	s.Must(h.bring(s.T.Context(), h.keys))
	return h
}

func (h *history) session(order int) string { return fmt.Sprintf("cs_%d_%d", h.n, order) }
func (h *history) intent(order int) string  { return fmt.Sprintf("pi_%d_%d", h.n, order) }
func (h *history) ref(order int) string     { return fmt.Sprintf("cart_%d_%d", h.n, order) }

// bring imports new keys.
func (h *history) bring(ctx context.Context, keys int) error {
	var file strings.Builder
	for i := range keys {
		fmt.Fprintf(&file, "KEY-%d-%d-%d\n", h.n, h.batch, i)
	}
	h.batch++
	_, _, err := h.Service.Import(ctx, inventory.Import{Pool: h.pool, File: strings.NewReader(file.String()), FileName: "keys", Actor: "test", At: h.Now()})
	return err
}

// record has all clients do what they do. Each order has a client who owns it: only that one refunds it. Others settle and
// look at all of them.
func (h *history) record() {
	h.T.Helper()
	var clients sync.WaitGroup
	random := func(client uint64) *rand.Rand { return rand.New(rand.NewPCG(h.seed, uint64(h.n)<<8|client)) }
	const owners, others = 4, 3
	for c := range owners {
		clients.Go(func() {
			r := random(uint64(c))
			for order := c; order < maxOrders; order += owners {
				h.own(r, order)
			}
		})
	}
	for c := range others {
		clients.Go(func() {
			r := random(uint64(100 + c))
			for range 6 {
				order := r.IntN(maxOrders)
				h.do(r, input{op: settle, order: order})
				h.do(r, input{op: look, order: order})
			}
		})
	}
	clients.Go(func() {
		r := random(200)
		for range 2 {
			time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
			h.do(r, input{op: restock, keys: 1})
			h.do(r, input{op: release, order: r.IntN(maxOrders)})
		}
	})
	clients.Wait()
	for order := range maxOrders {
		h.do(random(255), input{op: look, order: order})
	}
	h.Must(errors.Join(h.broken...))
}

// own is what the owner of an order does with it. The buyer pays after the cart was held, as in a shop.
func (h *history) own(r *rand.Rand, order int) {
	if r.IntN(3) == 0 {
		h.do(r, input{op: reserve, order: order})
		if r.IntN(4) == 0 {
			h.do(r, input{op: release, order: order})
		}
	}
	h.pay(order)
	h.do(r, input{op: settle, order: order})
	h.do(r, input{op: look, order: order})
	switch r.IntN(5) {
	case 0:
		h.do(r, input{op: replace, order: order})
	case 1:
		h.do(r, input{op: revoke, order: order})
	case 2, 3:
		h.do(r, input{op: refund, order: order})
		h.do(r, input{op: look, order: order})
		h.do(r, input{op: restore, order: order})
	}
	h.do(r, input{op: look, order: order})
}

// pay makes the paid session.
func (h *history) pay(order int) {
	err := h.Stripe.Session(h.session(order), []stripefake.Item{{Price: "price_" + h.pool.SKU, Quantity: 1, Amount: 1000}},
		stripefake.Fields{"client_reference_id": h.ref(order)})
	h.mu.Lock()
	defer h.mu.Unlock()
	h.broken = append(h.broken, err)
}

// do does one operation and records it. One in eight clients goes away before the answer.
func (h *history) do(r *rand.Rand, in input) {
	ctx := h.T.Context()
	if in.op != look && in.op != restock && r.IntN(8) == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(r.IntN(12_000))*time.Microsecond)
		defer cancel()
	}
	called := time.Since(h.began)
	h.atStripe(in) // it has happened there before keytill hears
	out, key, err := h.ask(ctx, in)
	returned := time.Since(h.began)
	if err != nil {
		if ctx.Err() == nil && !errors.Is(err, fulfillment.ErrStale) {
			h.mu.Lock()
			h.broken = append(h.broken, fmt.Errorf("%s: %w", describe(in, out), err))
			h.mu.Unlock()
		}
		out.unknown, returned = true, math.MaxInt64
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if key != 0 {
		h.looks = append(h.looks, keyed{at: len(h.done), key: key})
	}
	h.client++ // who goes away does not come again; the checker does not need to know who is who
	h.done = append(h.done, porcupine.Operation{ClientId: h.client, Input: in, Call: int64(called), Output: out, Return: int64(returned)})
}

// atStripe does what is done there.
func (h *history) atStripe(in input) {
	id := fmt.Sprintf("re_%d_%d", h.n, in.order)
	var err error
	switch in.op {
	case refund:
		err = h.Stripe.Refund(id, h.intent(in.order), nil)
	case restore:
		err = h.Stripe.Set(id, stripefake.Fields{"status": "failed"})
	}
	if err != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.broken = append(h.broken, err)
	}
}

// ask does one operation. A look returns the key beside, which has no number yet.
func (h *history) ask(ctx context.Context, in input) (out output, key int64, err error) {
	const merchant = inventory.DefaultMerchant
	unit := fulfillment.UnitRef{Order: h.session(in.order), Unit: 1}
	who := fulfillment.Person{Name: "support", Reason: "test"}
	switch in.op {
	case settle, refund, restore:
		_, err = h.Service.Settle(ctx, merchant, h.session(in.order))
	case replace:
		err = h.Service.ReplaceKey(ctx, merchant, unit, who)
	case revoke:
		err = h.Service.RevokeKey(ctx, merchant, unit, who)
	case reserve:
		_, err = h.Service.Reserve(ctx, merchant, fulfillment.Reservation{Ref: h.ref(in.order),
			Lines: []fulfillment.ReservationLine{{SKU: h.pool.SKU, Quantity: 1}}})
	case release:
		out.n, err = h.Service.Release(ctx, merchant, h.ref(in.order))
	case restock:
		err = h.bring(ctx, in.keys)
	case look:
		return h.look(ctx, in.order)
	}
	if errors.Is(err, fulfillment.ErrSoldOut) || errors.Is(err, fulfillment.ErrNoKey) || errors.Is(err, fulfillment.ErrNoOrder) ||
		errors.Is(err, fulfillment.ErrNoUnit) || errors.Is(err, fulfillment.ErrNotFound) {
		out.refused, err = true, nil
	}
	return out, 0, err
}

func (h *history) look(ctx context.Context, order int) (out output, key int64, err error) {
	out.unit.key = noKey
	o, err := fulfillment.LoadOrder(ctx, h.DB, inventory.DefaultMerchant, h.session(order))
	if errors.Is(err, fulfillment.ErrNoOrder) {
		return out, 0, nil
	}
	if err != nil {
		return out, 0, err
	}
	u := o.Lines[0].Units[0]
	out.unit.state, out.unit.ended = u.State, u.RevokedBy == fulfillment.ByPerson
	return out, u.KeyID, nil
}

// checkPatience bounds the search for an order. It is far from what any history here needs.
const checkPatience = time.Minute

// check numbers the keys that were seen in the order in which they came into stock, and has the history checked.
func (h *history) check(t *testing.T) {
	t.Helper()
	rows, err := h.DB.Query(t.Context(), `SELECT key_id FROM keytill.keys WHERE pool_id = $1 ORDER BY position`, h.pool.ID)
	h.Must(err)
	keys, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	h.Must(err)
	if len(keys) > maxKeys {
		t.Fatalf("%d keys, more than the model has room for", len(keys))
	}
	for _, l := range h.looks {
		out := h.done[l.at].Output.(output)
		out.unit.key = int8(slices.Index(keys, l.key))
		h.done[l.at].Output = out
	}
	switch result, info := porcupine.CheckOperationsVerbose(model(h.keys), h.done, checkPatience); result {
	case porcupine.Illegal:
		t.Errorf("no order of what was done explains what was answered:\n%s\nThe longest that does, as far as it goes:\n%s", told(h.done),
			told(longest(info)))
	case porcupine.Unknown:
		t.Errorf("the checker found no answer within %v:\n%s", checkPatience, told(h.done))
	}
}

// longest is the longest order of operations that the answers fit.
func longest(info porcupine.LinearizationInfo) (most []porcupine.Operation) {
	for _, partition := range info.PartialLinearizationsOperations() {
		for _, partial := range partition {
			if len(partial) > len(most) {
				most = partial
			}
		}
	}
	return most
}

// told is a history, a line for each operation.
func told(history []porcupine.Operation) string {
	var b strings.Builder
	for _, op := range history {
		until := "for ever"
		if op.Return != math.MaxInt64 {
			until = time.Duration(op.Return).Round(10 * time.Microsecond).String()
		}
		fmt.Fprintf(&b, "%10v to %10s  %s\n", time.Duration(op.Call).Round(10*time.Microsecond), until, describe(op.Input.(input), op.Output.(output)))
	}
	return b.String()
}
