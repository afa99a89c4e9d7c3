package pg

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// Together lets callers that ask at the same time share the asking, since a transaction, a statement and a round trip
// cost nearly the same for twenty rows as for one. Nobody waits for company: who comes while few ask, asks at once, and
// takes along those who came while it could not.
type Together[Q, A any] struct {
	Rounds int // askings at once: while one commits, the next fills
	Most   int // callers in one

	// Fits says whether a caller may join a round; nil: any may.
	Fits func(round []Q, next Q) bool

	// Ask answers a round, with an answer for each of its questions in their order, or with one error for all. ctx is that
	// of one of the callers, so it may end before the others' do.
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
}

// Do asks one question. When ctx ends while others ask it too, what they do is not undone.
func (t *Together[Q, A]) Do(ctx context.Context, question Q) (A, error) {
	own := &asker[Q, A]{question: question, turn: make(chan struct{}), answered: make(chan struct{})}
	t.mu.Lock()
	if t.rounds < t.Rounds {
		t.rounds++
		close(own.turn)
	} else {
		t.waiting = append(t.waiting, own)
	}
	t.mu.Unlock()
	select {
	case <-own.turn:
		t.lead(ctx, own)
		return own.answer, own.err
	case <-own.answered:
		return own.answer, own.err
	case <-ctx.Done():
		t.leave(own)
		var none A
		return none, context.Cause(ctx)
	}
}

// lead asks for a round, and has the next one led by who waits longest.
func (t *Together[Q, A]) lead(ctx context.Context, own *asker[Q, A]) {
	round := t.join(own)
	err := errNoAnswer // of a panic, which is its caller's and not the others'
	var answers []A
	defer func() {
		t.passOn()
		for i, a := range round {
			if a.err = err; err == nil {
				a.answer = answers[i]
			}
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
	if len(t.waiting) == 0 {
		t.rounds--
		return
	}
	close(t.waiting[0].turn)
	t.waiting = t.waiting[1:]
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
