package letter

import (
	"encoding/csv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func load(t *testing.T, files map[string]string) (*Set, error) {
	t.Helper()
	if files == nil {
		return Load(nil)
	}
	own := make(fstest.MapFS)
	for name, text := range files {
		own[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return Load(own)
}

func TestTheBuyersLanguage(t *testing.T) {
	t.Parallel()
	set, err := load(t, map[string]string{
		"pt-BR.txt":  `{{define "subject"}}Chaves{{end}}{{range .Products}}{{range .Keys}}{{.}} {{end}}{{end}}`,
		"pt-BR.html": `{{range .Products}}{{range .Keys}}{{.}} {{end}}{{end}}`,
	})
	if err != nil {
		t.Fatal(err)
	}
	for locale, want := range map[string]string{"de": "de", "de-AT": "de", "DE_ch": "de", "en-GB": "en", "": "en", "auto": "en", "fr": "en",
		"pt-BR": "pt-br", "pt": "en", "../de": "en"} {
		l, err := set.Write(locale, samples[0])
		if err != nil || l.Language != want {
			t.Errorf("%q is written in %s, want %s; %v", locale, l.Language, want, err)
		}
	}
}

// Names and keys are text, whatever is in them.
func TestNothingInjects(t *testing.T) {
	t.Parallel()
	set, err := load(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	const bad = `<script>alert(1)</script>{{.Order}}&amp;`
	l, err := set.Write("en", Content{Shop: bad, Order: bad, Count: 1, Products: []Product{{Name: Name("a\r\nBcc: x@example.com\n" + bad), Count: 1, Keys: []string{bad}}}})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(l.HTML, "<script>") || !strings.Contains(l.HTML, "{{.Order}}&amp;amp;") {
		t.Errorf("the HTML is\n%s", l.HTML)
	}
	if strings.ContainsAny(l.Subject, "\r\n") || !strings.Contains(l.Text, bad) || strings.Contains(l.Text, "\nBcc") {
		t.Errorf("the text is\n%s\n%s", l.Subject, l.Text)
	}
}

func TestANameIsOneLine(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"a\r\nb": "a b", "a\u2028b\u2029c\u0085d": "a b c d", " \x00 a \x1b[31m": "a [31m", "a\u202eb": "a b"} {
		if got := Name(name); got != want {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
	}
}

func TestTemplatesAreTriedWhenLoaded(t *testing.T) {
	t.Parallel()
	const good = `{{define "subject"}}Keys{{end}}{{range .Products}}{{range .Keys}}{{.}} {{end}}{{end}}`
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"a mistake in the syntax":      {map[string]string{"en.txt": good + "\n\n{{if}}"}, "en.txt:3"},
		"a field that there is not":    {map[string]string{"de.html": "<p>\n{{.Product}}</p>"}, "de.html:2"},
		"HTML that cannot be escaped":  {map[string]string{"en.html": "<p>\n<a href='{{if .Link}}'{{end}}>"}, "en.html"},
		"a template without the keys":  {map[string]string{"en.html": "<p>Thank you</p>"}, "en.html: not every key"},
		"a subject that is empty":      {map[string]string{"en.txt": strings.Replace(good, "Keys{{end}}", "{{end}}", 1)}, "en.txt: the subject is empty"},
		"no subject":                   {map[string]string{"en.txt": "{{range .Products}}{{range .Keys}}{{.}}{{end}}{{end}}"}, "en.txt: it has no {{define"},
		"a language with one file":     {map[string]string{"fr.txt": good}, "no fr.html"},
		"a file that is no language's": {map[string]string{"mail.html": good}, "mail.html is not named after a language"},
		"nothing":                      {map[string]string{"readme.md": ""}, "holds none"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := load(t, c.files); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

func TestKeysThatCannotBeShown(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]bool{"ABCD-1234": true, "schlüssel ✓": true, "a\nb": false, "a\tb": false, "\xff": false} {
		if Shown(key) != want {
			t.Errorf("%q: %v", key, !want)
		}
	}
}

// No cell becomes a formula or another number, and each key can be read back.
func TestCSVIsNoFormula(t *testing.T) {
	t.Parallel()
	keys := []string{"ABCD-1234", "=1+1", "+49", "-1", "@SUM(A1)", "  =1", "0012", "1e10", "'quoted", "a,\"b\"", "two\nlines", "\t=1", "|cmd"}
	rows := make([]Row, len(keys))
	for i, k := range keys {
		rows[i] = Row{Name: "=Game", SKU: "game", Key: k}
	}
	text := CSV(rows)
	read, err := csv.NewReader(strings.NewReader(strings.TrimPrefix(string(text), "\uFEFF"))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range read[1:] {
		if strings.ContainsRune("=+-@\t", rune(r[2][0])) || r[0] != "'=Game" {
			t.Errorf("a cell is a formula: %q", r)
		}
		key := r[2]
		if r[3] != "" {
			key = key[1:]
		}
		got = append(got, key)
	}
	if diff := cmp.Diff(keys, got); diff != "" {
		t.Errorf("the keys read back (-want +got):\n%s", diff)
	}
}
