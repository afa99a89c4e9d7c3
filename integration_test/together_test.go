package integration_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/internal/jobs"
	"github.com/keytill/keytill/internal/pgtest"
	"github.com/keytill/keytill/inventory"
)

// A till is a Service on a fresh database whose payments at Stripe are a map, to have many settled at the same time.
type till struct {
	t        *testing.T
	db       *pgxpool.Pool
	counter  *statements
	service  *fulfillment.Service
	payments map[string]fulfillment.Payment
	answers  func() // called before an answer comes, which is of the moment before; nil: nothing
}

// Payment is Stripe's answer.
func (w *till) Payment(_ context.Context, _, ref string) (fulfillment.Payment, error) {
	p, ok := w.payments[ref]
	if w.answers != nil {
		w.answers()
	}
	if !ok {
		return p, fulfillment.ErrNotFound
	}
	return p, nil
}

func newTill(t *testing.T, inTx func(context.Context, pgx.Tx, fulfillment.Change) error) *till {
	t.Helper()
	w := &till{t: t, counter: &statements{}, payments: make(map[string]fulfillment.Payment)}
	config, err := pgxpool.ParseConfig(pgtest.NewURL(t))
	w.must(err)
	config.MaxConns, config.ConnConfig.Tracer = 20, w.counter
	w.db, err = pgxpool.NewWithConfig(t.Context(), config)
	w.must(err)
	t.Cleanup(w.db.Close)
	keyset, err := inventory.NewKeyset()
	w.must(err)
	log := slog.New(slog.DiscardHandler)
	inserter, err := jobs.NewInserter(w.db, time.Now, log)
	w.must(err)
	w.service, err = fulfillment.New(fulfillment.Config{DB: w.db, Stripe: w, Jobs: inserter, Keyset: keyset, InTx: inTx, Logger: log})
	w.must(err)
	w.must(w.service.ServeChannels(t.Context(), []fulfillment.Channel{fulfillment.ChannelEmail, fulfillment.ChannelHook}))
	return w
}

func (w *till) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *till) pool(sku string, keys int, shortage inventory.Shortage) inventory.Pool {
	w.t.Helper()
	return w.poolOf(inventory.DefaultMerchant, sku, keys, shortage)
}

func (w *till) poolOf(merchant, sku string, keys int, shortage inventory.Shortage) inventory.Pool {
	w.t.Helper()
	ctx := w.t.Context()
	p := inventory.Pool{Merchant: merchant, SKU: sku, Shortage: shortage, CreatedAt: time.Now()}
	w.must(pgx.BeginFunc(ctx, w.db, func(tx pgx.Tx) (err error) {
		p, err = inventory.CreatePool(ctx, tx, p)
		return err
	}))
	w.must(w.service.Map(ctx, p.Merchant, "price_"+sku, &p, 1))
	var file strings.Builder
	for n := range keys {
		fmt.Fprintf(&file, "%s-%04d\n", sku, n)
	}
	if keys > 0 {
		_, _, err := w.service.Import(ctx, inventory.Import{Pool: p, File: strings.NewReader(file.String()), FileName: sku, Actor: "test"})
		w.must(err)
	}
	return p
}

// sell makes a paid session of one line, paid so many seconds after the others.
func (w *till) sell(session, sku string, quantity int64, after int) {
	at := time.Date(2026, 3, 1, 12, 0, after, 0, time.UTC)
	n := strings.TrimPrefix(session, "cs_")
	w.payments[session] = fulfillment.Payment{
		Session: &fulfillment.Session{ID: session, Status: "complete", PaymentStatus: "paid", Mode: "payment", Currency: "usd",
			Total: 100 * quantity, Email: "buyer@example.com", ClientReferenceID: "cart_" + n, CreatedAt: at},
		Intent: &fulfillment.Intent{ID: "pi_" + n, Status: "succeeded", Currency: "usd", Amount: 100 * quantity, Captured: 100 * quantity,
			Charge: "ch_" + n, CreatedAt: at, PaidAt: at},
		Lines: []fulfillment.Line{{ID: "li_" + n, Price: "price_" + sku, Quantity: quantity, Amount: 100 * quantity}},
	}
	w.payments["pi_"+n] = w.payments[session]
}

