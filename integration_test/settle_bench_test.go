package integration_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/internal/jobs"
	"github.com/keytill/keytill/internal/pgserver"
	"github.com/keytill/keytill/internal/pgtest"
	"github.com/keytill/keytill/inventory"
)

const (
	benchWorkers = 32
	benchSlice   = 1500 * time.Millisecond // of one contender in one round
	benchRounds  = 5
)

// BenchmarkSettle settles new paid orders against one hot pool, with all the writes a settle makes, beside what people
// would write instead, in the same database and turn by turn:
//
//	bare      one row inserted and committed alone: what this machine can commit
//	textbook  one transaction with order, fulfilment, claim by SKIP LOCKED, a counter in the pool's row, movement, outbox
//
// Stripe is a function here, since the network is not what is measured. Each order is told of once, to the buyer by mail,
// as the textbook's one row in its outbox is.
func BenchmarkSettle(b *testing.B) {
	ctx := b.Context()
	db := benchDatabase(b)
	service := benchService(b, db)
	pool := benchPool(b, db, service, "hot", 400_000)
	makeTextbook(b, db, 400_000)

	rates := race(b, db, []contender{
		{"settle", benchWorkers, func(n int64) error { return settleOne(ctx, service, pool, n) }},
		{"textbook", benchWorkers, func(n int64) error { return textbookOne(ctx, db, n) }},
		{"bare", benchWorkers, func(n int64) error { return bareOne(ctx, db, n) }},
	})
	b.ReportMetric(rates["settle"], "settles/s")
	b.ReportMetric(rates["textbook"], "textbook/s")
	b.ReportMetric(rates["bare"], "bare/s")
	b.ReportMetric(rates["settle"]/rates["textbook"], "x/textbook")
	b.ReportMetric(rates["settle"]/rates["bare"], "x/bare")
	b.ReportMetric(0, "ns/op")
}

// A contender does one thing after another, by so many workers at once.
type contender struct {
	name    string
	workers int
	one     func(n int64) error
}

// race lets contenders run in turn and returns the median rate of each a second. The first round warms up and does not
// count.
func race(b *testing.B, db *pgxpool.Pool, contenders []contender) map[string]float64 {
	b.Helper()
	rates := make(map[string][]float64)
	var next atomic.Int64
	for round := range benchRounds + 1 {
		if round == 1 {
			gatherStatistics(b, db)
		}
		for _, c := range contenders {
			rate := runFor(b, c.workers, benchSlice, &next, c.one)
			if round > 0 {
				rates[c.name] = append(rates[c.name], rate)
			}
		}
	}
	medians := make(map[string]float64)
	for _, c := range contenders {
		r := rates[c.name]
		slices.Sort(r)
		medians[c.name] = r[len(r)/2]
		b.Logf("%-10s %8.0f a second (from %.0f to %.0f)", c.name, medians[c.name], r[0], r[len(r)-1])
	}
	return medians
}

// gatherStatistics does what a database does by itself within its first minute. Until then a planner takes tables for tiny.
func gatherStatistics(b *testing.B, db *pgxpool.Pool) {
	b.Helper()
	if _, err := db.Exec(b.Context(), `ANALYZE`); err != nil {
		b.Fatal(err)
	}
}

func runFor(b *testing.B, workers int, d time.Duration, next *atomic.Int64, one func(n int64) error) float64 {
	b.Helper()
	var (
		done  atomic.Int64
		group sync.WaitGroup
	)
	begin := time.Now()
	for range workers {
		group.Go(func() {
			for time.Since(begin) < d {
				if err := one(next.Add(1)); err != nil {
					b.Error(err)
					return
				}
				done.Add(1)
			}
		})
	}
	group.Wait()
	return float64(done.Load()) / time.Since(begin).Seconds()
}

// benchDatabase is a durable one, on a disk and not in memory: a commit waits for it.
func benchDatabase(b *testing.B) *pgxpool.Pool {
	b.Helper()
	server := pgtest.Server(b, pgserver.Config{TempDir: os.TempDir(), Settings: map[string]string{"max_wal_size": "4GB", "shared_buffers": "1GB"}})
	config, err := pgxpool.ParseConfig(server.URL())
	if err != nil {
		b.Fatal(err)
	}
	config.MaxConns = benchWorkers + 4
	db, err := pgxpool.NewWithConfig(b.Context(), config)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(db.Close)
	return db
}

// readyMade is a Stripe whose payments are what their id says: a paid session of one unit of a price.
type readyMade struct{}

func (readyMade) Payment(_ context.Context, _, ref string) (fulfillment.Payment, error) {
	id, price, ok := strings.Cut(strings.TrimPrefix(ref, "cs_"), "_")
	if !ok {
		return fulfillment.Payment{}, fulfillment.ErrNotFound
	}
	at := time.Now().Truncate(time.Second)
	return fulfillment.Payment{
		Session: &fulfillment.Session{ID: ref, Status: "complete", PaymentStatus: "paid", Mode: "payment", Currency: "usd", Total: 1000,
			Email: "buyer" + id + "@example.com", CreatedAt: at},
		Intent: &fulfillment.Intent{ID: "pi_" + id, Status: "succeeded", Currency: "usd", Amount: 1000, Captured: 1000, Charge: "ch_" + id,
			CreatedAt: at, PaidAt: at},
		Lines: []fulfillment.Line{{ID: "li_" + id, Price: price, Product: "prod_1", Description: "A game", Quantity: 1, Amount: 1000}},
	}, nil
}

