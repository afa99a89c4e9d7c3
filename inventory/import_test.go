package inventory

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/keytill/keytill/internal/pg"
	"github.com/keytill/keytill/internal/pgtest"
)

// shelf are the plaintexts of a pool's keys, in the order in which they are sold.
func shelf(t testing.TB, db pg.Querier, pool Pool) []string {
	t.Helper()
	ids := all[int64](t, db, `SELECT key_id FROM keytill.keys WHERE pool_id = $1 ORDER BY position`, pool.ID)
	claimed := make([]Claimed, len(ids))
	for i, id := range ids {
		claimed[i].KeyID = id
	}
	return texts(t, db, claimed)
}

func file(pool Pool, text string) Import {
	return Import{Pool: pool, File: strings.NewReader(text), FileName: "keys.txt", Supplier: "acme"}
}

func TestFilesOfOneKeyALine(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", MaxKeySize)
	for _, tc := range []struct {
		name, text string
		want       Report
		keys       []string
	}{
		{"plain", "A\nB\n", Report{Rows: 2, New: 2}, []string{"A", "B"}},
		{"no newline at the end", "A\nB", Report{Rows: 2, New: 2}, []string{"A", "B"}},
		{"CRLF", "A\r\nB\r\n", Report{Rows: 2, New: 2}, []string{"A", "B"}},
		{"CRLF, none at the end", "A\r\nB\r", Report{Rows: 2, New: 2}, []string{"A", "B"}},
		{"byte-order mark", "\uFEFFA\nB\n", Report{Rows: 2, New: 2}, []string{"A", "B"}},
		{"byte-order mark and a blank row", "\uFEFF\r\nA\r\n", Report{Rows: 2, New: 1, Blank: 1}, []string{"A"}},
		{"a mark in the middle is the key's own", "A\n\uFEFFB\n", Report{Rows: 2, New: 2}, []string{"A", "\uFEFFB"}},
		{"blank rows", "\n  \nA\n\r\n\nB\n\n", Report{Rows: 7, New: 2, Blank: 5}, []string{"A", "B"}},
		{"spaces around", "  A \r\n B\nC D\n", Report{Rows: 3, New: 3, Trimmed: 2}, []string{"A", "B", "C D"}},
		{"twice in the file", "A\nB\nA\n A\nC\n", Report{Rows: 5, New: 3, DuplicateInFile: 2, Trimmed: 1}, []string{"A", "B", "C"}},
		{"UTF-16, little end first", utf16Text(binary.LittleEndian, "A\r\nÄ😀\r\n"), Report{Rows: 2, New: 2}, []string{"A", "Ä😀"}},
		{"UTF-16, big end first", utf16Text(binary.BigEndian, "A\nÄ😀"), Report{Rows: 2, New: 2}, []string{"A", "Ä😀"}},
		{"case makes a difference", "a\nA\n", Report{Rows: 2, New: 2}, []string{"a", "A"}},
		{"not ASCII", "ключ-ß-鍵\n", Report{Rows: 1, New: 1}, []string{"ключ-ß-鍵"}},
		{"commas and quotes are the key's own", "\"A\",B\n", Report{Rows: 1, New: 1}, []string{"\"A\",B"}},
		{"the longest key", long + "\n", Report{Rows: 1, New: 1}, []string{long}},
		{"the longest key, with spaces around", "  " + long + strings.Repeat(" ", 1000) + "\r\n", Report{Rows: 1, New: 1, Trimmed: 1}, []string{long}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			db, pool := stocked(t, 0)
			report, err := load(t.Context(), db, file(pool, tc.text))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, report, cmpopts.IgnoreFields(Report{}, "Batch", "Duplicates")); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.keys, shelf(t, db, pool)); diff != "" {
				t.Errorf("keys in the order of sale (-want +got):\n%s", diff)
			}
			whole(t, db)
		})
	}
}

func utf16Text(order binary.AppendByteOrder, text string) string {
	encoded := order.AppendUint16(nil, 0xfeff)
	for _, unit := range utf16.Encode([]rune(text)) {
		encoded = order.AppendUint16(encoded, unit)
	}
	return string(encoded)
}

// image is everything an import could change.
func image(t testing.TB, db pg.Querier) string {
	t.Helper()
	return one[string](t, db, `
SELECT concat_ws(E'\n', (SELECT string_agg(k::text, E'\n' ORDER BY key_id) FROM keytill.keys k),
                        (SELECT string_agg(b::text, E'\n' ORDER BY batch_id) FROM keytill.batches b),
                        (SELECT string_agg(m::text, E'\n' ORDER BY movement_id) FROM keytill.movements m),
                        (SELECT string_agg(s::text, E'\n' ORDER BY pool_id) FROM keytill.stock s))`)
}