// settleAll settles at the same time, and says what came of each. Nothing can be written before all of them have begun,
// so that they share what they can.
func (w *till) settleAll(ctx context.Context, refs ...string) map[string]error {
	w.t.Helper()
	var (
		mu    sync.Mutex
		group sync.WaitGroup
		came  = make(map[string]error)
	)
	release := w.stopWriters()
	for _, ref := range refs {
		group.Go(func() {
			_, err := w.service.Settle(ctx, inventory.DefaultMerchant, ref)
			mu.Lock()
			defer mu.Unlock()
			came[ref] = err
		})
	}
	release()
	group.Wait()
	return came
}

// stopWriters lets nobody write an order, until the returned function has waited for those who are to begin meanwhile. Should
// some begin later, less is shared, and all that is checked but its number holds.
func (w *till) stopWriters() (release func()) {
	w.t.Helper()
	tx, err := w.db.Begin(w.t.Context())
	w.must(err)
	_, err = tx.Exec(w.t.Context(), `LOCK TABLE keytill.orders IN SHARE MODE`)
	w.must(err)
	return func() {
		w.t.Helper()
		time.Sleep(300 * time.Millisecond)
		w.must(tx.Rollback(w.t.Context()))
	}
}

// settleTimes settles one payment so many times at once.
func (w *till) settleTimes(times int, ref string) []error {
	w.t.Helper()
	errs := make([]error, times)
	var group sync.WaitGroup
	release := w.stopWriters()
	for n := range errs {
		group.Go(func() { _, errs[n] = w.service.Settle(w.t.Context(), inventory.DefaultMerchant, ref) })
	}
	release()
	group.Wait()
	return errs
}

// holdings are the states of each order's units.
func (w *till) holdings() map[string]string {
	w.t.Helper()
	rows, err := w.db.Query(w.t.Context(), `
SELECT order_id, string_agg(state, ' ' ORDER BY unit) FROM keytill.fulfilments GROUP BY order_id`)
	w.must(err)
	var order, states string
	found := make(map[string]string)
	_, err = pgx.ForEachRow(rows, []any{&order, &states}, func() error {
		found[order] = states
		return nil
	})
	w.must(err)
	return found
}

func (w *till) hold() {
	w.t.Helper()
	breaches, err := fulfillment.Check(w.t.Context(), w.db, time.Now(), 0)
	w.must(err)
	for _, b := range breaches {
		w.t.Error(b)
	}
}

func (w *till) wantHoldings(want map[string]string) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.holdings()); diff != "" {
		w.t.Errorf("the units (-want +got):\n%s", diff)
	}
	w.hold()
}

func noErrors(t *testing.T, came map[string]error) {
	t.Helper()
	for ref, err := range came {
		if err != nil {
			t.Errorf("%s: %v", ref, err)
		}
	}
}

func TestNewSalesAtTheSameTimeShareATransaction(t *testing.T) {
	t.Parallel()
	w := newTill(t, nil)
	w.pool("game", 100, inventory.Wait)
	var refs []string
	want := make(map[string]string)
	for n := range 40 {
		session := fmt.Sprintf("cs_%02d", n)
		w.sell(session, "game", int64(1+n%2), n)
		refs = append(refs, session)
		want[session] = strings.TrimSpace(strings.Repeat("fulfilled ", 1+n%2))
	}
	ctx, seen := w.counter.count(t.Context())
	noErrors(t, w.settleAll(ctx, refs...))
	commits := 0
	for _, sql := range seen() {
		if sql == "commit" {
			commits++
		}
	}
	if commits == 0 || commits > 10 {
		t.Errorf("%d transactions for 40 sales", commits)
	}
	w.wantHoldings(want)
}

// Whoever settles a sale with others gets its order, as it is read afterwards.
func TestEachSaleThatIsSettledWithOthersAnswersWithItsOwnOrder(t *testing.T) {
	t.Parallel()
	w := newTill(t, nil)
	w.pool("game", 30, inventory.Wait) // the last ten wait
	sessions := make([]string, 40)
	for n := range sessions {
		sessions[n] = fmt.Sprintf("cs_%02d", n)
		w.sell(sessions[n], "game", 1, n)
	}
	var group sync.WaitGroup
	for _, session := range sessions {
		group.Go(func() {
			got, err := w.service.Settle(t.Context(), inventory.DefaultMerchant, session)
			if err != nil {
				t.Errorf("%s: %v", session, err)
				return
			}
			want, err := fulfillment.LoadOrder(t.Context(), w.db, inventory.DefaultMerchant, session)
			if err != nil || want.ID != session {
				t.Errorf("%s is stored as %q: %v", session, want.ID, err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-stored +answered):\n%s", session, diff)
			}
		})
	}
	group.Wait()
}

