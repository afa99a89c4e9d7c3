package adapter

import (
	"context"
	"net/http"
	netmail "net/mail"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/keytill/keytill/adapter/access"
	"github.com/keytill/keytill/adapter/letter"
	"github.com/keytill/keytill/adapter/licence"
	"github.com/keytill/keytill/adapter/limit"
	"github.com/keytill/keytill/adapter/orderpage"
	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/internal/logs"
	"github.com/keytill/keytill/inventory"
)

// linkLasts is how long a link to a buyer's page lasts; support sends a new one with the keys.
const linkLasts = 90 * 24 * time.Hour

// NewLinks makes the links to buyers' pages below a public URL.
func NewLinks(publicURL string, keyset *inventory.Keyset, now func() time.Time) (*orderpage.Links, error) {
	secrets, err := keyset.Derive("links to buyers' pages")
	if err != nil {
		return nil, err
	}
	return orderpage.NewLinks(publicURL, secrets, linkLasts, now)
}

func (s *Shop) makeLinks() (err error) {
	if s.config.PublicURL != "" {
		s.links, err = NewLinks(s.config.PublicURL, s.config.Keyset, s.config.Now)
	}
	return err
}

// link is the link in a mail; none without a public URL.
func (s *Shop) link(m fulfillment.Message) string {
	if s.links == nil {
		return ""
	}
	return s.links.URL(orderpage.Ref{Merchant: m.Merchant, Order: m.Order.ID, Serial: m.Order.LinkSerial}, m.At)
}

func (s *Shop) mountPages(router chi.Router) {
	if s.links == nil {
		return
	}
	shop := ""
	if from, err := netmail.ParseAddress(s.config.Mail.From); err == nil {
		shop = letter.Name(from.Name)
	}
	pages := orderpage.New(orderpage.Config{Orders: s.service, Links: s.links, Shop: shop, Now: s.config.Now, Logger: s.config.Logger})
	serve := logs.Requests(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { pages.Serve(w, r, chi.URLParam(r, "link")) }))
	router.Method(http.MethodGet, orderpage.Path+"{link}", serve)
	router.Method(http.MethodPost, orderpage.Path+"{link}", serve)
}

func (s *Shop) mountLicence(router chi.Router) {
	if s.config.Tokens == nil {
		return
	}
	keys := &licence.Handler{Keys: licenceKeys{s}, Limit: limit.New(licence.PerMinute, s.config.Now), Logger: s.config.Logger}
	verify := logs.Requests(s.config.Tokens.Require(access.Verify, http.HandlerFunc(keys.Verify)))
	router.Method(http.MethodGet, "/v1/keys/verify", verify)
	router.Method(http.MethodPost, "/v1/keys/verify", verify)
	router.Method(http.MethodGet, "/v1/keys/changes", logs.Requests(s.config.Tokens.Require(access.Verify, http.HandlerFunc(keys.Changes))))
}

// licenceKeys reads what licence servers ask for.
type licenceKeys struct{ *Shop }

// Verify says whether a key may be used.
func (k licenceKeys) Verify(ctx context.Context, merchant, text, sku string) (inventory.Verified, error) {
	return k.config.Keyset.Verify(ctx, k.config.Pool, merchant, text, sku)
}

// Changes lists what became of sold keys.
func (k licenceKeys) Changes(ctx context.Context, merchant, after string, most int) ([]inventory.KeyChange, string, error) {
	return inventory.Changes(ctx, k.config.Pool, merchant, after, most)
}