func TestAFileWithAFaultChangesNothingAndNamesItsRow(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 3)
	before := image(t, db)
	broken := errors.New("the disk is gone")
	for _, tc := range []struct {
		name string
		file io.Reader
		err  error
		says string
	}{
		{"NUL", strings.NewReader("SECRET-A\nSECRET\x00B\n"), ErrBadRow, "row 2 holds a NUL byte"},
		{"not UTF-8", strings.NewReader("SECRET-A\n\nSECRET\xff\n"), ErrBadRow, "row 3 is not UTF-8"},
		{"UTF-16 with half a pair", strings.NewReader("\xff\xfeS\x00\n\x00S\x00\x3d\xd8\n\x00"), ErrBadRow, "row 2 is not UTF-8"},
		{"UTF-16 with half a character at the end", strings.NewReader("\xff\xfeS\x00\n\x00S\x00E"), ErrBadRow, "row 2 is not UTF-8"},
		{"line ends of old Macs", strings.NewReader("SECRET-A\rSECRET-B\r"), ErrBadRow, "row 1 holds a carriage return"},
		{"UTF-16 without", strings.NewReader("S\x00E\x00\n\x00"), ErrBadRow, "row 1 holds a NUL byte"},
		{"a byte too long", strings.NewReader("SECRET-A\n" + strings.Repeat("SECRET", MaxKeySize/6) + "12345\n"), ErrBadRow, "row 2 has 4097 bytes; a key has at most 4096"},
		{"a very long line", strings.NewReader("SECRET-A\n" + strings.Repeat("SECRET", 1<<20)), ErrBadRow, "row 2 is longer than 64 KiB"},
		{"empty", strings.NewReader(""), ErrEmpty, ""},
		{"nothing but a mark", strings.NewReader("\uFEFF"), ErrEmpty, ""},
		{"blank rows alone", strings.NewReader("\r\n  \n\n"), ErrEmpty, ""},
		{"a reader that fails", io.MultiReader(strings.NewReader("SECRET-A\nSECRET-B\n"), iotest.ErrReader(broken)), broken, "after row 2"},
		{"a reader that fails at once", iotest.ErrReader(broken), broken, "after row 0"},
	} {
		for _, dry := range []bool{false, true} {
			if seeker, ok := tc.file.(io.Seeker); ok {
				_, _ = seeker.Seek(0, io.SeekStart)
			} else if dry {
				continue
			}
			_, err := load(t.Context(), db, Import{Pool: pool, File: tc.file, FileName: "f", DryRun: dry})
			if !errors.Is(err, tc.err) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%s: %v", tc.name, err)
			} else if strings.Contains(err.Error(), "SECRET") {
				t.Errorf("%s: the error holds a key: %v", tc.name, err)
			}
		}
	}
	if diff := cmp.Diff(before, image(t, db)); diff != "" {
		t.Errorf("something changed:\n%s", diff)
	}
	restock(t, db, pool, 4, 5) // the connections are still good
	whole(t, db)
}

func TestAnImportWritesOneBatchAndOneMovement(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 2)
	text := "KEY-1\nX\n\n Y \nX\n"
	report, err := load(t.Context(), db, file(pool, text))
	if err != nil {
		t.Fatal(err)
	}
	want := Report{Batch: report.Batch, Rows: 5, New: 2, DuplicateInFile: 1, DuplicateInStock: 1, Blank: 1, Trimmed: 1,
		Duplicates: []Duplicate{{Row: 5, First: 2}, {Row: 1}}}
	if diff := cmp.Diff(want, report); diff != "" || report.Batch == 0 {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	sum := sha256.Sum256([]byte(text))
	row := one[string](t, db, `SELECT concat_ws(' ', pool_id, file_name, supplier, actor, keys, file_hash = $2, created_at = $3) FROM keytill.batches WHERE batch_id = $1`,
		report.Batch, sum[:], noon)
	if diff := cmp.Diff(fmt.Sprint(pool.ID, " keys.txt acme ann 2 t t"), row); diff != "" {
		t.Errorf("batch (-want +got):\n%s", diff)
	}
	var stored Report
	if err := json.Unmarshal(one[[]byte](t, db, `SELECT report FROM keytill.batches WHERE batch_id = $1`, report.Batch), &stored); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(report, stored); diff != "" {
		t.Errorf("stored report (-want +got):\n%s", diff)
	}
	moved := all[string](t, db, `SELECT concat_ws(' ', pool_id, key_id, keys, from_state, to_state, reason, actor, at = $2) FROM keytill.movements WHERE batch_id = $1`,
		report.Batch, noon)
	if diff := cmp.Diff([]string{fmt.Sprint(pool.ID, " 2 available import ann t")}, moved); diff != "" {
		t.Errorf("movements (-want +got):\n%s", diff)
	}
	if n := one[int64](t, db, `SELECT count(*) FROM keytill.keys WHERE batch_id = $1 AND state = 'available'`, report.Batch); n != 2 {
		t.Errorf("%d keys of the batch", n)
	}
}

