package inventory

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ErrNoColumn says that a file has no column of the name or number that is wanted, or nothing says which one holds the keys.
var ErrNoColumn = errors.New("no column")

// keyNames are headers that mean the keys' column, in lower case, with spaces for dashes and underscores.
var keyNames = []string{"key", "keys", "code", "codes", "license", "licence", "license key", "licence key", "license code",
	"licence code", "serial", "serials", "serial number", "serial key", "voucher", "voucher code", "pin", "pin code",
	"activation key", "activation code", "product key", "product code", "gift code", "gift card", "game key", "cd key", "steam key"}

const defaultSeparator = ','

// maxRecord bounds a record, all its columns together. A quote that is never closed ends here and not with the file.
const maxRecord = 256 << 10

// csvRecords is a file of comma-separated values. Its rows are numbered by the lines that they begin on.
type csvRecords struct {
	imp     Import
	in      *csv.Reader
	budget  *budget
	columns *csvColumns // nil before the header is read
	ended   int64       // the line that the last record ended on
	cell    []byte
}

type csvColumns struct {
	header []string // nil without one
	count  int
	key    int
	useBy  int // -1: none
}

func newCSVRecords(text io.Reader, imp Import) *csvRecords {
	c := &csvRecords{imp: imp, budget: &budget{in: text}}
	c.in = csv.NewReader(c.budget)
	c.in.Comma = defaultSeparator
	if imp.Separator != 0 {
		c.in.Comma = imp.Separator
	}
	c.in.FieldsPerRecord = -1 // checked here, with words of our own
	c.in.ReuseRecord = true
	return c
}

func (c *csvRecords) read(report *Report) (record, error) {
	row, fields, err := c.fields(report)
	if err != nil {
		return record{}, err
	}
	if c.columns == nil {
		if err := c.findColumns(fields); err != nil {
			return record{}, err
		}
		if !c.imp.NoHeader {
			return c.read(report)
		}
	}
	return c.pick(row, fields)
}

// fields reads a record, and counts the blank lines before it.
func (c *csvRecords) fields(report *Report) (row int64, fields []string, err error) {
	c.budget.allow(c.in.InputOffset(), maxRecord)
	fields, err = c.in.Read()
	var syntax *csv.ParseError
	switch {
	case errors.Is(err, io.EOF):
		c.blank(report, c.budget.lines()-c.ended)
		return 0, nil, io.EOF
	case errors.As(err, &syntax):
		return 0, nil, badRow(int64(syntax.StartLine), "%s", quoteProblem(syntax))
	case errors.Is(err, errRecordTooLong):
		return 0, nil, badRow(c.ended+1, "is longer than 256 KiB; is a quote (\") never closed?")
	case err != nil:
		return 0, nil, fmt.Errorf("read the file after row %d: %w", c.ended, err)
	}
	line, _ := c.in.FieldPos(0)
	row = int64(line)
	c.blank(report, row-c.ended-1)
	c.ended = row
	for _, field := range fields {
		c.ended += int64(strings.Count(field, "\n"))
		if !utf8.ValidString(field) {
			return 0, nil, badRow(row, "is not UTF-8; convert the file to UTF-8")
		}
	}
	return row, fields, nil
}

func (c *csvRecords) blank(report *Report, lines int64) {
	report.Rows += max(lines, 0)
	report.Blank += max(lines, 0)
}

func quoteProblem(err *csv.ParseError) string {
	if errors.Is(err, csv.ErrBareQuote) {
		return "has a quote (\") within a field that does not begin with one; write the field in quotes, and that quote twice"
	}
	return "has a quote (\") that is not closed, or is followed by something else than a separator"
}

// pick takes a record's cells. A key with a separator in it and no quotes around would lose its end, so a row with more
// fields than it may have is refused.
func (c *csvRecords) pick(row int64, fields []string) (record, error) {
	if n := len(fields); n > c.columns.count && slices.ContainsFunc(fields[c.columns.count:], func(f string) bool { return f != "" }) {
		return record{}, badRow(row, "has %d fields, and the first row %d; a field with a separator in it must stand in quotes", n, c.columns.count)
	}
	if c.columns.key >= len(fields) || c.columns.useBy >= len(fields) {
		return record{}, badRow(row, "has only %d of %d fields", len(fields), c.columns.count)
	}
	c.cell = append(c.cell[:0], fields[c.columns.key]...)
	rec := record{row: row, cell: c.cell}
	if c.columns.useBy >= 0 {
		rec.useBy = fields[c.columns.useBy]
	}
	return rec, nil
}

