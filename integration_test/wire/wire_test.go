package wire

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/internal/pgproxy"
)

// operations are all that keytill does with its database on the way from a payment to a key.
var operations = []operation{settleNew, settleMany, thankYou, settleRefund, settleWaiting, settleHeld, ingestOne, ingestMany,
	importStep, importServes, tidyServes, serveStep, sweepStep,
	deliver("deliver a mail", fulfillment.ChannelEmail), deliver("deliver a hook", fulfillment.ChannelHook)}

func TestEveryMessage(t *testing.T) {
	t.Parallel()
	for _, op := range operations {
		t.Run(op.name, func(t *testing.T) {
			t.Parallel()
			if !*long {
				everyMessage(t, op, modes)
				return
			}
			for _, m := range modes {
				t.Run(string(m), func(t *testing.T) {
					t.Parallel()
					everyMessage(t, op, []mode{m})
				})
			}
		})
	}
}

// stride is how many messages of a side the short form goes on by, at least.
const stride = 4

// everyMessage disturbs an operation at its messages: in the long form at each, in all modes that it is given; in the short
// form at every fourth in one of the modes, in turn, and where a transaction ends in all. It ends where there are no more.
func everyMessage(t *testing.T, op operation, in []mode) {
	if op.wipeEvery == 0 {
		op.wipeEvery = 40
	}
	w := newWorld(t)
	w.play(op, nowhere, "nothing happens") // what is done once in a process is done
	w.play(op, nowhere, "nothing happens")
	seen := w.trouble.seen
	t.Logf("undisturbed: %d messages of the client, %d of the server", countOf(seen, pgproxy.Client), countOf(seen, pgproxy.Server))
	ends := commits(seen)
	by := max(op.stride, stride)
	points, rounds := 0, 0
	for _, side := range sides {
		for n := 1; ; n++ {
			p := point{side, n}
			chosen := in
			if !*long && !ends[p] {
				if n%by != 0 {
					continue
				}
				chosen = []mode{modeOf(p, by)}
			}
			struck := false
			for _, m := range chosen {
				rounds++
				struck = w.playAt(op, p, m) || struck
			}
			if !struck {
				if total := countOf(seen, side); n <= total && !op.loose {
					t.Fatalf("undisturbed it has %d messages of the %s, and the %d. was not struck (-undisturbed +now):\n%s", total, side, n,
						cmp.Diff(lines(seen), lines(w.trouble.seen)))
				}
				break
			}
			points++
		}
	}
	form := "each in each mode"
	if !*long {
		form = fmt.Sprintf("every %d. in one mode, in turn, and the ends of transactions in all", by)
	}
	t.Logf("%d points of %d messages, %s of %q: %d rounds", points, len(seen), form, in, rounds)
}

// playAt plays rounds until the point is struck, which the first one does but for what depends on chance.
func (w *world) playAt(op operation, p point, m mode) bool {
	w.t.Helper()
	for range 3 {
		if w.play(op, p.is, m) != nil {
			return true
		}
	}
	return false
}

func lines(seen []pgproxy.Message) (text []string) {
	for _, m := range seen {
		text = append(text, m.String())
	}
	return text
}

func countOf(seen []pgproxy.Message, side pgproxy.Side) int {
	n := 0
	for range slices.DeleteFunc(slices.Clone(seen), func(m pgproxy.Message) bool { return m.From != side }) {
		n++
	}
	return n
}
