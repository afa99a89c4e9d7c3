// Package api is keytill over HTTP, below /v1: what a Go storefront does in process, a storefront in any other language
// does with it, and what an operator does on the command line, a program of theirs.
//
//	request ─▶ token and role ─▶ idempotency key ─▶ operation ─▶ fulfillment, inventory
//	                 │                  │               │
//	                 └── 401, 403       └── 409, 422    └── problem document (RFC 9457), by one table
//
// GET /v1/openapi.json describes it all. A token is of one merchant and has a role; which role may do what is in the
// description of each operation. No answer holds the text of a key but those of two operations: a storefront reads the
// keys of an order that it names, and a person who says why reveals them.
package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/go-chi/chi/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keytill/keytill/adapter/access"
	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/internal/logs"
	"github.com/keytill/keytill/reconcile"
)

// Config is what an API needs. DB, Service, Tokens and Sweeps are required.
type Config struct {
	DB      *pgxpool.Pool
	Service *fulfillment.Service
	Tokens  *access.Tokens
	Sweeps  Sweeps

	// Link makes a link to an order's page; nil: there are no pages.
	Link func(merchant string, order fulfillment.Order) string

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

// An API is the handlers of all operations.
type API struct {
	Config
	huma huma.API
}

const (
	// callTimeout ends what takes too long: below the time that a daemon gives a whole request.
	callTimeout = 25 * time.Second

	maxBody   = 64 << 10 // of a request, unless its operation says otherwise
	maxImport = 32 << 20 // a file of keys
)

// Mount adds the operations, and their description at /v1/openapi.json, to a router.
func Mount(router chi.Router, c Config) error {
	if c.DB == nil || c.Service == nil || c.Tokens == nil || c.Sweeps == nil {
		return errors.New("api: Config needs DB, Service, Tokens and Sweeps")
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	c.Logger = logs.New(c.Logger)
	a := &API{Config: c}
	routes := router.With(a.guard)
	config := huma.DefaultConfig("keytill", "1")
	config.OpenAPI.Info.Description = description
	config.OpenAPIPath, config.DocsPath, config.SchemasPath = "", "", ""
	config.CreateHooks = nil // which would add a $schema to every answer
	config.Transformers = []huma.Transformer{withoutValues}
	config.RejectUnknownQueryParameters = true
	config.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		bearer: {Type: "http", Scheme: "bearer", Description: "A token, as `keytill token new` prints it."}}
	a.huma = humachi.New(routes, config)
	a.addOrders()
	a.addKeys()
	a.addLinks()
	a.addUnits()
	a.addReservations()
	a.addPools()
	a.addImports()
	a.addLists()
	a.addSweeps()
	a.describeLicence()
	document, err := a.huma.OpenAPI().MarshalJSON()
	if err != nil {
		return err
	}
	routes.Get("/v1/openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/openapi+json")
		_, _ = w.Write(document) // who has gone needs no answer
	})
	routes.HandleFunc("/v1/*", func(w http.ResponseWriter, r *http.Request) {
		write(w, &huma.ErrorModel{Type: kind("no_such_operation"), Status: http.StatusNotFound, Title: http.StatusText(http.StatusNotFound),
			Detail: "there is no such operation: /v1/openapi.json lists them"})
	})
	return nil
}

const bearer = "token"

const description = "Orders, keys and stock of a shop that sells keys over Stripe. " +
	"Amounts are integers in the currency's minor unit; times are RFC 3339. " +
	"A list is read a page at a time: `next` of an answer is the `cursor` of the next request. " +
	"A write that carries an `Idempotency-Key` is done once, and its answer given again for a day. " +
	"Errors are problem documents (RFC 9457), and their `type` says which."
