package integration_test

import (
	"flag"
	"testing"
)

// long is a variable of the package for the reason that scenarios is one.
var long = flag.Bool("long", false, "run races, models and histories at their full length, which takes many minutes")

// length is how much of something a test does.
func length(short, full int) int {
	if *long {
		return full
	}
	return short
}

// rounds runs a race again and again: what depends on luck shows itself in some of many tries.
func rounds(t *testing.T, short, full int, run func(t *testing.T, round int)) {
	t.Helper()
	for round := range length(short, full) {
		run(t, round)
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
}
