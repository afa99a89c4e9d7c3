package inventory

import (
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func csvFile(pool Pool, text string) Import {
	imp := file(pool, text)
	imp.FileName = "keys.CSV"
	return imp
}

func TestCSVFiles(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, text string
		change     func(*Import)
		want       Report
		keys       []string
	}{
		{"a well-known name", "note,Licence_Key\nx,A\ny,B\n", nil, Report{Rows: 2, New: 2}, []string{"A", "B"}},
		{"one column", "code\nA\nB", nil, Report{Rows: 2, New: 2}, []string{"A", "B"}},
		{"by name", "a,code,Other\nx,1,A\n", func(i *Import) { i.Column = "other" }, Report{Rows: 1, New: 1}, []string{"A"}},
		{"by number", "a,b\nx,A\n", func(i *Import) { i.Column = "2" }, Report{Rows: 1, New: 1}, []string{"A"}},
		{"a name that is a number is a name first", "x,1\nA,B\n", func(i *Import) { i.Column = "1" }, Report{Rows: 1, New: 1}, []string{"B"}},
		{"without a header", "x,A\ny,B\n", func(i *Import) { i.NoHeader, i.Column = true, "2" }, Report{Rows: 2, New: 2}, []string{"A", "B"}},
		{"without a header, one column", "A\nB\n", func(i *Import) { i.NoHeader = true }, Report{Rows: 2, New: 2}, []string{"A", "B"}},
		{"semicolons", "key;note\nA,1;x\n", func(i *Import) { i.Separator = ';' }, Report{Rows: 1, New: 1}, []string{"A,1"}},
		{"tabs", "key\tnote\nA\tx\n", func(i *Import) { i.Separator = '\t' }, Report{Rows: 1, New: 1}, []string{"A"}},
		{"quotes", "key\n\"A,\"\"1\"\"\"\n\"B\nB\"\nC\n", nil, Report{Rows: 3, New: 3}, []string{"A,\"1\"", "B\nB", "C"}},
		{"blank lines and cells", "\nkey,n\n\n\nA,1\n,2\n  ,3\nB,4\n\n", nil, Report{Rows: 8, New: 2, Blank: 6}, []string{"A", "B"}},
		{"CRLF and a mark", "\uFEFFkey,n\r\nA,1\r\n\r\n B ,2\r\n", nil, Report{Rows: 3, New: 2, Blank: 1, Trimmed: 1}, []string{"A", "B"}},
		{"empty cells behind the last column", "key,n\nA,1,,\n", nil, Report{Rows: 1, New: 1}, []string{"A"}},
		{"a row that ends behind the key", "key,n\nA\n", nil, Report{Rows: 1, New: 1}, []string{"A"}},
		{"twice", "key\nA\n\nA\n", nil, Report{Rows: 3, New: 1, Blank: 1, DuplicateInFile: 1, Duplicates: []Duplicate{{Row: 4, First: 2}}}, []string{"A"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			db, pool := stocked(t, 0)
			imp := csvFile(pool, tc.text)
			if tc.change != nil {
				tc.change(&imp)
			}
			report, err := load(t.Context(), db, imp)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, report, cmpopts.IgnoreFields(Report{}, "Batch")); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.keys, shelf(t, db, pool)); diff != "" {
				t.Errorf("keys in the order of sale (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDatesOfUseComeFromTheirColumn(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 0)
	imp := csvFile(pool, "key,until\nA,2027-12-31\nB,\nC, 2026-02-28 \n")
	imp.UseByColumn = "Until"
	if _, err := load(t.Context(), db, imp); err != nil {
		t.Fatal(err)
	}
	got := all[string](t, db, `SELECT coalesce(use_by::text, 'never') FROM keytill.keys ORDER BY position`)
	if diff := cmp.Diff([]string{"2027-12-31", "never", "2026-02-28"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFaultyCSVFilesAreRefusedWithRowAndReason(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 1)
	before := image(t, db)
	for _, tc := range []struct {
		name, text string
		change     func(*Import)
		err        error
		says       string
	}{
		{"no such name", "code,note\nSECRET,x\n", func(i *Import) { i.Column = "serial" }, ErrNoColumn, `no column "serial"; the file has "code", "note"`},
		{"no such number", "code,note\nSECRET,x\n", func(i *Import) { i.Column = "3" }, ErrNoColumn, `no column "3"`},
		{"no well-known name", "a,b\nSECRET,x\n", nil, ErrNoColumn, `the file has "a", "b": say which with --column`},
		{"two well-known names", "pin,serial\nSECRET,x\n", nil, ErrNoColumn, "2 have such a name"},
		{"a name twice", "a,a\nSECRET,x\n", func(i *Import) { i.Column = "a" }, ErrBadRow, "columns 1 and 2 are both called"},
		{"no header at all", "SECRET-123-456,SECRET-888-99\n", nil, ErrNoColumn, "column 1, column 2"},
		{"without a header, and no number", "SECRET,x\n", func(i *Import) { i.NoHeader = true }, ErrNoColumn, "column 1, column 2"},
		{"another separator", "key;note\nSECRET;x\n", nil, ErrNoColumn, "2 with --separator ';'"},
		{"another separator, and a number", "key\tnote\nSECRET\tx\n", func(i *Import) { i.Column = "1" }, ErrNoColumn, "2 with --separator tab"},
		{"a key with a separator and no quotes", "key,note\nA,x\nSECRET,1,x\n", nil, ErrBadRow, "row 3 has 3 fields, and the first row 2"},
		{"a row without the key's column", "note,key\nSECRET\n", nil, ErrBadRow, "row 2 has only 1 of 2 fields"},
		{"a quote within a field", "key\nA\nSE\"CRET\n", nil, ErrBadRow, "row 3 has a quote"},
		{"text behind a closing quote", "key\n\"SECRET\"x\n", nil, ErrBadRow, "row 2 has a quote"},
		{"a quote that is not closed", "key\nA\n\"SECRET\nB\nC\n", nil, ErrBadRow, "row 3 has a quote"},
		{"not UTF-8", "key,note\nA,x\nSECRET,\xff\n", nil, ErrBadRow, "row 3 is not UTF-8"},
		{"NUL", "key\nSECRET\x00\n", nil, ErrBadRow, "row 2 holds a NUL byte"},
		{"too long", "key\n" + strings.Repeat("SECRET", 700) + "\n", nil, ErrBadRow, "row 2 has 4200 bytes"},
		{"no date", "key,until\nA,2027-01-01\nSECRET,31.12.2027\n", func(i *Import) { i.UseByColumn = "until" }, ErrBadRow, "row 3 has no date like 2027-12-31"},
		{"a day that is none", "key,until\nSECRET,2027-02-30\n", func(i *Import) { i.UseByColumn = "until" }, ErrBadRow, "row 2 has no date"},
		{"a header alone", "key,note\n", nil, ErrEmpty, ""},
		{"nothing", "", nil, ErrEmpty, ""},
	} {
		imp := csvFile(pool, tc.text)
		if tc.change != nil {
			tc.change(&imp)
		}
		_, err := load(t.Context(), db, imp)
		if !errors.Is(err, tc.err) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", tc.name, err)
		} else if strings.Contains(err.Error(), "SECRET") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: the error holds a key, or more than a line: %v", tc.name, err)
		}
	}
	if diff := cmp.Diff(before, image(t, db)); diff != "" {
		t.Errorf("something changed:\n%s", diff)
	}
}

// endless is a file of one line.
type endless struct{ start, then string }

func (e *endless) Read(p []byte) (int, error) {
	if e.start != "" {
		n := copy(p, e.start)
		e.start = e.start[n:]
		return n, nil
	}
	n := 0
	for n < len(p) {
		n += copy(p[n:], e.then)
	}
	return n, nil
}

// Not parallel: it looks at the memory of the whole process.
func TestAFileOfOneEndlessRowNeedsLittleMemory(t *testing.T) {
	db, pool := stocked(t, 0)
	for _, tc := range []struct {
		name string
		file io.Reader
		csv  bool
		says string
	}{
		{"one line", &endless{"A\n", "x"}, false, "row 2 is longer than 64 KiB"},
		{"one line of UTF-16", &endless{"\xff\xfeA\x00\n\x00", "x\x00"}, false, "row 2 is longer than 64 KiB"},
		{"one record", &endless{"key\nA\n", "x,"}, true, "row 3 is longer than 256 KiB"},
		{"one quote", &endless{"key\nA\n\"", "x\n"}, true, "row 3 is longer than 256 KiB"},
		{"a header", &endless{"", "x"}, true, "row 1 is longer than 256 KiB"},
	} {
		imp := Import{Pool: pool, File: tc.file, FileName: "keys.txt"}
		if tc.csv {
			imp.Format = FormatCSV
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := load(t.Context(), db, imp)
		runtime.ReadMemStats(&after)
		if !errors.Is(err, ErrBadRow) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", tc.name, err)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 32<<20 {
			t.Errorf("%s: %d KiB allocated", tc.name, used>>10)
		}
	}
}

func TestDuplicatesCanBeRefused(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 2)
	before := image(t, db)
	imp := file(pool, "A\nKEY-2\nA\nB\n")
	imp.Duplicates = RefuseDuplicates
	report, err := load(t.Context(), db, imp)
	if !errors.Is(err, ErrDuplicates) || !strings.Contains(err.Error(), "2 rows, of which the first are 2, 3") {
		t.Errorf("%+v, %v", report, err)
	}
	if diff := cmp.Diff(before, image(t, db)); diff != "" {
		t.Errorf("something changed:\n%s", diff)
	}
	imp = file(pool, "A\nB\n")
	imp.Duplicates = RefuseDuplicates
	if report, err := load(t.Context(), db, imp); err != nil || report.New != 2 {
		t.Errorf("without duplicates: %+v, %v", report, err)
	}
}

func TestOtherPoolsCountOnlyIfAsked(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 3)
	other := makePool(t, db, "other")
	imp := file(other, "KEY-1\nX\nKEY-3\n")
	imp.DryRun = true
	if report, err := load(t.Context(), db, imp); err != nil || report.New != 3 {
		t.Errorf("not asked: %+v, %v", report, err)
	}
	imp = file(other, "KEY-1\nX\nKEY-3\n")
	imp.AcrossPools = true
	report, err := load(t.Context(), db, imp)
	want := Report{Batch: report.Batch, Rows: 3, New: 1, DuplicateElsewhere: 2, Duplicates: []Duplicate{{Row: 1, SKU: pool.SKU}, {Row: 3, SKU: pool.SKU}}}
	if diff := cmp.Diff(want, report); diff != "" || err != nil {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
}

func FuzzCSVRows(f *testing.F) {
	f.Add("key,n\r\n\"A\n,\"\"\",1\n\n B ,2", "", false)
	f.Add("\xff\xfek\x00e\x00y\x00\n\x00A\x00", "key", true)
	f.Fuzz(func(t *testing.T, text, column string, noHeader bool) {
		rows := newFileRows(Import{File: strings.NewReader(text), Format: FormatCSV, Column: column, NoHeader: noHeader})
		var keys, last int64
		for {
			key, err := rows.next()
			if err != nil {
				return
			}
			if key == nil {
				break
			}
			keys++
			if len(key) == 0 || len(key) > MaxKeySize || strings.ContainsRune(string(key), 0) || rows.row <= last {
				t.Fatalf("key %q in row %d after %d", key, rows.row, last)
			}
			last = rows.row
		}
		if keys+rows.report.Blank != rows.report.Rows {
			t.Fatalf("%d keys of %+v", keys, rows.report)
		}
	})
}
