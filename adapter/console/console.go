// Package console is keytill in a browser, below /console: for the people who answer which key an order got, whether it
// can be sent again, and how many are left.
//
//	request ─▶ headers ─▶ same origin? ─▶ session ─▶ role ─▶ page or act ─▶ fulfillment, inventory
//	              │            │             │         │            │
//	        strict CSP        403     to the log-in   403      act: 303 to the page that shows what came of it
//
// Pages are made on the server and work without scripts. GET changes nothing. No page holds the text of a key but the
// answer to a reveal, which says why, is in the audit before the keys are read, and is kept nowhere.
package console

import (
	"context"
	"crypto/cipher"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keytill/keytill/adapter/access"
	"github.com/keytill/keytill/adapter/limit"
	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/internal/logs"
	"github.com/keytill/keytill/inventory"
	"github.com/keytill/keytill/reconcile"
)

// Path is where the console is.
const Path = "/console"

// Config is what a Console needs. DB, Service, Tokens, Keyset and Sweeps are required.
type Config struct {
	DB      *pgxpool.Pool
	Service *fulfillment.Service
	Tokens  *access.Tokens
	Keyset  *inventory.Keyset
	Sweeps  Sweeps

	PublicURL string // where people reach it, if that is known: over https its cookies are Secure
	Livemode  bool   // of links to Stripe's dashboard

	Now    func() time.Time // time.Now unless set
	Logger *slog.Logger     // slog.Default unless set
}

// Sweeps starts sweeps and reads their reports.
type Sweeps interface {
	// StartSweep leaves a sweep of a merchant to the workers; since 0: from where the last one ended.
	StartSweep(ctx context.Context, merchant string, since time.Duration) error

	// Reports are those of the last sweeps, newest first.
	Reports(ctx context.Context, merchant string, most int) ([]reconcile.Report, error)
}

// A Console answers all requests below Path.
type Console struct {
	Config
	handler http.Handler
	views   *views
	static  map[string]file
	logins  *limit.Limiter
	sealers []cipher.AEAD // of uploads, the primary one first
	public  *url.URL      // nil unless known
}

// loginsPerMinute are one address's. A token is 256 random bits: this keeps the log quiet, it does not keep guesses out.
const loginsPerMinute = 10

//go:embed templates static
var files embed.FS

// New makes a Console.
func New(c Config) (*Console, error) {
	if c.DB == nil || c.Service == nil || c.Tokens == nil || c.Keyset == nil || c.Sweeps == nil {
		return nil, errors.New("console: Config needs DB, Service, Tokens, Keyset and Sweeps")
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	c.Logger = logs.New(c.Logger)
	console := &Console{Config: c, logins: limit.New(loginsPerMinute, c.Now)}
	var err error
	if c.PublicURL != "" {
		if console.public, err = url.Parse(c.PublicURL); err != nil {
			return nil, fmt.Errorf("console: the public URL cannot be read: %w", err)
		}
	}
	if console.sealers, err = newSealers(c.Keyset); err != nil {
		return nil, err
	}
	if console.static, err = readStatic(); err != nil {
		return nil, err
	}
	if console.views, err = newViews(c.Now); err != nil {
		return nil, err
	}
	console.handler = console.route()
	return console, nil
}

// ServeHTTP answers a request below Path, wherever that is mounted.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) { c.withoutBase(w, r) }

// A route is a page or an act, with the least role that may have it.
type route struct {
	pattern string
	need    access.Role
	serve   func(*visit) error
}

// routes are all that need somebody to be logged in.
func (c *Console) routes() []route {
	const order = "/console/orders/{id}"
	return []route{
		{"GET /console", access.Viewer, c.overview},
		{"GET /console/pools", access.Viewer, c.listPools},
		{"GET /console/pool", access.Viewer, c.showPool},
		{"GET /console/pool/edit", access.Admin, c.editPool},
		{"POST /console/pool/edit", access.Admin, c.changePool},
		{"GET /console/pools/new", access.Admin, c.newPool},
		{"POST /console/pools/new", access.Admin, c.createPool},
		{"GET /console/batch", access.Viewer, c.showBatch},
		{"GET /console/orders", access.Viewer, c.listOrders},
		{"POST /console/orders", access.Viewer, c.searchOrders},
		{"GET " + order, access.Viewer, c.showOrder},
		{"GET /console/findings", access.Viewer, c.listFindings},
		{"GET /console/audit", access.Viewer, c.listAudit},

		{"POST " + order + "/reveal", access.Support, c.reveal},
		{"POST " + order + "/resend", access.Support, c.resend},
		{"POST " + order + "/replace", access.Support, c.replace},
		{"POST " + order + "/revoke", access.Support, c.revoke},
		{"POST " + order + "/retry", access.Support, c.retry},
		{"POST " + order + "/settle", access.Support, c.settle},
		{"POST " + order + "/attribute", access.Support, c.attribute},
		{"POST /console/deliveries/{id}/again", access.Support, c.sendAgain},

		{"POST /console/imports", access.Admin, c.upload},
		{"GET /console/imports/{id}", access.Admin, c.showUpload},
		{"POST /console/imports/{id}/confirm", access.Admin, c.confirmUpload},
		{"POST /console/imports/{id}/discard", access.Admin, c.discardUpload},
		{"POST /console/batch", access.Admin, c.setBatchState},
		{"POST /console/sweep", access.Admin, c.startSweep},
		{"POST /console/mappings", access.Admin, c.setMapping},
	}
}

func (c *Console) route() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /console/static/{file}", c.serveStatic)
	mux.HandleFunc("GET /console/login", c.showLogin)
	mux.HandleFunc("POST /console/login", c.login)
	mux.HandleFunc("POST /console/logout", c.logout)
	for _, r := range c.routes() {
		mux.Handle(r.pattern, c.known(r.need, r.serve))
	}
	mux.Handle("/console/", c.known(access.Viewer, func(*visit) error { return errNoPage }))
	return logs.Requests(c.guard(mux))
}
