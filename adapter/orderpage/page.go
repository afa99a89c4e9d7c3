// Package orderpage is the page on which a buyer sees their order and, after a click, its keys.
//
//	GET  /orders/{link}   what was bought, what is there, what is still waited for; no key
//	POST /orders/{link}   the same with the keys, which are then marked as revealed; format=csv is a file of them
//
// The click keeps keys from programs that only follow links: mail scanners, previews, prefetching. A link that is wrong,
// has ended, or is of no order is answered in one way, after one look into the database each, so that nothing is learned
// from asking. The pages are in no index, cache, history of referrers or frame, and run no script but their own.
package orderpage

import (
	"context"
	"crypto/rand"
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"time"

	"github.com/keytill/keytill/adapter/letter"
	"github.com/keytill/keytill/adapter/limit"
	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/inventory"
)

// Orders reads a buyer's order.
type Orders interface {
	ForBuyer(ctx context.Context, merchant, order string, serial int, reveal bool) (fulfillment.Order, []inventory.Owned, error)
}

// Config is what a Handler needs.
type Config struct {
	Orders Orders
	Links  *Links
	Shop   string // the shop's name; may be empty
	Now    func() time.Time
	Logger *slog.Logger
}

// Handler answers requests for buyers' pages.
type Handler struct {
	Config
	byClient, byLink *limit.Limiter
}

// Tries a minute: a buyer reloads a few times, and an office is behind one address.
const (
	perClient = 60
	perLink   = 30
)

// New makes a Handler.
func New(c Config) *Handler {
	return &Handler{Config: c, byClient: limit.New(perClient, c.Now), byLink: limit.New(perLink, c.Now)}
}

//go:embed page.html
var files embed.FS

var page = template.Must(template.ParseFS(files, "page.html"))

const maxForm = 1 << 10

// Serve answers a GET or POST of the page behind a link.
func (h *Handler) Serve(w http.ResponseWriter, r *http.Request, link string) {
	secure(w.Header())
	if !h.byClient.Allow(limit.Client(r)) || !h.byLink.Allow(link) {
		w.Header().Set("Retry-After", "60")
		h.show(w, r, http.StatusTooManyRequests, view{Words: wordsOf("", r), Problem: problemBusy})
		return
	}
	ref, ok := h.Links.read(link)
	if !ok {
		ref = Ref{} // which no order has: the look takes as long as one for an order that is there
	}
	order, keys, err := h.Orders.ForBuyer(r.Context(), ref.Merchant, ref.Order, ref.Serial, r.Method == http.MethodPost)
	switch {
	case errors.Is(err, fulfillment.ErrNoOrder):
		h.show(w, r, http.StatusNotFound, view{Words: wordsOf("", r), Problem: problemLink})
		return
	case err != nil:
		h.Logger.ErrorContext(r.Context(), "a buyer's page could not be made", "error", err)
		h.show(w, r, http.StatusServiceUnavailable, view{Words: wordsOf("", r), Problem: problemBusy})
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if r.Method == http.MethodPost && r.PostFormValue("format") == "csv" {
		sendFile(w, keys)
		return
	}
	v := makeView(order, keys, h.Now())
	v.Words, v.Shown = wordsOf(order.Locale, r), r.Method == http.MethodPost
	h.show(w, r, http.StatusOK, v)
}

func secure(header http.Header) {
	header.Set("Cache-Control", "no-store")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("X-Robots-Tag", "noindex, nofollow, noarchive")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
}

func (h *Handler) show(w http.ResponseWriter, r *http.Request, status int, v view) {
	var nonce [16]byte
	_, _ = rand.Read(nonce[:]) // never fails, says its documentation
	v.Nonce, v.Shop = base64.RawURLEncoding.EncodeToString(nonce[:]), h.Shop
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", fmt.Sprintf("default-src 'none'; style-src 'nonce-%s'; script-src 'nonce-%s'; "+
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'", v.Nonce, v.Nonce))
	w.WriteHeader(status)
	if err := page.Execute(w, v); err != nil {
		h.Logger.DebugContext(r.Context(), "a buyer's page was not sent whole", "error", err)
	}
}

func sendFile(w http.ResponseWriter, keys []inventory.Owned) {
	rows := make([]letter.Row, len(keys))
	for i, k := range keys {
		rows[i] = letter.Row{Name: k.Name, SKU: k.SKU, Key: k.Text}
	}
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="keys.csv"`)
	_, _ = w.Write(letter.CSV(rows)) // who has gone needs no file
}
