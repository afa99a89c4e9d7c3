package smtptest

import (
	"strings"
	"time"
)

// faults are the ways the server misbehaves at present.
type faults struct {
	down       bool
	refuse     int            // answer to every recipient, 0 for none
	refuseTo   map[string]int // answer by lower-case recipient
	drop       bool           // hang up after DATA, message lost
	loseAnswer bool           // hang up after DATA, message kept
	slow       time.Duration
}

// Down refuses every message for now, with 451.
func (s *Server) Down() { s.setFault(func(f *faults) { f.down = true }) }

// Refuse answers every recipient with this code: 4xx for a while, 5xx for good.
func (s *Server) Refuse(code int) { s.setFault(func(f *faults) { f.refuse = code }) }

// RefuseTo answers one recipient with this code.
func (s *Server) RefuseTo(addr string, code int) {
	s.setFault(func(f *faults) {
		// The map is replaced, not changed: sessions read their copy of the faults without the lock.
		next := map[string]int{strings.ToLower(addr): code}
		for a, c := range f.refuseTo {
			if _, ok := next[a]; !ok {
				next[a] = c
			}
		}
		f.refuseTo = next
	})
}

// DropAfterData hangs up when a message has been read, without an answer, and forgets the message.
func (s *Server) DropAfterData() { s.setFault(func(f *faults) { f.drop = true }) }

// LoseAnswer hangs up when a message has been read, without an answer, and keeps the message: the client cannot tell
// it from DropAfterData.
func (s *Server) LoseAnswer() { s.setFault(func(f *faults) { f.loseAnswer = true }) }

// Slow lets every message wait this long before it is answered.
func (s *Server) Slow(d time.Duration) { s.setFault(func(f *faults) { f.slow = d }) }

// Up ends every fault.
func (s *Server) Up() { s.setFault(func(f *faults) { *f = faults{} }) }

func (s *Server) setFault(change func(*faults)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.faults)
}

func (s *Server) fault() faults {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults
}

// pause waits, but not beyond Close; false says that it ended early.
func (s *Server) pause(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.done:
		return false
	}
}
