package inventory

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// Format is how keys lie in a file.
type Format string

const (
	FormatLines Format = "lines" // one key a line, whatever the line holds
	FormatCSV   Format = "csv"   // one key a record, in one column of it
)

// format is what the import says, or what its file's name and its other settings mean.
func (imp Import) format() Format {
	switch {
	case imp.Format != "":
		return imp.Format
	case imp.Column != "" || imp.UseByColumn != "" || imp.NoHeader || strings.HasSuffix(strings.ToLower(imp.FileName), ".csv"):
		return FormatCSV
	default:
		return FormatLines
	}
}

// A RowError says which row of a file cannot be imported, and why, without the row's text. It is an ErrBadRow.
type RowError struct {
	Row    int64 // the line of the file that it begins on, from 1
	Reason string
}

// Error names the row.
func (e *RowError) Error() string { return fmt.Sprintf("%v: row %d %s", ErrBadRow, e.Row, e.Reason) }

// Unwrap is ErrBadRow.
func (e *RowError) Unwrap() error { return ErrBadRow }

func badRow(row int64, format string, args ...any) error {
	return &RowError{Row: row, Reason: fmt.Sprintf(format, args...)}
}

// A record is what a file holds in one row: the key's cell, and the last day of use where the file has one. Its bytes are
// valid until the next record.
type record struct {
	row   int64
	cell  []byte
	useBy string
}

// records reads a file in one of the formats. It counts blank rows into the report itself where it passes over them.
type records interface {
	// read returns io.EOF after the last record.
	read(report *Report) (record, error)
}

// fileRows reads the keys of a file.
type fileRows struct {
	records records
	hash    hash.Hash
	bytes   counted
	report  Report
	done    bool

	row   int64 // of the key that next returned last
	useBy *time.Time
}

func newFileRows(imp Import) *fileRows {
	f := &fileRows{hash: sha256.New()}
	text := decoded(io.TeeReader(imp.File, io.MultiWriter(f.hash, &f.bytes)))
	if imp.format() == FormatCSV {
		f.records = newCSVRecords(text, imp)
	} else {
		f.records = newLineRecords(text)
	}
	return f
}

// next is the next key's text, valid until the following call; nil at the end. Blank rows are counted and passed over.
func (f *fileRows) next() ([]byte, error) {
	for {
		rec, err := f.records.read(&f.report)
		if errors.Is(err, io.EOF) {
			f.done = true
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		f.report.Rows++
		f.row = rec.row
		text := bytes.Trim(rec.cell, " ")
		if len(text) == 0 {
			f.report.Blank++
			continue
		}
		if len(text) < len(rec.cell) {
			f.report.Trimmed++
		}
		if err := checkText(rec.row, text); err != nil {
			return nil, err
		}
		f.useBy, err = parseUseBy(rec)
		return text, err
	}
}

func checkText(row int64, text []byte) error {
	switch {
	case len(text) > MaxKeySize:
		return badRow(row, "has %d bytes; a key has at most %d", len(text), MaxKeySize)
	case !utf8.Valid(text):
		return badRow(row, "is not UTF-8; convert the file to UTF-8")
	case bytes.IndexByte(text, 0) >= 0:
		return badRow(row, "holds a NUL byte; UTF-16 is read if the file begins with its byte-order mark")
	case bytes.IndexByte(text, '\r') >= 0:
		return badRow(row, "holds a carriage return within the key; end lines with LF or CRLF")
	}
	return nil
}

func parseUseBy(rec record) (*time.Time, error) {
	day := strings.Trim(rec.useBy, " ")
	if day == "" {
		return nil, nil
	}
	useBy, err := time.Parse(time.DateOnly, day)
	if err != nil {
		return nil, badRow(rec.row, "has no date like 2027-12-31 as its last day of use")
	}
	return &useBy, nil
}

func (f *fileRows) sum() []byte { return f.hash.Sum(nil) }

// counted counts the bytes written to it.
type counted int64

// Write counts.
func (c *counted) Write(p []byte) (int, error) {
	*c += counted(len(p))
	return len(p), nil
}

// lineRecords is a file of one key a line.
type lineRecords struct {
	lines *bufio.Scanner
	row   int64
}

// maxLine has room for the longest key and spaces around it; anything longer is refused with its row.
const maxLine = 64 << 10

func newLineRecords(text io.Reader) *lineRecords {
	lines := bufio.NewScanner(text)
	lines.Buffer(make([]byte, 0, maxLine), maxLine)
	return &lineRecords{lines: lines}
}

func (l *lineRecords) read(*Report) (record, error) {
	if !l.lines.Scan() {
		return record{}, l.end()
	}
	l.row++
	return record{row: l.row, cell: bytes.TrimSuffix(l.lines.Bytes(), []byte("\r"))}, nil
}

func (l *lineRecords) end() error {
	err := l.lines.Err()
	switch {
	case errors.Is(err, bufio.ErrTooLong):
		return badRow(l.row+1, "is longer than 64 KiB; a key has at most %d bytes", MaxKeySize)
	case err != nil:
		return fmt.Errorf("read the file after row %d: %w", l.row, err)
	}
	return io.EOF
}
