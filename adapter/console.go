package adapter

import (
	"fmt"

	"github.com/go-chi/chi/v5"

	"github.com/keytill/keytill/adapter/console"
)

// makeConsole makes the console, which is closed without access tokens.
func (s *Shop) makeConsole() (err error) {
	if s.config.Tokens == nil {
		return nil
	}
	s.console, err = console.New(console.Config{DB: s.config.Pool, Service: s.service, Tokens: s.config.Tokens, Keyset: s.config.Keyset,
		Sweeps: shopSweeps{s}, PublicURL: s.config.PublicURL, Livemode: s.livemode, Now: s.config.Now, Logger: s.config.Logger})
	if err != nil {
		return fmt.Errorf("put the console together: %w", err)
	}
	return nil
}

func (s *Shop) mountConsole(router chi.Router) {
	if s.console != nil {
		router.Handle(console.Path, s.console)
		router.Handle(console.Path+"/*", s.console)
	}
}
