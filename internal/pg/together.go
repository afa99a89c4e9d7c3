package pg

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"
)

// Together lets callers that ask at the same time share the asking, since a transaction, a statement and a round trip
// cost nearly the same for twenty rows as for one. Nobody waits for company: who comes while few ask, asks at once, and
// takes along those who came while it could not; and nobody waits for long, should another's asking hang.
type Together[Q, A any] struct {
	Rounds int // askings at once: while one waits for the disk, another works
	Most   int // callers in one
	Worth  int // callers that an asking beside others is to be for; 0: one is enough

	// Patience is how long a caller waits for the rounds before it, of which one may hang on a connection that is dead; 0:
	// a second.
	Patience time.Duration

	// Fits says whether a caller may join a round; nil: any may.
	Fits func(round []Q, next Q) bool

	// Ask answers a round, with an answer for each of its questions in their order, or with one error for all. ctx is that
	// of one of the callers: if it ends, the others are asked for once more.
	Ask func(ctx context.Context, round []Q) ([]A, error)

	mu      sync.Mutex
	rounds  int
	waiting []*asker[Q, A]
}

var errNoAnswer = errors.New("the asking ended without an answer")

type asker[Q, A any] struct {
	question Q
	turn     chan struct{} // closed when it is to lead a round
	answered chan struct{} // closed when there is an answer
	answer   A
	err      error
	left     bool // who led the round went away, and with them its asking
}

// Do asks one question. When ctx ends while others ask it too, what they do is not undone.
func (t *Together[Q, A]) Do(ctx context.Context, question Q) (A, error) {
	own := &asker[Q, A]{question: question, turn: make(chan struct{}), answered: make(chan struct{})}
	t.mu.Lock()
	if t.mayBegin(1) {
		t.rounds++
		close(own.turn)
	} else {
		t.waiting = append(t.waiting, own)
	}
	t.mu.Unlock()
	patience := time.NewTimer(cmp.Or(t.Patience, time.Second))
	defer patience.Stop()
	for {
		select {
		case <-own.turn:
			t.lead(ctx, own)
			return own.answer, own.err
		case <-own.answered:
			if own.left {
				return t.Do(ctx, question)
			}
			return own.answer, own.err
		case <-patience.C:
			t.hurry(own)
		case <-ctx.Done():
			t.leave(own)
			var none A
			return none, context.Cause(ctx)
		}
	}
}

// mayBegin reports whether a round may begin for who waits and so many more.
func (t *Together[Q, A]) mayBegin(more int) bool {
	return t.rounds == 0 || t.rounds < t.Rounds && len(t.waiting)+more >= t.Worth
}

// hurry begins a round beyond the number of those that there should be, for one that still waits.
func (t *Together[Q, A]) hurry(own *asker[Q, A]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.waiting, own); i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
		t.rounds++
		close(own.turn)
	}
}

// lead asks for a round, and has the next one led by who waits longest.
func (t *Together[Q, A]) lead(ctx context.Context, own *asker[Q, A]) {
	runtime.Gosched() // those who were answered together ask again together: let them
	round := t.join(own)
	err := errNoAnswer // of a panic, which is its caller's and not the others'
	var answers []A
	defer func() {
		t.passOn()
		for i, a := range round {
			if a.err = err; err == nil {
				a.answer = answers[i]
			}
			a.left = err != nil && ctx.Err() != nil && a != own
			close(a.answered)
		}
	}()
	questions := make([]Q, len(round))
	for i, a := range round {
		questions[i] = a.question
	}
	answers, err = t.Ask(ctx, questions)
}

// join takes those along that fit.
func (t *Together[Q, A]) join(own *asker[Q, A]) []*asker[Q, A] {
	t.mu.Lock()
	defer t.mu.Unlock()
	round, questions := []*asker[Q, A]{own}, []Q{own.question}
	t.waiting = slices.DeleteFunc(t.waiting, func(w *asker[Q, A]) bool {
		if len(round) == t.Most || t.Fits != nil && !t.Fits(questions, w.question) {
			return false
		}
		round, questions = append(round, w), append(questions, w.question)
		return true
	})
	return round
}

// passOn ends a round.
func (t *Together[Q, A]) passOn() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rounds--
	if len(t.waiting) > 0 && t.mayBegin(0) {
		t.rounds++
		close(t.waiting[0].turn)
		t.waiting = t.waiting[1:]
	}
}

// leave gives up the question of a caller who has gone. If it was its turn just now, the next one has it.
func (t *Together[Q, A]) leave(own *asker[Q, A]) {
	t.mu.Lock()
	t.waiting = slices.DeleteFunc(t.waiting, func(w *asker[Q, A]) bool { return w == own })
	t.mu.Unlock()
	select {
	case <-own.turn:
		t.passOn()
	default:
	}
}
