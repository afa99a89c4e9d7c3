package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/keytill/keytill/adapter/access"
)

// stay opens the shop again with console, API and a storefront, and returns when ctx ends.
func (s *story) stay(report Report) (Report, error) {
	s.public = "http://" + s.Stay.Addr().String()
	token, line, err := access.New(access.Token{Name: "demo", Role: access.Admin})
	if err != nil {
		return report, err
	}
	if s.tokens, err = access.Read(strings.NewReader(line)); err != nil {
		return report, err
	}
	s.closeShop()
	s.every = 0 // as usual, from now on
	if err := s.openShop(s.ctx); err != nil {
		return report, err
	}
	if report.Waiting == 0 {
		if _, _, err := s.importKeys("play.txt", s.keys.make(toPlay)); err != nil {
			return report, err
		}
	}
	s.shopDown = append(s.shopDown, s.receive())
	report.Open = &Open{Shop: s.public + "/", Console: s.public + "/console", Token: token, API: s.public + "/v1/openapi.json",
		Metrics: s.public + "/metrics", Stripe: s.stripe.URL(), StripeKey: s.stripe.APIKey()}
	if s.Opened != nil {
		s.Opened(report)
	}
	<-s.ctx.Done()
	if cause := context.Cause(s.ctx); !errors.Is(cause, context.Canceled) {
		return report, cause
	}
	return report, nil
}

// toPlay is how many keys there are to buy in a shop that stays open, where nobody waits.
const toPlay = 20

// receive serves what stays open, and returns what ends it: requests that are under way may end.
func (s *story) receive() (end func()) {
	router := chi.NewRouter()
	s.shop.Mount(router)
	router.Method(http.MethodGet, "/metrics", s.shop.Metrics())
	newStorefront(s).mount(router)
	server := &http.Server{Handler: router, ReadHeaderTimeout: 10 * time.Second,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug)}
	go func() {
		if err := server.Serve(s.Stay); !errors.Is(err, http.ErrServerClosed) {
			s.fail(fmt.Errorf("serve HTTP: %w", err))
		}
	}()
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), endWithin)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close()
		}
	}
}

const endWithin = 2 * time.Second