// One payment under two names, and one twice, are an order once, whoever they are settled with.
func TestAPaymentIsOneOrderHoweverOftenItIsSettledWithOthers(t *testing.T) {
	t.Parallel()
	w := newTill(t, nil)
	w.pool("game", 100, inventory.Wait)
	var refs []string
	want := make(map[string]string)
	for n := range 10 {
		session := fmt.Sprintf("cs_%02d", n)
		w.sell(session, "game", 1, n)
		refs = append(refs, session, session, strings.Replace(session, "cs_", "pi_", 1))
		want[session] = "fulfilled"
	}
	noErrors(t, w.settleAll(t.Context(), refs...))
	w.wantHoldings(want)
}

// Nothing of an order is written before all its settles have begun; then each finds what the one before it left.
func TestOneOrderIsSettledManyTimesAtOnce(t *testing.T) {
	t.Parallel()
	for name, pending := range map[string]bool{"new": false, "pending and now paid": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTill(t, nil)
			w.pool("game", 100, inventory.Wait)
			w.sell("cs_1", "game", 2, 0)
			paid := w.payments["cs_1"]
			// Not plainly a sale, so that each settle has a transaction of its own.
			paid.Refunds = []fulfillment.Refund{{ID: "re_1", Status: "failed", Amount: 100, CreatedAt: time.Now()}}
			if pending {
				open := w.payments["cs_1"]
				session, intent := *open.Session, *open.Intent
				session.PaymentStatus, intent.Status, intent.Captured = "unpaid", "processing", 0
				open.Session, open.Intent = &session, &intent
				w.payments["cs_1"] = open
				_, err := w.service.Settle(t.Context(), inventory.DefaultMerchant, "cs_1")
				w.must(err)
				w.wantHoldings(map[string]string{"cs_1": "pending pending"})
			}
			w.payments["cs_1"] = paid
			for n, err := range w.settleTimes(16, "cs_1") {
				// Of two with numbers in the wrong order one reads anew, and gives up where that happens again and again.
				if err != nil && !errors.Is(err, fulfillment.ErrStale) {
					t.Errorf("settle %d: %v", n, err)
				}
			}
			w.wantHoldings(map[string]string{"cs_1": "fulfilled fulfilled"})
		})
	}
}

// A payment under way is canceled while a settle reads it: what that settle read makes no order.
func TestAnOlderReadingMakesNoOrderOfAPaymentThatWasCanceled(t *testing.T) {
	t.Parallel()
	w := newTill(t, nil)
	w.pool("game", 1, inventory.Wait)
	w.sell("cs_1", "game", 1, 0)
	underWay := w.payments["pi_1"]
	underWay.Session, underWay.Lines = nil, nil
	underWay.Intent.Status, underWay.Intent.Captured, underWay.Intent.Lines = "processing", 0, "game:1"
	canceled, intent := underWay, *underWay.Intent
	intent.Status = "canceled"
	canceled.Intent = &intent
	w.payments["pi_1"] = underWay

	var reads atomic.Int32
	began, goOn := make(chan struct{}), make(chan struct{})
	w.answers = func() {
		if reads.Add(1) == 1 {
			close(began)
			<-goOn
		}
	}
	older := make(chan error, 1)
	go func() {
		_, err := w.service.Settle(t.Context(), inventory.DefaultMerchant, "pi_1")
		older <- err
	}()
	<-began
	w.payments["pi_1"] = canceled
	if _, err := w.service.Settle(t.Context(), inventory.DefaultMerchant, "pi_1"); !errors.Is(err, fulfillment.ErrNoOrder) {
		t.Errorf("the newer settle: %v", err)
	}
	close(goOn)
	if err := <-older; !errors.Is(err, fulfillment.ErrNoOrder) {
		t.Errorf("the older settle: %v", err)
	}
	w.wantHoldings(map[string]string{})
	var orders int
	w.must(w.db.QueryRow(t.Context(), `SELECT count(*) FROM keytill.orders`).Scan(&orders))
	if orders != 0 || reads.Load() != 3 {
		t.Errorf("%d orders after %d reads, want none after 3", orders, reads.Load())
	}
}

