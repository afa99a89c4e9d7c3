// Package letter writes the mail that brings a buyer their keys: a subject, a text and an HTML form, in the buyer's
// language, from templates that a merchant can replace.
//
//	Content ──▶ <language>.txt  (text/template; defines "subject" too) ──▶ Letter
//	            <language>.html (html/template)
//
// English and German are built in. A merchant's own files have the same names, and files of further languages come in
// pairs. They are tried on samples when they are loaded, so that a mistake in one is found before a buyer waits for it.
package letter

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	htmltemplate "html/template"
	"io/fs"
	"path"
	"regexp"
	"strings"
	texttemplate "text/template"
	"unicode"
	"unicode/utf8"
)

// Content is what templates are executed with.
type Content struct {
	Shop     string    // the sender's name; may be empty
	Order    string    // the order's id
	Products []Product // what there are keys for
	Count    int       // of all keys
	Waiting  int       // units that get their keys later
	Link     string    // to the buyer's page; empty if there is none
	Attached bool      // the keys are in an attached file, and Products have none
}

// A Product is keys with the name of what they are for.
type Product struct {
	Name, SKU string
	Count     int
	Keys      []string // empty if Attached
}

// A Letter is written.
type Letter struct {
	Language            string // of the template: en, de, pt-BR
	Subject, Text, HTML string
}

// Shown reports whether a key can be shown as it is, on one line. One that cannot belongs in a file.
func Shown(key string) bool {
	return utf8.ValidString(key) && !strings.ContainsFunc(key, unicode.IsControl)
}

// Name makes a product's name fit for a line.
func Name(name string) string {
	name = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(name, "\uFFFD"))
	return strings.Join(strings.Fields(name), " ")
}

//go:embed templates
var builtIn embed.FS

// A Set has the templates of every language.
type Set struct{ languages map[string]*pair }

type pair struct {
	text *texttemplate.Template
	html *htmltemplate.Template
}

const (
	fallback = "en"
	subject  = "subject" // the template within <language>.txt
)

var fileForm = regexp.MustCompile(`^([a-z]{2,3}(?:-[A-Za-z0-9]{2,8})*)\.(txt|html)$`)

// Load reads the built-in templates and then the merchant's, which may be nil. Its errors name file and line.
func Load(own fs.FS) (*Set, error) {
	set := &Set{languages: make(map[string]*pair)}
	shipped, err := fs.Sub(builtIn, "templates")
	if err != nil {
		return nil, err
	}
	if _, err := set.read(shipped); err != nil {
		return nil, err
	}
	if own != nil {
		n, err := set.read(own)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return nil, errors.New("the directory of mail templates holds none: they are called en.txt and en.html, de.txt and de.html, …")
		}
	}
	var problems []error
	for language, p := range set.languages {
		problems = append(problems, p.check(language))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, fmt.Errorf("mail templates: %w", err)
	}
	return set, nil
}

func (s *Set) read(files fs.FS) (int, error) {
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		return 0, fmt.Errorf("read the mail templates: %w", err)
	}
	read := 0
	for _, e := range entries {
		parts := fileForm.FindStringSubmatch(e.Name())
		switch kind := path.Ext(e.Name()); {
		case e.IsDir() || kind != ".txt" && kind != ".html":
			continue
		case parts == nil:
			return read, fmt.Errorf("mail templates: %s is not named after a language, as en.txt or pt-BR.html are", e.Name())
		}
		text, err := fs.ReadFile(files, e.Name())
		if err != nil {
			return read, fmt.Errorf("read the mail templates: %w", err)
		}
		language := strings.ToLower(parts[1])
		if s.languages[language] == nil {
			s.languages[language] = new(pair)
		}
		if err := s.languages[language].parse(e.Name(), string(text)); err != nil {
			return read, fmt.Errorf("mail templates: %w", err)
		}
		read++
	}
	return read, nil
}

func (p *pair) parse(name, text string) (err error) {
	if strings.HasSuffix(name, ".txt") {
		p.text, err = texttemplate.New(name).Option("missingkey=error").Parse(text)
		return err
	}
	p.html, err = htmltemplate.New(name).Option("missingkey=error").Parse(text)
	return err
}

// Write writes a letter in the language of a locale: pt-BR, else pt, else English.
func (s *Set) Write(locale string, c Content) (Letter, error) {
	language := s.language(locale)
	l, err := s.languages[language].write(c)
	l.Language = language
	return l, err
}

func (s *Set) language(locale string) string {
	locale = strings.ToLower(strings.ReplaceAll(locale, "_", "-"))
	for locale != "" {
		if s.languages[locale] != nil {
			return locale
		}
		end := strings.LastIndexByte(locale, '-')
		locale = locale[:max(end, 0)]
	}
	return fallback
}

func (p *pair) write(c Content) (Letter, error) {
	var head, text, html bytes.Buffer
	err := p.text.ExecuteTemplate(&head, subject, c)
	if err == nil {
		err = p.text.Execute(&text, c)
	}
	if err == nil {
		err = p.html.Execute(&html, c)
	}
	if err != nil {
		return Letter{}, fmt.Errorf("write the mail: %w", err)
	}
	return Letter{Subject: strings.Join(strings.Fields(head.String()), " "), Text: text.String(), HTML: html.String()}, nil
}