func TestTheSameFileIsRefusedUnlessForced(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 0)
	other := makePool(t, db, "other")
	const text = "A\nB\n"
	if _, err := load(t.Context(), db, file(pool, text)); err != nil {
		t.Fatal(err)
	}
	before := image(t, db)
	for _, dry := range []bool{false, true} {
		again := file(pool, text)
		again.DryRun, again.FileName = dry, "renamed.txt"
		report, err := load(t.Context(), db, again)
		if !errors.Is(err, ErrImported) || !strings.Contains(err.Error(), "renamed.txt") || !strings.Contains(err.Error(), "--force") {
			t.Errorf("again (dry %v): %+v, %v", dry, report, err)
		}
	}
	forced := file(pool, text)
	forced.Force = true
	report, err := load(t.Context(), db, forced)
	if diff := cmp.Diff(Report{Rows: 2, DuplicateInStock: 2, Duplicates: []Duplicate{{Row: 1}, {Row: 2}}}, report); diff != "" || err != nil {
		t.Errorf("forced: error %v, report (-want +got):\n%s", err, diff)
	}
	if diff := cmp.Diff(before, image(t, db)); diff != "" {
		t.Errorf("something changed:\n%s", diff)
	}
	if report, err := load(t.Context(), db, file(other, text)); err != nil || report.New != 2 {
		t.Errorf("into another pool: %+v, %v", report, err)
	}
}

func TestDuplicatesInStockAreFoundInEveryStateAndLeftAlone(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 5)
	claim(t, db, NewClaimer(), pool, units("cs_1", 2))
	exec(t, db, `UPDATE keytill.keys SET state = 'revoked' WHERE unit = 2`)
	exec(t, db, `UPDATE keytill.keys SET state = 'reserved', reserved_for = 'x', reserved_until = now() WHERE position = (SELECT max(position) FROM keytill.keys)`)
	const before = `SELECT string_agg(k::text, E'\n' ORDER BY key_id) FROM keytill.keys k WHERE batch_id = (SELECT min(batch_id) FROM keytill.batches)`
	want := one[string](t, db, before)
	report := restock(t, db, pool, 1, 6)
	if report.New != 1 || report.DuplicateInStock != 5 {
		t.Errorf("%+v", report)
	}
	if diff := cmp.Diff(want, one[string](t, db, before)); diff != "" {
		t.Errorf("keys in stock changed:\n%s", diff)
	}
}

func TestADryRunGivesTheSameReportAndChangesNothing(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 2)
	before := image(t, db)
	const text = "KEY-2\nX\nX\n\n Y\n"
	dry := file(pool, text)
	dry.DryRun = true
	planned, err := load(t.Context(), db, dry)
	if err != nil || planned.Batch != 0 {
		t.Fatalf("%+v, %v", planned, err)
	}
	if diff := cmp.Diff(before, image(t, db)); diff != "" {
		t.Errorf("something changed:\n%s", diff)
	}
	done, err := load(t.Context(), db, file(pool, text))
	if diff := cmp.Diff(done, planned, cmpopts.IgnoreFields(Report{}, "Batch", "Duplicates")); diff != "" || err != nil {
		t.Errorf("error %v (-done +planned):\n%s", err, diff)
	}
}

