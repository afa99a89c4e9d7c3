// Package outage_test breaks what keytill stands on while it works: the daemon itself is killed, its clock jumps, PostgreSQL
// stops, fails over, fills its disk, refuses connections and transactions, and the power goes.
//
//	go test ./integration_test/outage
//	go test ./integration_test/outage -long -timeout 3h
//
// Around what breaks are a Stripe, buyers, a supplier, a mail server and a storefront that do not, and that remember what
// they were told. Whatever they were told must still be true afterwards, and everything sold must come to its buyer.
//
// Some of it mounts file systems, which only root may. Without root the short form does without and says so; the long form
// fails.
package outage_test

import (
	"flag"
	"os"
	"testing"

	"github.com/keytill/keytill/internal/pgtest"
)

// long is a variable of the package, since a test's flags are read before any of its code runs.
var long = flag.Bool("long", false, "break things as often as it takes to trust them, which takes an hour")

func TestMain(m *testing.M) {
	code := pgtest.Run(m)
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

// length is how much of something a test does.
func length(short, full int) int {
	if *long {
		return full
	}
	return short
}