func benchService(b *testing.B, db *pgxpool.Pool) *fulfillment.Service {
	b.Helper()
	keyset, err := inventory.NewKeyset()
	if err != nil {
		b.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	inserter, err := jobs.NewInserter(db, time.Now, log)
	if err != nil {
		b.Fatal(err)
	}
	service, err := fulfillment.New(fulfillment.Config{DB: db, Stripe: readyMade{}, Jobs: inserter, Keyset: keyset, Logger: log})
	if err != nil {
		b.Fatal(err)
	}
	if err := service.ServeChannels(b.Context(), []fulfillment.Channel{fulfillment.ChannelEmail}); err != nil {
		b.Fatal(err)
	}
	return service
}

func benchPool(b *testing.B, db *pgxpool.Pool, service *fulfillment.Service, sku string, keys int) inventory.Pool {
	b.Helper()
	ctx := b.Context()
	var pool inventory.Pool
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) (err error) {
		pool, err = inventory.CreatePool(ctx, tx, inventory.Pool{Merchant: inventory.DefaultMerchant, SKU: sku, CreatedAt: time.Now()})
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	if err := service.Map(ctx, pool.Merchant, "price-"+sku, &pool, 1); err != nil {
		b.Fatal(err)
	}
	var file strings.Builder
	for n := range keys {
		fmt.Fprintf(&file, "%s-%07d\n", sku, n)
	}
	if _, _, err := service.Import(ctx, inventory.Import{Pool: pool, File: strings.NewReader(file.String()), FileName: sku, Actor: "bench"}); err != nil {
		b.Fatal(err)
	}
	return pool
}

func settleOne(ctx context.Context, service *fulfillment.Service, pool inventory.Pool, n int64) error {
	order, err := service.Settle(ctx, pool.Merchant, fmt.Sprintf("cs_%d_price-%s", n, pool.SKU))
	if err == nil && order.Units()[fulfillment.UnitFulfilled] != 1 {
		err = errors.New("the order has no key: make the pool larger")
	}
	return err
}

// makeTextbook makes the tables that the usual way has.
func makeTextbook(b *testing.B, db *pgxpool.Pool, keys int) {
	b.Helper()
	for _, sql := range []string{
		`CREATE SCHEMA textbook`,
		`CREATE TABLE textbook.bare (id bigint PRIMARY KEY, text text)`,
		`CREATE TABLE textbook.pools (id bigint PRIMARY KEY, available bigint NOT NULL)`,
		fmt.Sprintf(`INSERT INTO textbook.pools VALUES (1, %d)`, keys),
		`CREATE TABLE textbook.keys (id bigint PRIMARY KEY, pool_id bigint NOT NULL REFERENCES textbook.pools, state text NOT NULL, code bytea NOT NULL, order_id text)`,
		fmt.Sprintf(`INSERT INTO textbook.keys SELECT n, 1, 'available', sha256(n::text::bytea), NULL FROM generate_series(1, %d) n`, keys),
		`CREATE INDEX ON textbook.keys (pool_id, id) WHERE state = 'available'`,
		`CREATE TABLE textbook.orders (id text PRIMARY KEY, payment_intent text UNIQUE, email text, amount bigint, created_at timestamptz DEFAULT now())`,
		`CREATE TABLE textbook.fulfilments (order_id text REFERENCES textbook.orders, line int, key_id bigint UNIQUE REFERENCES textbook.keys, PRIMARY KEY (order_id, line))`,
		`CREATE TABLE textbook.movements (id bigserial PRIMARY KEY, key_id bigint NOT NULL REFERENCES textbook.keys, kind text NOT NULL, at timestamptz DEFAULT now())`,
		`CREATE TABLE textbook.outbox (id bigserial PRIMARY KEY, order_id text NOT NULL, topic text NOT NULL, sent_at timestamptz)`,
		`VACUUM ANALYZE textbook.keys`,
	} {
		if _, err := db.Exec(b.Context(), sql); err != nil {
			b.Fatalf("%s: %v", sql, err)
		}
	}
}

// bareOne commits one row alone.
func bareOne(ctx context.Context, db *pgxpool.Pool, n int64) error {
	_, err := db.Exec(ctx, `INSERT INTO textbook.bare VALUES ($1, 'one row, committed alone')`, n)
	return err
}

// textbookOne is the usual way: right, and every order of a pool waits for the one before it at the pool's row.
func textbookOne(ctx context.Context, db *pgxpool.Pool, n int64) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		order := fmt.Sprintf("cs_%d", n)
		if _, err := tx.Exec(ctx, `INSERT INTO textbook.orders (id, payment_intent, email, amount) VALUES ($1, $2, $3, 1000)`, order,
			fmt.Sprintf("pi_%d", n), fmt.Sprintf("buyer%d@example.com", n)); err != nil {
			return err
		}
		var key int64
		if err := tx.QueryRow(ctx, `SELECT id FROM textbook.keys WHERE pool_id = 1 AND state = 'available' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED`).Scan(&key); err != nil {
			return err
		}
		for _, step := range []struct {
			sql  string
			args []any
		}{
			{`UPDATE textbook.keys SET state = 'sold', order_id = $2 WHERE id = $1`, []any{key, order}},
			{`UPDATE textbook.pools SET available = available - 1 WHERE id = 1`, nil},
			{`INSERT INTO textbook.fulfilments VALUES ($1, 1, $2)`, []any{order, key}},
			{`INSERT INTO textbook.movements (key_id, kind) VALUES ($1, 'sold')`, []any{key}},
			{`INSERT INTO textbook.outbox (order_id, topic) VALUES ($1, 'fulfilled')`, []any{order}},
		} {
			if _, err := tx.Exec(ctx, step.sql, step.args...); err != nil {
				return err
			}
		}
		return nil
	})
}