func TestALaterImportIsSoldLater(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 2)
	restock(t, db, pool, 3, 4)
	if diff := cmp.Diff([]string{"KEY-1", "KEY-2", "KEY-3", "KEY-4"}, shelf(t, db, pool)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTwoImportsOfTheSameKeysAtOnce(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 0)
	// Nobody writes keys before all have looked which of theirs are there, unless they look in turn.
	holder := begin(t, db, pgx.TxOptions{})
	exec(t, holder, `LOCK TABLE keytill.keys IN SHARE MODE`)
	var group errgroup.Group
	reports := make([]Report, 4)
	for i := range reports {
		group.Go(func() (err error) {
			// The same keys, and each file its own.
			reports[i], err = load(t.Context(), db, file(pool, keyFile(1, 500)+fmt.Sprintf("OWN-%d\n", i)))
			return err
		})
	}
	time.Sleep(300 * time.Millisecond)
	if err := holder.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	var fresh, known int64
	for _, r := range reports {
		fresh, known = fresh+r.New, known+r.DuplicateInStock
	}
	if fresh != 504 || known != 1500 {
		t.Errorf("%d new and %d known, want 504 and 1500", fresh, known)
	}
	whole(t, db)
}

func TestTwoImportsOfOneFileAtOnce(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 0)
	var group errgroup.Group
	errs := make([]error, 3)
	for i := range errs {
		group.Go(func() error {
			_, errs[i] = load(t.Context(), db, file(pool, keyFile(1, 100)))
			return nil
		})
	}
	_ = group.Wait()
	refused := 0
	for _, err := range errs {
		if errors.Is(err, ErrImported) {
			refused++
		} else if err != nil {
			t.Error(err)
		}
	}
	if refused != 2 || one[int64](t, db, `SELECT count(*) FROM keytill.keys`) != 100 {
		t.Errorf("%d refused, %d keys", refused, one[int64](t, db, `SELECT count(*) FROM keytill.keys`))
	}
}

func TestAFailedImportOfAnOuterTransactionLeavesNothing(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 1)
	before := image(t, db)
	own := errors.New("the caller changed its mind")
	err := pg.InTx(t.Context(), db, func(tx pgx.Tx) error {
		if _, err := testKeyset().Load(t.Context(), tx, file(pool, "A\nB\n")); err != nil {
			return err
		}
		return own
	})
	if err != own {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, image(t, db)); diff != "" {
		t.Errorf("something changed:\n%s", diff)
	}
}

func TestAnImportEndsWithItsContext(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 0)
	ctx, cancel := context.WithCancel(t.Context())
	endless := &generated{rows: 1 << 40, at: func(row int) {
		if row == 1000 {
			cancel()
		}
	}}
	if _, err := load(ctx, db, Import{Pool: pool, File: endless}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if n := one[int64](t, db, `SELECT count(*) FROM keytill.keys`); n != 0 {
		t.Errorf("%d keys", n)
	}
}

// generated is a file that is made as it is read.
type generated struct {
	rows, row int
	rest      []byte
	at        func(row int)
}

