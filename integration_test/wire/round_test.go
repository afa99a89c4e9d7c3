package wire

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/keytill/keytill/integration_test/shoptest"
	"github.com/keytill/keytill/internal/pgproxy"
	"github.com/keytill/keytill/internal/stripefake"
)

// An operation is what is disturbed. Its functions are given a round, which has names of its own for what they make.
type operation struct {
	name string

	// stock makes what all rounds need, once and again after each wipe of the database.
	stock func(w *world)

	// begin makes what was there before.
	begin func(r *round)

	// run is the operation itself, done by one of two keytills. It is also what production does again after a failure: it
	// returns nil once there is nothing left to do.
	run func(ctx context.Context, r *round, by *shoptest.Shop) error

	// meanwhile is what another keytill does while a message is held; run, unless set.
	meanwhile func(ctx context.Context, r *round, by *shoptest.Shop) error

	// end is what must have come of it.
	end func(r *round)

	wipeEvery int  // rounds on one database, 40 unless set
	loose     bool // its messages are not the same each time
	stride    int  // of the short form, where there are very many
}

// A round is one run of an operation with one disturbance.
type round struct {
	*world
	op   operation
	n    int
	mode mode

	cancel  context.CancelFunc // of who waits for the operation
	done    chan struct{}      // the operation has returned
	err     error
	rivaled bool
	rival   chan error

	orders []string // what the operation's own functions remember
	events []string
	posted []stripefake.Event
	keys   []int64
	file   []byte
	tries  int // of going on, from 1

	mu       sync.Mutex
	answered []string // events that were answered 200
	sent     []sent
}

const (
	// goesOnWithin bounds how long the work may take to go on after a disturbance.
	goesOnWithin = 5 * time.Second

	// retries is how often it may fail on the way: on connections that the disturbance has left dead in the pool.
	retries = 4

	// givesUpWithin is how long a held message waits for its operation to return whose context has ended. Some have words
	// to say that they say all the same; those just go on waiting.
	givesUpWithin = 100 * time.Millisecond
)

// play runs one round, and tells what was struck; nil if the operation has no such message.
func (w *world) play(op operation, at func(pgproxy.Message, int) bool, m mode) (struck *pgproxy.Message) {
	w.t.Helper()
	w.rounds++
	if every := max(op.wipeEvery, 1); w.rounds%every == 1 || every == 1 {
		w.wipe(op)
	}
	r := &round{world: w, op: op, n: w.rounds, mode: m, done: make(chan struct{}), rival: make(chan error, 1)}
	op.begin(r)
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	r.cancel = cancel
	w.trouble.arm(at, r.strike)
	go func() {
		r.err = op.run(ctx, r, w.till)
		close(r.done)
	}()
	<-r.done
	struck = w.trouble.disarm()
	r.judge("right after it", waitsFor)
	r.goOn()
	r.quiet()
	op.end(r)
	r.judge("in the end", 0)
	if w.t.Failed() {
		w.t.Fatalf("round %d: %s at %v, the operation then returned: %v", r.n, m, struck, r.err)
	}
	return struck
}

// strike does what the round's mode says, while the message waits.
func (r *round) strike(m pgproxy.Message) pgproxy.Action {
	switch r.mode {
	case drop:
		return pgproxy.Cut
	case unheard:
		return pgproxy.Unheard
	case kill:
		if m.PID == 0 {
			return pgproxy.Shut // its process is not known yet: what it would say when killed
		}
		r.terminate(m.PID)
		return pgproxy.Forward
	case overlap:
		other := r.op.meanwhile
		if other == nil {
			other = r.op.run
		}
		r.holdFor(other)
		return pgproxy.Forward
	case late:
		r.cancel()
		select {
		case <-r.done:
		case <-time.After(givesUpWithin):
		}
		r.holdFor(r.op.run)
		return pgproxy.Forward
	}
	panic("no such mode: " + string(r.mode))
}

// holdFor holds a message until another keytill has done its work, or has to wait for a lock.
func (r *round) holdFor(work func(context.Context, *round, *shoptest.Shop) error) {
	r.rivaled = true
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.rival <- work(r.t.Context(), r, r.shop)
	}()
	for {
		select {
		case <-ended:
			return
		case <-time.After(2 * time.Millisecond):
			if r.somebodyWaits() {
				return
			}
		}
	}
}

// goOn does again what production does again, until it is done.
func (r *round) goOn() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), goesOnWithin)
	defer cancel()
	if r.rivaled {
		select {
		case err := <-r.rival:
			if err != nil {
				r.t.Errorf("the other keytill: %v", err)
			}
		case <-ctx.Done():
			r.t.Errorf("the other keytill is not done after %s", goesOnWithin)
		}
	}
	var failures []error
	for r.tries = 1; r.tries <= retries; r.tries++ {
		err := r.op.run(ctx, r, r.till)
		if err == nil {
			return
		}
		failures = append(failures, err)
	}
	r.t.Errorf("it does not go on: %v", failures)
}

// quiet has keytill's connections closed and waits until PostgreSQL has ended what they began: from then on nothing that was
// said before can change anything, and the next round begins with a connection of its own.
func (r *round) quiet() {
	r.t.Helper()
	r.till.DB.Reset()
	for deadline := time.Now().Add(4 * goesOnWithin); ; time.Sleep(time.Millisecond) {
		var backends int
		r.shop.Must(r.shop.DB.QueryRow(r.t.Context(), `
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1`, appName).Scan(&backends))
		if backends == 0 && r.proxy.Open() == 0 {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("%d backends and %d connections are left over", backends, r.proxy.Open())
		}
	}
}

// overlapped reports whether another keytill did what it does meanwhile.
func (r *round) overlapped() bool { return r.rivaled && r.mode == overlap }

func (r *round) name(prefix string, i int) string { return fmt.Sprintf("%s_w%d_%d", prefix, r.n, i) }
