package stripefake

import (
	"context"
	"net/http"
	"strings"
	"time"
)

// A Fault is something that goes wrong with a call.
type Fault struct {
	// Path limits it to calls whose path begins so; empty is all.
	Path string

	// Status is answered with an error body like Stripe's: 429, 500, 409 …
	Status int

	// Header is added to the answer: Retry-After, Stripe-Should-Retry.
	Header http.Header

	// Hang never answers: the call ends when the client goes away or the
	// server is closed.
	Hang bool

	// Cut breaks the connection in the middle of the answer.
	Cut bool

	// Reset breaks the connection before a byte of the answer.
	Reset bool

	// Stall sends half of the answer, and nothing more until the client goes
	// away or the server is closed.
	Stall bool

	// Rewrite, if set, is given the answer's body, as it would be sent, and
	// returns what is sent in its place.
	Rewrite func(body []byte) []byte

	// AfterEffect lets the call take effect before it fails by Status, Hang
	// or Cut, as when an answer is lost on its way.
	AfterEffect bool

	// Delay makes the answer wait.
	Delay time.Duration

	// LieHasMore makes a list say that there is more though it was the end.
	LieHasMore bool

	// RepeatPage makes a list begin at its beginning whatever was asked for.
	RepeatPage bool
}

// harmless says whether nothing is wrong so far.
func (f Fault) harmless() bool {
	return f.Status == 0 && !f.Hang && !f.Cut && !f.Reset && !f.Stall && f.Rewrite == nil && f.Delay == 0 && !f.LieHasMore &&
		!f.RepeatPage && f.Header == nil
}

type failing struct {
	left  int
	fault Fault
}

// Fail makes the next n calls go wrong; without any fault named they are
// answered 500. It takes the place of an earlier Fail of the same Path. With
// n = 0 that one ends, and without a Path all of them do.
func (s *Server) Fail(n int, f Fault) {
	if f.harmless() {
		f.Status = http.StatusInternalServerError
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n <= 0 && f.Path == "" {
		s.faults = nil
		return
	}
	var kept []*failing
	for _, old := range s.faults {
		if old.fault.Path != f.Path {
			kept = append(kept, old)
		}
	}
	if n > 0 {
		kept = append(kept, &failing{n, f})
	}
	s.faults = kept
}

// nextFault uses up one failure that is due on the path.
func (s *Server) nextFault(path string) *Fault {
	for i, f := range s.faults {
		if !strings.HasPrefix(path, f.fault.Path) {
			continue
		}
		if f.left--; f.left == 0 {
			s.faults = append(s.faults[:i:i], s.faults[i+1:]...)
		}
		return &f.fault
	}
	return nil
}

// A Hold keeps the answer of one call back.
type Hold struct {
	path  string
	held  chan struct{} // closed when a call hangs in it
	letGo chan struct{} // closed by LetGo
	s     *Server
}

// Hold holds the next call whose path begins so: it is answered as of the
// moment it came in, but only once let go.
func (s *Server) Hold(path string) *Hold {
	h := &Hold{path: path, held: make(chan struct{}), letGo: make(chan struct{}), s: s}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holds = append(s.holds, h)
	return h
}

// Held waits until a call hangs.
func (h *Hold) Held(ctx context.Context) error {
	select {
	case <-h.held:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// LetGo sends the answer that is held. If no call came yet, none will be held.
func (h *Hold) LetGo() {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	select {
	case <-h.letGo:
	default:
		close(h.letGo)
	}
	h.s.dropHold(h)
}

func (s *Server) dropHold(h *Hold) {
	for i, other := range s.holds {
		if other == h {
			s.holds = append(s.holds[:i:i], s.holds[i+1:]...)
			return
		}
	}
}

// nextHold takes the hold that waits for the path.
func (s *Server) nextHold(path string) *Hold {
	for _, h := range s.holds {
		if strings.HasPrefix(path, h.path) {
			s.dropHold(h)
			return h
		}
	}
	return nil
}

// Calls is how many calls came to paths that begin so, since the start or the
// last ForgetCalls; those that failed are counted too.
func (s *Server) Calls(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for p, c := range s.calls {
		if strings.HasPrefix(p, path) {
			n += c
		}
	}
	return n
}

// ForgetCalls counts from zero again.
func (s *Server) ForgetCalls() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.calls)
}

// wait sleeps until the time has passed, the client is gone or the server
// closed; only in the first case there is somebody to answer.
func (s *Server) wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-s.done:
	}
	return false
}
