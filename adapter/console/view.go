package console

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/keytill/keytill/adapter/access"
	"github.com/keytill/keytill/fulfillment"
)

// A visit is one request of somebody who is logged in.
type visit struct {
	console *Console
	w       http.ResponseWriter
	r       *http.Request
	ctx     context.Context
	who     access.Token
}

// person is who asks, for the audit, with the reason that the form gave.
func (v *visit) person() fulfillment.Person {
	return fulfillment.Person{Name: v.who.Name, Reason: strings.TrimSpace(v.r.PostFormValue("reason"))}
}

// show answers with a page.
func (v *visit) show(status int, name, title, section string, page any) error {
	v.console.render(v.w, v.r, status, name, view{Title: title, Section: section, Who: v.who, Notice: notices[v.r.URL.Query().Get("done")], Page: page})
	return nil
}

// goTo ends an act with the page that shows what came of it.
func (v *visit) goTo(target string) error {
	redirect(v.w, v.r, target)
	return nil
}

// notices are what a page says after an act, by the word that its address carries: never by a text that anybody could put
// into a link.
var notices = map[string]string{
	"resend":     "On its way: the keys were handed to the mail queue.",
	"replace":    "Replaced. The old key is never sold again; the buyer is mailed the new one.",
	"waits":      "The old key was taken back. The shelf is empty, so the unit waits for stock.",
	"revoke":     "Revoked. No payment gives this key back.",
	"retry":      "Tried again. The order below is how it stands now.",
	"settle":     "Read from Stripe just now. The order below is how it stands.",
	"attribute":  "Noted, and settled. The order below is how it stands now.",
	"attributed": "Noted. Stripe could not be read just now, so the order follows within minutes.",
	"imported":   "Imported. The keys are on the shelf, and whoever waited got theirs first.",
	"discarded":  "Discarded. Nothing was imported.",
	"again":      "On its way: the notice is sent to the storefront again.",
	"created":    "Made. Map a price to it, and import its keys.",
	"changed":    "Changed. The rules below hold from now on.",
	"batch":      "Done. The batch below is how it stands now.",
	"sweep":      "A sweep is queued. Its report appears here when it has ended.",
	"map":        "Mapped. Orders that waited for this are being settled.",
}

// A view is what a template is filled with.
type view struct {
	Title   string
	Section string       // of the navigation
	Who     access.Token // nobody's unless logged in
	Notice  string
	Page    any

	Now     time.Time
	Style   string // addresses of the style sheet and the script
	Script  string
	Support bool
	Admin   bool
}

// views are the templates by name, each together with the layout, for each path that the console is mounted below: links
// begin with it.
type views struct {
	now func() time.Time

	mu     sync.Mutex
	byBase map[string]map[string]*template.Template
}

// maxBases bounds what is kept: a storefront may mount the console below a path with parameters.
const maxBases = 32

func newViews(now func() time.Time) (*views, error) {
	v := &views{now: now, byBase: make(map[string]map[string]*template.Template)}
	_, err := v.below("")
	return v, err
}

// below returns the templates for a console that is mounted below a path.
func (v *views) below(base string) (map[string]*template.Template, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if parsed := v.byBase[base]; parsed != nil {
		return parsed, nil
	}
	names, err := fs.Glob(files, "templates/*.html")
	if err != nil {
		return nil, err
	}
	parsed := make(map[string]*template.Template)
	for _, name := range names {
		word := strings.TrimSuffix(path.Base(name), ".html")
		if word == "layout" || word == "parts" {
			continue
		}
		parsed[word], err = template.New("layout.html").Funcs(words(v.now, base)).ParseFS(files, "templates/layout.html", "templates/parts.html", name)
		if err != nil {
			return nil, fmt.Errorf("console: read the templates: %w", err)
		}
	}
	if len(v.byBase) >= maxBases {
		clear(v.byBase)
	}
	v.byBase[base] = parsed
	return parsed, nil
}

// render writes a page whole, or not at all: half of one with status 200 would be believed.
func (c *Console) render(w http.ResponseWriter, r *http.Request, status int, name string, v view) {
	v.Now, v.Style, v.Script = c.Now(), c.static["console.css"].url, c.static["console.js"].url
	v.Support, v.Admin = v.Who.Role.May(access.Support), v.Who.Role.May(access.Admin)
	var page bytes.Buffer
	templates, err := c.views.below(baseOf(r.Context()))
	if err == nil {
		err = templates[name].Execute(&page, v)
	}
	if err != nil {
		c.Logger.ErrorContext(r.Context(), "a page of the console could not be made", "page", name, "error", err)
		http.Error(w, internalProblem, http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(page.Bytes()) // who has gone needs no answer
	}
}

// A file is one that pages load. Its address has its hash, so that it can be kept for ever.
type file struct {
	url, kind string
	text      []byte
}

func readStatic() (map[string]file, error) {
	entries, err := fs.ReadDir(files, "static")
	if err != nil {
		return nil, err
	}
	static := make(map[string]file, len(entries))
	for _, e := range entries {
		text, err := files.ReadFile("static/" + e.Name())
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(text)
		static[e.Name()] = file{url: Path + "/static/" + e.Name() + "?v=" + hex.EncodeToString(sum[:6]),
			kind: mime.TypeByExtension(path.Ext(e.Name())), text: text}
	}
	return static, nil
}

func (c *Console) serveStatic(w http.ResponseWriter, r *http.Request) {
	f, ok := c.static[r.PathValue("file")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", f.kind)
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	_, _ = w.Write(f.text)
}
