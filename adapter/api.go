package adapter

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"github.com/keytill/keytill/adapter/api"
	"github.com/keytill/keytill/adapter/orderpage"
	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/internal/pg"
	"github.com/keytill/keytill/reconcile"
)

// makeAPI makes the API, which is closed without access tokens.
func (s *Shop) makeAPI() error {
	if s.config.Tokens == nil {
		return nil
	}
	config := api.Config{DB: s.config.Pool, Service: s.service, Tokens: s.config.Tokens, Sweeps: shopSweeps{s},
		Now: s.config.Now, Logger: s.config.Logger}
	if s.links != nil {
		config.Link = func(merchant string, o fulfillment.Order) string {
			return s.links.URL(orderpage.Ref{Merchant: merchant, Order: o.ID, Serial: o.LinkSerial}, s.config.Now())
		}
	}
	routes := chi.NewRouter()
	if err := api.Mount(routes, config); err != nil {
		return fmt.Errorf("put the API together: %w", err)
	}
	s.api = s.traced("API", routes)
	return nil
}

func (s *Shop) mountAPI(router chi.Router) {
	if s.api != nil {
		router.Handle("/v1/*", s.api)
	}
}

// shopSweeps is what the API does about sweeps.
type shopSweeps struct{ *Shop }

// StartSweep leaves a sweep to the workers.
func (s shopSweeps) StartSweep(ctx context.Context, merchant string, since time.Duration) error {
	return pg.InTx(ctx, s.config.Pool, func(tx pgx.Tx) error {
		_, err := s.jobs.InsertManyTx(ctx, tx, []river.InsertManyParams{{Args: SweepJob{Merchant: merchant, Since: since}}})
		return err
	})
}

// Reports are those of the last sweeps.
func (s shopSweeps) Reports(ctx context.Context, merchant string, most int) ([]reconcile.Report, error) {
	return s.sweeper.Reports(ctx, merchant, most)
}

// Metrics shows the shop's metrics in Prometheus' form; nil where Config.Metrics says that they are in the storefront's own
// registry. What it tells is not for everyone: do not route it to the outside.
func (s *Shop) Metrics() http.Handler { return s.metrics.Handler() }
