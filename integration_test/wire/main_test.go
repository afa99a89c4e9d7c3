// Package wire breaks the way between keytill and its database at every message of the wire protocol.
//
// A proxy stands in that way. An operation, such as a settle, is first run undisturbed and its messages are counted, those
// of keytill and those of PostgreSQL. Then it is run again and again on new orders, and each time something happens at one
// of these messages: see mode. After each time keytill's promises must hold, and what was broken must come to its end in
// the way in which production would come back to it.
//
//	go test -race ./integration_test/wire                     # every fourth message, the modes in turn; commits in all modes
//	go test -race ./integration_test/wire -long -timeout 3h   # each message in each mode
package wire

import (
	"flag"
	"testing"

	"github.com/keytill/keytill/internal/pgtest"
)

// long has to be a variable of the package: flags of a test are read before any of its code runs.
var long = flag.Bool("long", false, "break at every message in every mode, which takes many minutes")

func TestMain(m *testing.M) { pgtest.Main(m) }
