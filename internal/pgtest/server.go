package pgtest

import (
	"context"
	"testing"

	"github.com/keytill/keytill/internal/pgserver"
)

// Server starts a server for one test alone, stopped with it: for tests that crash it (Kill, Restart), or need other
// settings. Unless the configuration says Fast, it writes as safely as one in production. Its database, at URL, has
// keytill's schema.
func Server(t testing.TB, cfg pgserver.Config) *pgserver.Server {
	t.Helper()
	if cfg.Dir == "" && cfg.TempDir == "" {
		cfg.TempDir = pgserver.MemoryDir()
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	server, err := pgserver.Start(ctx, cfg)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Errorf("pgtest: %v", err)
		}
	})
	if err := migrate(ctx, server.URL()); err != nil {
		t.Fatalf("pgtest: migrate: %v", err)
	}
	return server
}
