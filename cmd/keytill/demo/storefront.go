package demo

import (
	_ "embed"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/go-chi/chi/v5"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/internal/smtptest"
	"github.com/keytill/keytill/internal/stripefake"
	"github.com/keytill/keytill/inventory"
)

//go:embed storefront.html
var storefrontPages string

// A storefront is the shop's own pages: what a buyer does at Stripe is a button here.
type storefront struct {
	*story
	pages *template.Template

	mu   sync.Mutex
	last int // the number of the last buyer
}

func newStorefront(s *story) *storefront {
	return &storefront{story: s, pages: template.Must(template.New("storefront").Parse(storefrontPages)), last: len(s.bought)}
}

func (f *storefront) mount(router chi.Router) {
	router.Get("/", f.page("front", f.front))
	router.Get("/thanks", f.page("thanks", f.thanks))
	router.Get("/mails", f.page("mails", f.mails))
	router.Post("/buy", f.act(f.sell))
	router.Post("/refund", f.act(f.payBack))
}

// page shows what a function finds.
func (f *storefront) page(name string, find func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		found, err := find(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_ = f.pages.ExecuteTemplate(w, name, found) // the browser is gone
	}
}

// act does something at Stripe, and leads to the thank-you page of the session it is about.
func (f *storefront) act(do func(*http.Request) (session string, err error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		session, err := do(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		http.Redirect(w, r, "/thanks?session_id="+url.QueryEscape(session), http.StatusSeeOther)
	}
}

func (f *storefront) front(r *http.Request) (any, error) {
	stock, err := inventory.Stock(r.Context(), f.db, inventory.DefaultMerchant, f.pool.ID)
	return struct {
		Left  int64
		Price string
	}{stock[f.pool.ID][inventory.Available], fmt.Sprintf("%d.%02d", amount/100, amount%100)}, err
}

// sell is a buyer who pays; Stripe tells of it as it does.
func (f *storefront) sell(r *http.Request) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last++
	p, err := f.buy(f.last, 1)
	if err == nil {
		p, err = f.events(p)
	}
	if err == nil {
		err = f.postman.deliver(r.Context(), append(p.paid, p.completed)...)
	}
	return p.session, err
}

// payBack is a refund in Stripe's dashboard.
func (f *storefront) payBack(r *http.Request) (string, error) {
	session := r.PostFormValue("session_id")
	number, ok := strings.CutPrefix(session, "cs_")
	if !ok {
		return "", fmt.Errorf("%q is no session", session)
	}
	refund := "re_" + number
	if err := f.stripe.Refund(refund, "pi_"+number, nil); err != nil {
		return "", err
	}
	event, err := f.stripe.Event("refund.created", refund, stripefake.EventOptions{})
	if err != nil {
		return "", err
	}
	return session, f.postman.deliver(r.Context(), event)
}

func (f *storefront) thanks(r *http.Request) (any, error) {
	order, err := f.shop.Settle(r.Context(), r.FormValue("session_id"))
	if err != nil {
		return nil, err
	}
	keys, err := f.shop.Service().Keys(r.Context(), inventory.DefaultMerchant, order, fulfillment.UnitFulfilled)
	return struct {
		Order fulfillment.Order
		Keys  []string
		Waits int
	}{order, keys, order.Units()[fulfillment.UnitWaiting]}, err
}

// mostMails is how many mails a page shows.
const mostMails = 50

func (f *storefront) mails(*http.Request) (any, error) {
	mails := f.mail.Messages()
	slices.Reverse(mails)
	return struct {
		Total int
		Mails []smtptest.Message
	}{len(mails), mails[:min(len(mails), mostMails)]}, nil
}