// Orders that wait are served before others from the shelf, and not from what a cart holds.
func TestWhoHoldsAKeyDoesNotWaitBehindThoseWhoHaveNone(t *testing.T) {
	t.Parallel()
	w := newTill(t, nil)
	ctx := t.Context()
	w.pool("game", 1, inventory.Wait)
	_, err := w.service.Reserve(ctx, inventory.DefaultMerchant, fulfillment.Reservation{Ref: "cart_held",
		Lines: []fulfillment.ReservationLine{{SKU: "game", Quantity: 1}}})
	w.must(err)
	w.sell("cs_early", "game", 1, 0)
	w.sell("cs_held", "game", 1, 1)
	for _, session := range []string{"cs_early", "cs_held"} {
		_, err := w.service.Settle(ctx, inventory.DefaultMerchant, session)
		w.must(err)
	}
	w.wantHoldings(map[string]string{"cs_early": "waiting", "cs_held": "fulfilled"})
}

// What is not plainly a new sale is settled as ever beside those that are.
func TestWhatIsMoreThanANewSaleIsSettledAlone(t *testing.T) {
	t.Parallel()
	w := newTill(t, nil)
	ctx := t.Context()
	w.pool("game", 100, inventory.Wait)
	w.pool("cart", 2, inventory.Wait)
	w.sell("cs_known", "game", 1, 0)
	_, err := w.service.Settle(ctx, inventory.DefaultMerchant, "cs_known")
	w.must(err)
	_, err = w.service.Reserve(ctx, inventory.DefaultMerchant, fulfillment.Reservation{Ref: "cart_held",
		Lines: []fulfillment.ReservationLine{{SKU: "cart", Quantity: 2}}})
	w.must(err)
	_, err = w.db.Exec(ctx, `UPDATE keytill.reservations SET created_at = '2026-03-01'`) // before it was paid
	w.must(err)
	for n, session := range []string{"cs_a", "cs_b", "cs_unmapped", "cs_held", "cs_refunded", "cs_open", "cs_c"} {
		sku := map[string]string{"cs_unmapped": "none", "cs_held": "cart"}[session]
		if sku == "" {
			sku = "game"
		}
		w.sell(session, sku, 1, n)
	}
	refunded := w.payments["cs_refunded"]
	refunded.Refunds = []fulfillment.Refund{{ID: "re_1", Status: "succeeded", Amount: 100, CreatedAt: time.Now()}}
	w.payments["cs_refunded"] = refunded
	open := w.payments["cs_open"]
	open.Session.Status, open.Session.PaymentStatus, open.Intent.Status, open.Intent.Captured = "complete", "unpaid", "processing", 0
	noErrors(t, w.settleAll(ctx, "cs_a", "cs_known", "cs_b", "cs_unmapped", "cs_held", "cs_refunded", "cs_open", "cs_c"))
	w.wantHoldings(map[string]string{"cs_known": "fulfilled", "cs_a": "fulfilled", "cs_b": "fulfilled", "cs_c": "fulfilled",
		"cs_held": "fulfilled", "cs_refunded": "revoked", "cs_open": "pending"})
	var held int
	w.must(w.db.QueryRow(ctx, `SELECT count(*) FROM keytill.keys WHERE state = 'reserved'`).Scan(&held))
	if held > 0 {
		t.Errorf("%d keys are still held for a cart that is paid", held)
	}
	findings, err := fulfillment.Findings(ctx, w.db, inventory.DefaultMerchant)
	w.must(err)
	if len(findings) != 1 || findings[0].Kind != fulfillment.UnknownPrice {
		t.Errorf("findings %+v, want one about the price that is not mapped", findings)
	}
}

// Merchants share no transaction, though their orders, prices and items be called the same.
func TestSalesOfTwoMerchantsAtTheSameTimeKeepApart(t *testing.T) {
	t.Parallel()
	w := newTill(t, nil)
	ctx := t.Context()
	w.must(inventory.AddMerchant(ctx, w.db, "other", "acct_other", time.Now()))
	w.must(w.service.ServeChannels(ctx, []fulfillment.Channel{fulfillment.ChannelEmail, fulfillment.ChannelHook}))
	merchants := []string{inventory.DefaultMerchant, "other"}
	for _, merchant := range merchants {
		w.poolOf(merchant, "game", 20, inventory.Wait)
	}
	var group sync.WaitGroup
	for n := range 20 {
		w.sell(fmt.Sprintf("cs_%02d", n), "game", 1, n)
	}
	for n := range 20 {
		for _, merchant := range merchants {
			group.Go(func() {
				if _, err := w.service.Settle(ctx, merchant, fmt.Sprintf("cs_%02d", n)); err != nil {
					t.Errorf("cs_%02d of %s: %v", n, merchant, err)
				}
			})
		}
	}
	group.Wait()
	for _, merchant := range merchants {
		var orders, keys int
		w.must(w.db.QueryRow(ctx, `
SELECT count(DISTINCT f.order_id), count(DISTINCT k.key_id)
  FROM keytill.fulfilments f
  JOIN keytill.keys k ON k.merchant_id = f.merchant_id AND k.key_id = f.key_id AND k.state = 'allocated'
 WHERE f.merchant_id = $1 AND f.state = 'fulfilled'`, merchant).Scan(&orders, &keys))
		if orders != 20 || keys != 20 {
			t.Errorf("%s has %d orders with %d keys, want 20 of each", merchant, orders, keys)
		}
	}
}

