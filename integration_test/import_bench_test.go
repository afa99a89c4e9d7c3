package integration_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keytill/keytill/inventory"
)

const importedKeys = 1_000_000

// BenchmarkImport imports a file of a million keys, with all that an import does: read, encrypt, fingerprint, look for
// duplicates, store, count, serve. Beside it, in the same database, a raw COPY stores the very rows that came of it in
// a table of the same shape and indexes. It reports the rates, x/copy (the import's part of the COPY's rate), and the
// most memory that this process had during the import.
func BenchmarkImport(b *testing.B) {
	ctx := b.Context()
	db := benchDatabase(b)
	service := benchService(b, db)
	pool := inventory.Pool{Merchant: inventory.DefaultMerchant, SKU: "bulk", CreatedAt: time.Now()}
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) (err error) {
		pool, err = inventory.CreatePool(ctx, tx, pool)
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	execAll(b, db, `CREATE TABLE raw (LIKE keytill.keys INCLUDING ALL)`)
	resetPeakMemory()
	imported := timed(b, func() error {
		report, _, err := service.Import(ctx, inventory.Import{Pool: pool, File: &manyKeys{rows: importedKeys}, FileName: "bulk.txt", Actor: "bench"})
		if err == nil && report.New != importedKeys {
			err = fmt.Errorf("%+v", report)
		}
		return err
	})
	memory := peakMemory(b)

	rows := filepath.Join(b.TempDir(), "rows")
	if err := copyOut(ctx, db, rows); err != nil {
		b.Fatal(err)
	}
	execAll(b, db, `CHECKPOINT`)
	copied := timed(b, func() error { return copyIn(ctx, db, rows) })

	b.ReportMetric(importedKeys/imported.Seconds(), "keys/s")
	b.ReportMetric(importedKeys/copied.Seconds(), "copied/s")
	b.ReportMetric(copied.Seconds()/imported.Seconds(), "x/copy")
	b.ReportMetric(memory, "MB")
	b.ReportMetric(0, "ns/op")
}

func timed(b *testing.B, run func() error) time.Duration {
	b.Helper()
	begin := time.Now()
	if err := run(); err != nil {
		b.Fatal(err)
	}
	return time.Since(begin)
}

func execAll(b testing.TB, db *pgxpool.Pool, statements ...string) {
	b.Helper()
	for _, sql := range statements {
		if _, err := db.Exec(context.Background(), sql); err != nil {
			b.Fatalf("%s: %v", sql, err)
		}
	}
}

// manyKeys is a file of keys that is made as it is read.
type manyKeys struct {
	rows, row int
	rest      []byte
}

func (m *manyKeys) Read(p []byte) (n int, err error) {
	for n < len(p) {
		if len(m.rest) == 0 {
			if m.row == m.rows {
				break
			}
			m.row++
			m.rest = fmt.Appendf(m.rest[:0], "ABCDE-FGHIJ-KLMNO-%08d\n", m.row)
		}
		c := copy(p[n:], m.rest)
		n, m.rest = n+c, m.rest[c:]
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func copyOut(ctx context.Context, db *pgxpool.Pool, name string) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	defer file.Close()
	conn, err := db.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	w := bufio.NewWriterSize(file, 1<<20)
	if _, err := conn.Conn().PgConn().CopyTo(ctx, w, `COPY keytill.keys TO STDOUT (FORMAT binary)`); err != nil {
		return err
	}
	return w.Flush()
}

func copyIn(ctx context.Context, db *pgxpool.Pool, name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	conn, err := db.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	_, err = conn.Conn().PgConn().CopyFrom(ctx, bufio.NewReaderSize(file, 1<<20), `COPY raw FROM STDIN (FORMAT binary)`)
	return err
}

// resetPeakMemory begins to measure anew, where the system can.
func resetPeakMemory() { _ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) }

// peakMemory is the most memory that this process had, in MB.
func peakMemory(b *testing.B) float64 {
	b.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Logf("the memory cannot be measured here: %v", err)
		return 0
	}
	for line := range strings.Lines(string(status)) {
		var kb float64
		if n, _ := fmt.Sscanf(line, "VmHWM: %f kB", &kb); n == 1 {
			return kb / 1024
		}
	}
	b.Log("the system does not say how much memory this process had")
	return 0
}
