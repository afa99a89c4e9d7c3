package letter

import (
	"bytes"
	"encoding/csv"
	"strconv"
	"strings"
)

// A Row is a key in a file of keys.
type Row struct{ Name, SKU, Key string }

// guardNote says what the note of a guarded key says.
const guardNote = "the ' before the key keeps spreadsheets from changing it and is not part of it"

// CSV writes keys as a file: product, sku, key, note; UTF-8 with a mark, without which spreadsheets take it for another
// encoding, and CRLF (RFC 4180).
//
// A spreadsheet runs a cell that begins with = + - or @ as a formula, and rewrites one that looks like a number: 0012
// becomes 12. So a ' is put before such a key, as OWASP says to, and the note beside it says that the ' is not part of
// the key; all other keys stand as they are.
func CSV(rows []Row) []byte {
	var b bytes.Buffer
	b.WriteString("\uFEFF")
	w := csv.NewWriter(&b)
	w.UseCRLF = true
	_ = w.Write([]string{"product", "sku", "key", "note"}) // a buffer takes everything
	for _, r := range rows {
		key, note := r.Key, ""
		if risky(key) {
			key, note = "'"+key, guardNote
		}
		_ = w.Write([]string{guard(r.Name), guard(r.SKU), key, note})
	}
	w.Flush()
	return b.Bytes()
}

func guard(text string) string {
	if risky(text) {
		return "'" + text
	}
	return text
}

// risky reports whether a spreadsheet makes something else of a cell.
func risky(cell string) bool {
	if strings.HasPrefix(strings.TrimLeft(cell, " "), "'") {
		return true // so that a guarded one can be told from one that begins so
	}
	trimmed := strings.TrimLeft(cell, " \t\r\n\u00a0\ufeff")
	if trimmed != "" && strings.ContainsRune("=+-@|%", []rune(trimmed)[0]) || strings.HasPrefix(cell, "\t") || strings.HasPrefix(cell, "\r") {
		return true
	}
	_, err := strconv.ParseFloat(trimmed, 64)
	return err == nil
}