// findColumns looks at the first row. Nothing here is guessed: one well-known name, or what the import says.
func (c *csvRecords) findColumns(fields []string) error {
	columns := &csvColumns{count: len(fields), useBy: -1}
	if !c.imp.NoHeader {
		columns.header = slices.Clone(fields)
		if hint := c.otherSeparator(fields); hint != "" {
			return fmt.Errorf("%w: %w to be found: the header is one column, and would be %s", ErrBadRow, ErrNoColumn, hint)
		}
	}
	var err error
	if c.imp.Column == "" {
		columns.key, err = columns.wellKnown()
	} else {
		columns.key, err = columns.find(c.imp.Column)
	}
	if err != nil {
		return err
	}
	if c.imp.UseByColumn != "" {
		if columns.useBy, err = columns.find(c.imp.UseByColumn); err != nil {
			return err
		}
	}
	c.columns = columns
	return nil
}

// otherSeparator says which separator would make columns of a header that is one, unless somebody has said which it is.
func (c *csvRecords) otherSeparator(header []string) string {
	if len(header) != 1 || c.imp.Separator != 0 {
		return ""
	}
	for _, other := range []struct{ separator, flag string }{{";", "';'"}, {"\t", "tab"}, {"|", "'|'"}} {
		if n := strings.Count(header[0], other.separator); n > 0 {
			return fmt.Sprintf("%d with --separator %s", n+1, other.flag)
		}
	}
	return ""
}

func (c *csvColumns) wellKnown() (int, error) {
	if c.header == nil && c.count == 1 {
		return 0, nil
	}
	var found []int
	for i, name := range c.header {
		name = strings.Trim(strings.Map(spaceOut, strings.ToLower(name)), " ")
		if slices.Contains(keyNames, name) {
			found = append(found, i)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return 0, fmt.Errorf("%w: %w of a well-known name holds the keys; the file has %s: say which with --column NAME or --column N", ErrBadRow, ErrNoColumn, c)
	default:
		return 0, fmt.Errorf("%w: %w can be taken for the keys' alone, since %d have such a name; the file has %s: say which with --column", ErrBadRow, ErrNoColumn, len(found), c)
	}
}

func spaceOut(r rune) rune {
	if r == '-' || r == '_' {
		return ' '
	}
	return r
}

// find is the column of a name, else of a number from 1.
func (c *csvColumns) find(wanted string) (int, error) {
	var found []int
	for i, name := range c.header {
		if strings.EqualFold(strings.Trim(name, " "), strings.Trim(wanted, " ")) {
			found = append(found, i)
		}
	}
	if len(found) > 1 {
		return 0, fmt.Errorf("%w: columns %d and %d are both called %q: say --column %d", ErrBadRow, found[0]+1, found[1]+1, wanted, found[0]+1)
	}
	if len(found) == 1 {
		return found[0], nil
	}
	if n, err := strconv.Atoi(wanted); err == nil && n >= 1 && n <= c.count {
		return n - 1, nil
	}
	return 0, fmt.Errorf("%w: %w %q; the file has %s: name one, or its number from 1", ErrBadRow, ErrNoColumn, wanted, c)
}

const (
	maxShownName    = 40
	maxShownColumns = 20
)

// String lists the columns. In a file without a header its first row is keys, so what could be one is only numbered.
func (c *csvColumns) String() string {
	var names []string
	for i := range min(c.count, maxShownColumns) {
		name := fmt.Sprintf("column %d", i+1)
		if c.header != nil && isName(c.header[i]) {
			name = fmt.Sprintf("%q", strings.Trim(c.header[i], " "))
		}
		names = append(names, name)
	}
	if more := c.count - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

func isName(text string) bool {
	digits := 0
	for _, r := range text {
		if r >= '0' && r <= '9' {
			digits++
		}
	}
	return text != "" && len(text) <= maxShownName && digits <= 1
}

var errRecordTooLong = errors.New("the record is too long")

// A budget reads what csv.Reader asks for, which keeps a record whole in memory, and ends where the record is too long.
type budget struct {
	in   io.Reader
	read int64
	stop int64
	ends int64 // line ends so far
	last byte
}

// allow lets a record that begins at an offset have so many bytes.
func (b *budget) allow(start, most int64) { b.stop = start + most }

// Read reads up to the budget's end.
func (b *budget) Read(p []byte) (int, error) {
	if b.read >= b.stop {
		return 0, errRecordTooLong
	}
	n, err := b.in.Read(p[:min(int64(len(p)), b.stop-b.read)])
	if n > 0 {
		b.read += int64(n)
		b.ends += int64(bytes.Count(p[:n], []byte("\n")))
		b.last = p[n-1]
	}
	return n, err
}

// lines is how many lines there were, the last of which may lack its end.
func (b *budget) lines() int64 {
	if b.read > 0 && b.last != '\n' {
		return b.ends + 1
	}
	return b.ends
}
