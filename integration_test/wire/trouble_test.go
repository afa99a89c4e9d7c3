package wire

import (
	"sync"

	"github.com/keytill/keytill/internal/pgproxy"
)

// A mode is what happens at a message.
type mode string

const (
	// The connection drops before the message is forwarded.
	drop mode = "the connection drops"

	// PostgreSQL does all that it has been asked and commits it, and the connection drops before keytill hears of it.
	unheard mode = "the answer is lost"

	// The message is late: another keytill works on the same thing meanwhile, with a newer truth, until it is done or waits
	// for this one.
	overlap mode = "another overlaps"

	// The message is so late that who waits for it gives up, and another keytill takes over; then the message arrives.
	late mode = "it comes too late"

	// PostgreSQL's process for this connection is killed.
	kill mode = "the backend is killed"
)

var modes = []mode{drop, unheard, overlap, late, kill}

// A point is a message of an operation: the n-th of a side.
type point struct {
	side pgproxy.Side
	n    int
}

// A trouble strikes once at a point, when it is armed. All messages of keytill pass it.
type trouble struct {
	mu     sync.Mutex
	armed  bool
	at     func(m pgproxy.Message, nth int) bool
	strike func(pgproxy.Message) pgproxy.Action
	seen   []pgproxy.Message
	count  map[pgproxy.Side]int
	struck *pgproxy.Message
	busy   sync.WaitGroup
}

// arm begins to count. The strike runs once, while the message waits, where at holds of it.
func (t *trouble) arm(at func(m pgproxy.Message, nth int) bool, strike func(pgproxy.Message) pgproxy.Action) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.armed, t.at, t.strike, t.seen, t.struck = true, at, strike, nil, nil
	t.count = make(map[pgproxy.Side]int)
}

// disarm ends the counting, waits until a strike is over, and tells which message was struck.
func (t *trouble) disarm() (struck *pgproxy.Message) {
	t.mu.Lock()
	t.armed = false
	t.mu.Unlock()
	t.busy.Wait()
	return t.struck
}

func (t *trouble) hasStruck() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.struck != nil
}

// pass is the proxy's hook.
func (t *trouble) pass(m pgproxy.Message) pgproxy.Action {
	t.mu.Lock()
	if !t.armed {
		t.mu.Unlock()
		return pgproxy.Forward
	}
	t.seen = append(t.seen, m)
	t.count[m.From]++
	if t.struck != nil || !t.at(m, t.count[m.From]) {
		t.mu.Unlock()
		return pgproxy.Forward
	}
	t.struck = &m
	t.busy.Add(1)
	defer t.busy.Done()
	strike := t.strike
	t.mu.Unlock()
	return strike(m)
}

// is is a point as arm takes it.
func (p point) is(m pgproxy.Message, nth int) bool { return m.From == p.side && nth == p.n }

func nowhere(pgproxy.Message, int) bool { return false }
