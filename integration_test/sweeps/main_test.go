// Package sweeps_test runs sweeps at their full size: a year of a shop, and a hundred thousand payments.
//
//	go test ./integration_test/sweeps [-long] [-year SEED]
//	go test ./integration_test/sweeps -run '^$' -bench Sweep -benchtime 1x
package sweeps_test

import (
	"flag"
	"testing"

	"github.com/keytill/keytill/internal/pgtest"
)

// long is a variable of the package, since a test's flags are read before any of its code runs.
var long = flag.Bool("long", false, "simulate the year at its full length, which takes many minutes")

func TestMain(m *testing.M) { pgtest.Main(m) }

// length is how much of something a test does.
func length(short, full int) int {
	if *long {
		return full
	}
	return short
}
