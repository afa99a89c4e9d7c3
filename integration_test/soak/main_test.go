// Package soak_test runs keytill through a busy day with things breaking around it, and looks whether anything grows that
// should not: memory, goroutines, connections, dead tuples.
//
//	go test ./integration_test/soak -v                                     the short form, about half a minute
//	go test ./integration_test/soak -v -long -timeout 1h                   half an hour
//	go test ./integration_test/soak -v -for 5m [-rate 8] [-seed N]         as long as one likes
//
// Two daemons, each a process of its own, share a database. One of them, steady, lives through it all and is measured;
// the other, restless, is told to stop, or killed, again and again.
package soak_test

import (
	"flag"
	"os"
	"testing"
	"time"

	"github.com/keytill/keytill/internal/pgtest"
)

// Flags of a test are read before any of its code runs, so they have to be variables of the package.
var (
	long     = flag.Bool("long", false, "run for half an hour")
	duration = flag.Duration("for", 0, "run for so long, in place of what -long says")
	rate     = flag.Float64("rate", 4, "how many sales there are a second")
	seed     = flag.Uint64("seed", 0, "the seed of what happens; 0: a new one")
)

func TestMain(m *testing.M) {
	if os.Getenv(daemonEnv) != "" {
		os.Exit(beDaemon())
	}
	pgtest.Main(m)
}

// length is how long the day is.
func length() time.Duration {
	switch {
	case *duration > 0:
		return *duration
	case *long:
		return 30 * time.Minute
	default:
		return 30 * time.Second
	}
}