// Sales that share a transaction share out what is left, and no more; the others wait or fail, as their pool says.
func TestWhatIsLeftIsSharedOutAmongThoseWhoShareATransaction(t *testing.T) {
	t.Parallel()
	for shortage, state := range map[inventory.Shortage]string{inventory.Wait: "waiting", inventory.Fail: "failed"} {
		t.Run(string(shortage), func(t *testing.T) {
			t.Parallel()
			w := newTill(t, nil)
			w.pool("game", 3, shortage)
			var refs []string
			for n := range 12 {
				session := fmt.Sprintf("cs_%02d", n)
				w.sell(session, "game", 1, n)
				refs = append(refs, session)
			}
			noErrors(t, w.settleAll(t.Context(), refs...))
			counts := make(map[string]int)
			for _, states := range w.holdings() {
				counts[states]++
			}
			if diff := cmp.Diff(map[string]int{"fulfilled": 3, state: 9}, counts); diff != "" {
				t.Errorf("twelve orders of three keys (-want +got):\n%s", diff)
			}
			w.hold()
		})
	}
}

// A sale that fails takes no other with it.
func TestASaleThatFailsIsAloneWithIt(t *testing.T) {
	t.Parallel()
	boom := errors.New("the storefront's table is full")
	w := newTill(t, func(_ context.Context, _ pgx.Tx, c fulfillment.Change) error {
		if c.Order == "cs_07" {
			return boom
		}
		return nil
	})
	w.pool("game", 100, inventory.Wait)
	var refs []string
	want := make(map[string]string)
	for n := range 20 {
		session := fmt.Sprintf("cs_%02d", n)
		w.sell(session, "game", 1, n)
		refs = append(refs, session)
		want[session] = "fulfilled"
	}
	delete(want, "cs_07")
	for ref, err := range w.settleAll(t.Context(), refs...) {
		if failed := ref == "cs_07"; errors.Is(err, boom) != failed || !failed && err != nil {
			t.Errorf("%s: %v", ref, err)
		}
	}
	w.wantHoldings(want)
}

// Who shares a transaction still leaves its own event at each key's movement, and its own event done.
func TestEverySaleAnswersItsOwnEvent(t *testing.T) {
	t.Parallel()
	w := newTill(t, nil)
	ctx := t.Context()
	w.pool("game", 100, inventory.Wait)
	var group sync.WaitGroup
	for n := range 20 {
		session := fmt.Sprintf("cs_%02d", n)
		w.sell(session, "game", 1, n)
		_, err := w.db.Exec(ctx, `
INSERT INTO keytill.events (merchant_id, event_id, type, object_id, payment, livemode, received_at, next_try_at)
VALUES ('default', $1, 'checkout.session.completed', $2, $3, false, now(), now())`, "evt_"+session, session, "pi_"+session[3:])
		w.must(err)
	}
	tx, err := w.db.Begin(ctx)
	w.must(err)
	_, err = tx.Exec(ctx, `LOCK TABLE keytill.orders IN SHARE MODE`)
	w.must(err)
	for n := range 20 {
		group.Go(func() {
			if err := w.service.SettleEvent(ctx, inventory.DefaultMerchant, fmt.Sprintf("evt_cs_%02d", n)); err != nil {
				t.Error(err)
			}
		})
	}
	time.Sleep(300 * time.Millisecond)
	w.must(tx.Rollback(ctx))
	group.Wait()
	var wrong, open int
	w.must(w.db.QueryRow(ctx, `
SELECT (SELECT count(*) FROM keytill.movements WHERE to_state = 'allocated' AND event_id IS DISTINCT FROM 'evt_' || order_id),
       (SELECT count(*) FROM keytill.events WHERE state <> 'done')`).Scan(&wrong, &open))
	if wrong+open > 0 {
		t.Errorf("%d movements name another's event, %d events are not done", wrong, open)
	}
	w.hold()
}