func (g *generated) Read(p []byte) (n int, err error) {
	for n < len(p) {
		if len(g.rest) == 0 {
			if g.row == g.rows {
				break
			}
			g.row++
			if g.at != nil {
				g.at(g.row)
			}
			g.rest = fmt.Appendf(g.rest[:0], "ABCDE-FGHIJ-KLMNO-PQRST-%09d\n", g.row)
		}
		c := copy(p[n:], g.rest)
		g.rest = g.rest[c:]
		n += c
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// Not parallel: it looks at the memory of the whole process, and measures against what was there before it.
func TestAFileOf100000KeysNeedsLittleMemory(t *testing.T) {
	db, pool := stocked(t, 0)
	const rows = 100_000
	var before, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var most uint64
	report, err := load(t.Context(), db, Import{Pool: pool, FileName: "big.txt", File: &generated{rows: rows, at: func(row int) {
		if row%20_000 == 0 {
			runtime.GC()
			runtime.ReadMemStats(&now)
			most = max(most, now.HeapAlloc)
		}
	}}})
	if err != nil || report.New != rows {
		t.Fatalf("%+v, %v", report, err)
	}
	t.Logf("the heap grew by %d KiB", (int64(most)-int64(before.HeapAlloc))>>10)
	if grown := int64(most) - int64(before.HeapAlloc); grown > 2<<20 {
		t.Errorf("the heap grew by %d KiB for a file of %d KiB", grown>>10, rows*35>>10)
	}
}

func TestAFileOfMoreKeysThanABlockHasIds(t *testing.T) {
	t.Parallel()
	file := newFileRows(Import{File: strings.NewReader("A\nB\nC\nD\nE\n")})
	var ids []int64
	for block := int64(7); !file.done; block++ {
		rows := &stagedRows{keyset: testKeyset(), imp: Import{Pool: Pool{Merchant: "m", ID: 1}}, file: file, nextID: block * 100, end: block*100 + 2}
		for rows.Next() {
			values, err := rows.Values()
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, values[1].(int64))
		}
		if rows.Err() != nil {
			t.Fatal(rows.Err())
		}
	}
	if diff := cmp.Diff([]int64{700, 701, 800, 801, 900}, ids); diff != "" {
		t.Errorf("ids (-want +got):\n%s", diff)
	}
}

// wherever searches every text, binary and JSON column of the schema for a text, in plain, hexadecimal and base64.
func wherever(t *testing.T, db *pgxpool.Pool, text string) (found []string) {
	t.Helper()
	columns := all[string](t, db, `
SELECT format('%I.%I', table_schema, table_name) || ' ' || quote_ident(column_name)
  FROM information_schema.columns JOIN information_schema.tables USING (table_schema, table_name)
 WHERE table_schema = 'keytill' AND table_type = 'BASE TABLE'
   AND data_type IN ('text', 'character varying', 'bytea', 'jsonb', 'json', 'ARRAY')`)
	if len(columns) < 40 {
		t.Fatalf("only %d columns to search", len(columns))
	}
	for _, column := range columns {
		table, name, _ := strings.Cut(column, " ")
		n := one[int64](t, db, fmt.Sprintf(`
SELECT count(*) FROM (SELECT %s AS c FROM %s) AS rows
 WHERE position($1::text IN c::text) > 0 OR position(encode($1::text::bytea, 'hex') IN c::text) > 0
    OR position(rtrim(encode($1::text::bytea, 'base64'), '=') IN c::text) > 0`, name, table), text)
		if n > 0 {
			found = append(found, column)
		}
	}
	return found
}

func TestNoTableHoldsAPlaintext(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 0)
	const secret = "PLAIN-TEXT-4711"
	if _, err := load(t.Context(), db, file(pool, secret+"\n"+secret+"\nOTHER\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := load(t.Context(), db, file(pool, secret+"\nMORE\n")); err != nil {
		t.Fatal(err)
	}
	claimed := claim(t, db, NewClaimer(), pool, units("cs_1", 1))
	if err := move(t, db, []int64{claimed[0].KeyID}, Allocated, Revoked); err != nil {
		t.Fatal(err)
	}
	if err := Fold(t.Context(), db, pool.Merchant, pool.ID); err != nil {
		t.Fatal(err)
	}
	if found := wherever(t, db, secret); found != nil {
		t.Errorf("the key's text is in %v", found)
	}
	// The search finds what is there.
	exec(t, db, `UPDATE keytill.batches SET supplier = $1, report = to_jsonb($1::text), file_hash = $1::text::bytea`, secret)
	if found := wherever(t, db, secret); len(found) != 3 {
		t.Errorf("planted in three columns, found in %v", found)
	}
}

func TestImportsOnOneConnectionAfterEachOther(t *testing.T) {
	t.Parallel()
	db := pgtest.Pool(t, pgtest.NewURL(t)+"&pool_max_conns=1")
	pool := makePool(t, db, "game")
	for i := range 7 {
		restock(t, db, pool, 10*i+1, 10*i+10)
	}
	if n := one[int64](t, db, `SELECT count(*) FROM keytill.keys`); n != 70 {
		t.Errorf("%d keys", n)
	}
}

func FuzzFileRows(f *testing.F) {
	f.Add([]byte("\uFEFFA\r\n\r\n B \nC"))
	f.Add([]byte("A\x00\n\xff"))
	f.Fuzz(func(t *testing.T, text []byte) {
		rows := newFileRows(Import{File: iotest.OneByteReader(bytes.NewReader(text))})
		var keys int64
		for {
			key, err := rows.next()
			if err != nil {
				return
			}
			if key == nil {
				break
			}
			keys++
			if len(key) == 0 || len(key) > MaxKeySize || bytes.ContainsAny(key, "\x00\r\n") || key[0] == ' ' || key[len(key)-1] == ' ' {
				t.Fatalf("key %q", key)
			}
		}
		if keys+rows.report.Blank != rows.report.Rows {
			t.Fatalf("%d keys of %+v", keys, rows.report)
		}
		if sum := sha256.Sum256(text); !bytes.Equal(sum[:], rows.sum()) {
			t.Fatal("the hash is not the file's")
		}
	})
}
