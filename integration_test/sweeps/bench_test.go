package sweeps_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/integration_test/shoptest"
	"github.com/keytill/keytill/internal/pgtest"
	"github.com/keytill/keytill/internal/stripefake"
	"github.com/keytill/keytill/inventory"
	"github.com/keytill/keytill/reconcile"
)

// BenchmarkSweep sweeps payments of which none differs. The sweep runs in a process of its own, so that its memory can be
// told from the fake's:
//
//	go test ./integration_test/sweeps -run '^$' -bench Sweep -benchtime 1x
func BenchmarkSweep(b *testing.B) {
	for _, payments := range []int{10_000, 100_000} {
		b.Run(fmt.Sprint(payments), func(b *testing.B) {
			db := pgtest.NewURL(b)
			at := time.Date(2026, 3, 8, 0, 0, 0, 0, time.UTC)
			var now atomic.Int64
			stripe := stripefake.Start(stripefake.Config{Now: func() time.Time { return time.Unix(now.Load(), 0) }})
			defer stripe.Close()
			sell(b, stripe, &now, at, payments)
			record(b, pgtest.Pool(b, db), at, payments)
			for b.Loop() {
				stripe.ForgetCalls()
				r := sweepInChild(b, child{DB: db, Stripe: stripe.URL(), Key: stripe.APIKey(), Now: at.Add(7*day + time.Hour)})
				if r.Report.Walked != 2*payments || r.Report.Differing != 0 || !r.Report.OK() {
					b.Fatalf("%+v", r.Report)
				}
				const kinds = 6
				calls, pages := stripe.Calls(""), r.Report.Pages
				if most := 2*(payments+99)/100 + kinds; calls > most {
					b.Errorf("%d calls, want at most %d", calls, most)
				}
				b.ReportMetric(float64(calls), "calls")
				b.ReportMetric(float64(pages), "pages")
				b.ReportMetric(float64(r.Statements), "statements")
				b.ReportMetric(r.PeakMB, "peak-MB")
				b.ReportMetric(r.Seconds, "sweep-s")
				b.ReportMetric(0, "ns/op")
			}
		})
	}
}

// sell makes sessions over a week, with their PaymentIntents.
func sell(b *testing.B, stripe *stripefake.Server, now *atomic.Int64, begin time.Time, payments int) {
	b.Helper()
	for i := range payments {
		now.Store(begin.Add(7 * day / time.Duration(payments) * time.Duration(i)).Unix())
		err := stripe.Session(fmt.Sprintf("cs_%d", i), []stripefake.Item{{Price: "price_game", Quantity: 1, Amount: unitAmount}}, nil)
		if err != nil {
			b.Fatal(err)
		}
	}
}

// record has keytill know all of them, as settles would have left them.
func record(b *testing.B, db *pgxpool.Pool, begin time.Time, payments int) {
	b.Helper()
	exec := func(statement string, args ...any) {
		if _, err := db.Exec(b.Context(), statement, args...); err != nil {
			b.Fatal(err)
		}
	}
	exec(`INSERT INTO keytill.pools (merchant_id, sku, name, created_at) VALUES ('default', 'game', 'Game', $1)`, begin.Add(-time.Hour))
	exec(`
INSERT INTO keytill.orders (merchant_id, order_id, payment_intent, charge, payment, currency, amount_total, amount_captured,
                            amount_refunded, placed_at, ticket, settled_at)
SELECT 'default', 'cs_' || i, 'pi_' || i, 'ch_' || i, 'paid', 'usd', 1000, 1000, 0, $1, 1, $1 FROM generate_series(0, $2::int - 1) AS i`,
		begin, payments)
	exec(`
INSERT INTO keytill.lines (merchant_id, order_id, line_id, ordinal, price, product, description, quantity, amount, pool_id)
SELECT merchant_id, order_id, 'li_1', 1, 'price_game', 'prod_game', '', 1, 1000, (SELECT pool_id FROM keytill.pools) FROM keytill.orders`)
	exec(`
INSERT INTO keytill.fulfilments (merchant_id, order_id, line_id, unit, pool_id, state, key_id, changed_at)
SELECT merchant_id, order_id, line_id, 1, pool_id, 'fulfilled', row_number() OVER (), $1 FROM keytill.lines`, begin)
	exec(`ANALYZE`)
}

// child is what a sweep in a process of its own is told.
type child struct {
	DB, Stripe, Key string
	Now             time.Time
}

// childResult is what it tells.
type childResult struct {
	Report     reconcile.Report
	Statements int64
	PeakMB     float64
	Seconds    float64
}

const childEnv = "KEYTILL_TEST_SWEEP"

func sweepInChild(b *testing.B, c child) (r childResult) {
	b.Helper()
	told, err := json.Marshal(c)
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.CommandContext(b.Context(), os.Args[0], "-test.run", "^TestSweepInChild$", "-test.v")
	cmd.Env = append(os.Environ(), childEnv+"="+string(told))
	out, err := cmd.CombinedOutput()
	_, line, found := bytes.Cut(out, []byte(childEnv+"="))
	if err != nil || !found {
		b.Fatalf("the sweep's process: %v\n%s", err, out)
	}
	line, _, _ = bytes.Cut(line, []byte("\n"))
	if err := json.Unmarshal(line, &r); err != nil {
		b.Fatal(err)
	}
	return r
}

// The benchmark's own process for the sweep; nothing by itself.
func TestSweepInChild(t *testing.T) {
	var c child
	if text := os.Getenv(childEnv); text == "" {
		return
	} else if err := json.Unmarshal([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	config, err := pgxpool.ParseConfig(c.DB)
	if err != nil {
		t.Fatal(err)
	}
	var statements counter
	config.ConnConfig.Tracer = &statements
	db, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	sweeper, err := reconcile.New(reconcile.Config{DB: db, Stripe: shoptest.NewClient(t, db, c.Stripe, c.Key), Settler: nobody{},
		SilenceAfter: -1, Now: func() time.Time { return c.Now }, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	report, err := sweeper.Sweep(t.Context(), inventory.DefaultMerchant, reconcile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(childResult{Report: report, Statements: statements.n.Load(), PeakMB: peakMB(t), Seconds: time.Since(began).Seconds()})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("\n%s=%s\n", childEnv, text)
}

// nobody settles, since nothing differs.
type nobody struct{}

func (nobody) Settle(_ context.Context, _, ref string) (fulfillment.Order, error) {
	return fulfillment.Order{}, fmt.Errorf("%s differs", ref)
}

func (nobody) PickUp(context.Context) (int, error) { return 0, nil }

// counter counts statements, those of a batch one by one.
type counter struct{ n atomic.Int64 }

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.n.Add(1)
	return ctx
}

func (c *counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (c *counter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (c *counter) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) { c.n.Add(1) }

func (c *counter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// peakMB is the most memory that this process has had.
func peakMB(t *testing.T) float64 {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Logf("the peak of memory is not known here: %v", err)
		return 0
	}
	_, line, _ := strings.Cut(string(status), "VmHWM:")
	kb, err := strconv.ParseFloat(strings.Fields(line)[0], 64)
	if err != nil {
		t.Fatal(err)
	}
	return kb / 1024
}
