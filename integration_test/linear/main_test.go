// Package linear_test records what concurrent clients ask of keytill, and what they are answered and when, and has the
// history checked for linearizability: that there is an order of all of it, each operation at one moment between its call
// and its return, in which one shop that does one thing at a time would have answered the same.
//
// A key is then a register that is taken once: given out to a unit, held for a cart and given back, taken from a unit and
// given to it again, and never to two.
//
//	go test -race ./integration_test/linear [-long] [-seed N]
package linear_test

import (
	"flag"
	"testing"

	"github.com/keytill/keytill/internal/pgtest"
)

// Flags of a test are read before any of its code runs, so they have to be variables of the package.
var (
	long = flag.Bool("long", false, "record many more histories, which takes many minutes")
	seed = flag.Uint64("seed", 0, "the seed of what clients do; 0: a new one")
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// histories is how many are recorded.
func histories() int {
	if *long {
		return 1000
	}
	return 15
}
