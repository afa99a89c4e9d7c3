package integration_test

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keytill/keytill/internal/pgserver"
	"github.com/keytill/keytill/internal/pgtest"
	"github.com/keytill/keytill/inventory"
)

// BenchmarkPoolSize compares a pool of 10,000 keys that nobody has bought of with one of a million keys beside a million that
// were sold (10,000,000 and 10,000,000 with -long), in one database:
//
//	buffers/claim     pages that a claim of one key touches in the large pool, of tables and indexes; x/small against the small one
//	walbytes/settle   what a settle writes to the log in the large pool, beside what the usual way writes with as many keys
//
// Both writes are measured after a checkpoint and with full_page_writes off: an image of a page is written when it is first
// touched after a checkpoint, so that it would say when that was, and not who writes what.
func BenchmarkPoolSize(b *testing.B) {
	const small = 10_000
	large := length(quick(100_000, 1_000_000), 10_000_000)
	db := sizeDatabase(b)
	service := benchService(b, db)
	pools := []inventory.Pool{fillShelf(b, db, service, "small", small, 0), fillShelf(b, db, service, "large", large, large)}
	makeTextbook(b, db, large)

	var buffers [2]float64
	for i, pool := range pools {
		buffers[i] = pagesPerClaim(b, db, inventory.NewClaimer(), pool, 500)
		b.Logf("%s pool: %.1f buffers a claim", pool.SKU, buffers[i])
	}
	var next atomic.Int64
	const settles, rounds = 1000, 3
	var wal [2][]float64
	for range rounds {
		wal[0] = append(wal[0], walPer(b, db, settles, &next, func(n int64) error { return settleOne(b.Context(), service, pools[1], n) }))
		wal[1] = append(wal[1], walPer(b, db, settles, &next, func(n int64) error { return textbookOne(b.Context(), db, n) }))
	}
	b.Logf("settle: %.0f bytes each time; textbook: %.0f", wal[0], wal[1])
	b.ReportMetric(float64(2*large), "keys")
	b.ReportMetric(buffers[1], "buffers/claim")
	b.ReportMetric(buffers[1]/buffers[0], "x/small")
	b.ReportMetric(median(wal[0]), "walbytes/settle")
	b.ReportMetric(median(wal[1]), "walbytes/textbook")
	b.ReportMetric(median(wal[0])/median(wal[1]), "wal-x/textbook")
	b.ReportMetric(0, "ns/op")
}

func sizeDatabase(b *testing.B) *pgxpool.Pool {
	b.Helper()
	server := pgtest.Server(b, pgserver.Config{TempDir: os.TempDir(), Settings: map[string]string{"max_wal_size": "4GB", "shared_buffers": "1GB",
		"full_page_writes": "off", "checkpoint_timeout": "1h", "maintenance_work_mem": "512MB", "track_counts": "on"}})
	return pgtest.Pool(b, fmt.Sprintf("%s&pool_max_conns=%d", server.URL(), benchWorkers+4))
}

// walPer returns how many bytes of the log one of so many takes.
func walPer(b *testing.B, db *pgxpool.Pool, count int, next *atomic.Int64, one func(n int64) error) float64 {
	b.Helper()
	execAll(b, db, `CHECKPOINT`)
	position := func() (bytes float64) {
		if err := db.QueryRow(b.Context(), `SELECT (pg_current_wal_insert_lsn() - '0/0')::float8`).Scan(&bytes); err != nil {
			b.Fatal(err)
		}
		return bytes
	}
	before := position()
	runCount(b, count, next, one)
	return (position() - before) / float64(count)
}
