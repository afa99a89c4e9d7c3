// Package stripefaults_test breaks every call that keytill makes to Stripe in every way that a test can think of, and looks
// that nothing is done on half the truth, and that all is done once Stripe behaves.
//
//	operations ──run once──▶ the routes they call
//	                              × faults ──▶ one try under the fault, then one without
//
// Which routes there are is found out by running; a new call of keytill's is broken without anybody adding it here.
//
//	go test ./integration_test/stripefaults [-seed N]                     every route and every fault, and a quarter of their pairs
//	go test ./integration_test/stripefaults -long -timeout 30m            all pairs
package stripefaults_test

import (
	"flag"
	"math/rand/v2"
	"testing"

	"github.com/keytill/keytill/internal/pgtest"
)

// Flags of a test are read before any of its code runs, so they have to be variables of the package.
var (
	long = flag.Bool("long", false, "break every route in every way, which takes many minutes")
	seed = flag.Uint64("seed", 0, "which of the pairs of a route and a fault are tried; 0: those that come up")
)

// quarters is of how many parts one is tried unless all are.
const quarters = 4

// drawn returns what says of the pairs, by the numbers of route and fault, which are tried.
func drawn(t *testing.T) func(route, fault int) bool {
	t.Helper()
	if *long {
		return func(int, int) bool { return true }
	}
	start := *seed
	if start == 0 {
		start = 1 + rand.Uint64N(quarters)
	}
	t.Logf("seed %d", start)
	return func(route, fault int) bool { return (uint64(route)+uint64(fault)+start)%quarters == 0 }
}

func TestMain(m *testing.M) { pgtest.Main(m) }
