package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// show prints a result: as JSON where that is asked for, else as text.
func (c *command) show(value any, text func(w io.Writer)) error {
	if c.settings.json {
		encoder := json.NewEncoder(c.Stdout)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		return encoder.Encode(value)
	}
	text(c.Stdout)
	return nil
}

// table prints rows below a head, in columns.
func table(w io.Writer, head string, rows func(row func(format string, args ...any))) {
	columns := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(columns, head)
	rows(func(format string, args ...any) { fmt.Fprintf(columns, format+"\n", args...) })
	_ = columns.Flush()
}

// plural is "1 key" or "2 keys".
func plural[N int | int64](n N, one string) string {
	if n == 1 {
		return fmt.Sprintf("1 %s", one)
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// day prints a time to the minute, in UTC, as all of keytill does.
func day(t time.Time) string { return t.UTC().Format("2006-01-02 15:04") }

// dash stands for nothing in a table.
func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
