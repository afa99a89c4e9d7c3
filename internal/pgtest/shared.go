package pgtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/keytill/keytill/internal/pgserver"
)

// urlEnv names a server to use instead of a temporary one.
const urlEnv = "KEYTILL_TEST_DATABASE_URL"

const (
	startTimeout = 2 * time.Minute
	keepFor      = 30 * time.Minute
)

// shared is the server of this test binary. It is one for the whole process because starting one for each test would
// cost more than most tests; the testing package offers no other place for it than a variable.
var shared struct {
	mu     sync.Mutex
	server *pgserver.Server
	err    error
}

// sharedURL starts the shared server at its first call. A start that failed is not tried again: each test says why.
func sharedURL() (string, error) {
	if url := os.Getenv(urlEnv); url != "" {
		return url, nil
	}
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server == nil && shared.err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		shared.server, shared.err = pgserver.Start(ctx, pgserver.Config{Fast: true, TempDir: pgserver.MemoryDir(), Label: label()})
	}
	if shared.err != nil {
		return "", fmt.Errorf("start a PostgreSQL for the tests: %w (or set %s)", shared.err, urlEnv)
	}
	return shared.server.URL(), nil
}

// label is the same for each run of one package's tests, which run in the package's directory.
func label() string {
	dir, err := os.Getwd()
	if err != nil {
		return filepath.Base(os.Args[0])
	}
	return dir
}

// keepShared has the temporary server outlive the process. Zero time: it is not ours, and stays anyway.
func keepShared() (time.Time, error) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server == nil {
		return time.Time{}, nil
	}
	until := time.Now().Add(keepFor)
	return until, shared.server.KeepRunning(until)
}

func stopShared() error {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server == nil {
		return nil
	}
	return shared.server.Stop()
}

// Suite runs a package's tests and then stops their server. It is for what wraps a testing.M itself:
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Suite{M: m}) }
type Suite struct{ M *testing.M }

// Run returns the exit code. After a failure the server stays, with the failed tests' databases; see the package's
// documentation.
func (s Suite) Run() int {
	code := s.M.Run()
	if err := stopShared(); err != nil {
		fmt.Fprintln(os.Stderr, "pgtest:", err)
		return max(code, 1)
	}
	return code
}

// Run is Suite.Run, for a TestMain that has more to do.
func Run(m *testing.M) int { return Suite{M: m}.Run() }

// Main is a whole TestMain.
func Main(m *testing.M) { os.Exit(Run(m)) }
