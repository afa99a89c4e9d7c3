package pg_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/keytill/keytill/internal/pg"
)

func wantAnswers(t *testing.T, outs ...<-chan answered) {
	t.Helper()
	for _, out := range outs {
		if got := <-out; got.err != nil {
			t.Error(got.err)
		}
	}
}

// gate is an asking that the test lets through.
type gate struct {
	mu     sync.Mutex
	rounds [][]int
	begun  chan []int
	pass   chan error
}

func newGate() *gate { return &gate{begun: make(chan []int), pass: make(chan error)} }

func (g *gate) ask(_ context.Context, round []int) ([]int, error) {
	g.mu.Lock()
	g.rounds = append(g.rounds, slices.Clone(round))
	g.mu.Unlock()
	g.begun <- round
	if err := <-g.pass; err != nil {
		return nil, err
	}
	answers := make([]int, len(round))
	for i, q := range round {
		answers[i] = 10 * q
	}
	return answers, nil
}

// asking has somebody ask, and returns where the answer will be.
func asking(ctx context.Context, t *pg.Together[int, int], q int) <-chan answered {
	out := make(chan answered, 1)
	go func() {
		a, err := t.Do(ctx, q)
		out <- answered{a, err}
	}()
	return out
}

type answered struct {
	answer int
	err    error
}

func together(g *gate, most int, fits func([]int, int) bool) *pg.Together[int, int] {
	return &pg.Together[int, int]{Rounds: 1, Most: most, Patience: time.Hour, Fits: fits, Ask: g.ask}
}

func TestWhoComesMeanwhileSharesTheNextRound(t *testing.T) {
	t.Parallel()
	g := newGate()
	shared := together(g, 3, nil)
	outs := []<-chan answered{asking(t.Context(), shared, 1)}
	<-g.begun
	for q := 2; q <= 6; q++ {
		outs = append(outs, asking(t.Context(), shared, q))
	}
	pg.WaitForWaiting(shared, 5)
	g.pass <- nil
	sizes := []int{1}
	for range 2 {
		sizes = append(sizes, len(<-g.begun))
		g.pass <- nil
	}
	for i, out := range outs {
		if got := <-out; got.err != nil || got.answer != 10*(i+1) {
			t.Errorf("%d was answered %d, %v", i+1, got.answer, got.err)
		}
	}
	if !slices.Equal(sizes, []int{1, 3, 2}) {
		t.Errorf("rounds of %v, want 1, then three, then the rest", sizes)
	}
}

func TestWhoDoesNotFitHasTheNextRound(t *testing.T) {
	t.Parallel()
	g := newGate()
	shared := together(g, 10, func(round []int, next int) bool { return round[0]%2 == next%2 })
	first := asking(t.Context(), shared, 1)
	<-g.begun
	outs := []<-chan answered{first}
	for i, q := range []int{2, 3, 4, 5} {
		outs = append(outs, asking(t.Context(), shared, q))
		pg.WaitForWaiting(shared, i+1)
	}
	g.pass <- nil
	for _, want := range [][]int{{2, 4}, {3, 5}} {
		if got := <-g.begun; !slices.Equal(got, want) {
			t.Errorf("a round of %v, want %v", got, want)
		}
		g.pass <- nil
	}
	wantAnswers(t, outs...)
}

func TestAnErrorIsEverybodysAndTheNextRoundGoesOn(t *testing.T) {
	t.Parallel()
	g := newGate()
	shared := together(g, 10, nil)
	outs := []<-chan answered{asking(t.Context(), shared, 1)}
	<-g.begun
	outs = append(outs, asking(t.Context(), shared, 2), asking(t.Context(), shared, 3))
	pg.WaitForWaiting(shared, 2)
	g.pass <- nil
	<-g.begun
	boom := errors.New("boom")
	g.pass <- boom
	if got := <-outs[0]; got.err != nil {
		t.Error(got.err)
	}
	for _, out := range outs[1:] {
		if got := <-out; !errors.Is(got.err, boom) {
			t.Errorf("got %+v, want the round's error", got)
		}
	}
	last := asking(t.Context(), shared, 4)
	<-g.begun
	g.pass <- nil
	if got := <-last; got.err != nil || got.answer != 40 {
		t.Errorf("after an error: %+v", got)
	}
}

func TestWhoLeavesIsNotAskedForAndHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	g := newGate()
	shared := together(g, 10, nil)
	first := asking(t.Context(), shared, 1)
	<-g.begun
	ctx, cancel := context.WithCancel(t.Context())
	leaver := asking(ctx, shared, 2)
	pg.WaitForWaiting(shared, 1)
	cancel()
	if got := <-leaver; !errors.Is(got.err, context.Canceled) {
		t.Errorf("who left got %+v", got)
	}
	stayer := asking(t.Context(), shared, 3)
	pg.WaitForWaiting(shared, 1)
	g.pass <- nil
	if got := <-g.begun; !slices.Equal(got, []int{3}) {
		t.Errorf("a round of %v after one has left", got)
	}
	g.pass <- nil
	wantAnswers(t, first, stayer)
}

// The context of who leads a round is theirs alone.
func TestWhoLeadsARoundAndLeavesTakesNobodyAlong(t *testing.T) {
	t.Parallel()
	g := newGate()
	shared := together(g, 10, nil)
	first := asking(t.Context(), shared, 1)
	<-g.begun
	ctx, cancel := context.WithCancel(t.Context())
	leader := asking(ctx, shared, 2)
	pg.WaitForWaiting(shared, 1)
	other := asking(t.Context(), shared, 3)
	pg.WaitForWaiting(shared, 2)
	g.pass <- nil
	if got := <-g.begun; !slices.Equal(got, []int{2, 3}) {
		t.Errorf("a round of %v", got)
	}
	cancel()
	g.pass <- context.Canceled // as a database answers who has gone
	if got := <-g.begun; !slices.Equal(got, []int{3}) {
		t.Errorf("after its leader has gone a round of %v", got)
	}
	g.pass <- nil
	if got := <-leader; !errors.Is(got.err, context.Canceled) {
		t.Errorf("the leader got %+v", got)
	}
	wantAnswers(t, first, other)
}

func TestAPanicIsItsCallersAndTheOthersGetAnError(t *testing.T) {
	t.Parallel()
	g := newGate()
	shared := &pg.Together[int, int]{Rounds: 1, Most: 10, Patience: time.Hour, Ask: func(ctx context.Context, round []int) ([]int, error) {
		if len(round) == 2 {
			panic("in the middle")
		}
		return g.ask(ctx, round)
	}}
	first := asking(t.Context(), shared, 1)
	<-g.begun
	panicked := make(chan any, 1)
	go func() {
		defer func() { panicked <- recover() }()
		_, _ = shared.Do(t.Context(), 2)
	}()
	pg.WaitForWaiting(shared, 1)
	other := asking(t.Context(), shared, 3)
	pg.WaitForWaiting(shared, 2)
	g.pass <- nil
	if got := <-first; got.err != nil {
		t.Error(got.err)
	}
	if got := <-panicked; got != "in the middle" {
		t.Errorf("its caller recovered %v", got)
	}
	if got := <-other; got.err == nil {
		t.Error("who was with it got no error")
	}
	last := asking(t.Context(), shared, 4)
	<-g.begun
	g.pass <- nil
	if got := <-last; got.err != nil {
		t.Error(got.err)
	}
}

func TestARoundBesideAnotherIsForMany(t *testing.T) {
	t.Parallel()
	g := newGate()
	shared := &pg.Together[int, int]{Rounds: 2, Most: 10, Worth: 3, Patience: time.Hour, Ask: g.ask}
	outs := []<-chan answered{asking(t.Context(), shared, 1)}
	<-g.begun
	for q := 2; q <= 3; q++ {
		outs = append(outs, asking(t.Context(), shared, q))
		pg.WaitForWaiting(shared, q-1)
	}
	outs = append(outs, asking(t.Context(), shared, 4))
	if got := <-g.begun; len(got) != 3 {
		t.Errorf("beside the first a round of %v began, want three", got)
	}
	g.pass <- nil
	g.pass <- nil
	wantAnswers(t, outs...)
}

func TestNobodyWaitsForLongForARoundThatHangs(t *testing.T) {
	t.Parallel()
	g := newGate()
	shared := together(g, 10, nil)
	shared.Patience = 10 * time.Millisecond
	hangs := asking(t.Context(), shared, 1)
	<-g.begun
	other := asking(t.Context(), shared, 2)
	if got := <-g.begun; !slices.Equal(got, []int{2}) { // while the first still hangs
		t.Errorf("a round of %v", got)
	}
	g.pass <- nil
	g.pass <- nil
	wantAnswers(t, hangs, other)
}

// Many ask at once, and some leave: everybody who stays gets their own answer, and at most so many rounds run.
func TestEverybodyGetsTheirOwnAnswer(t *testing.T) {
	t.Parallel()
	var (
		mu      sync.Mutex
		running int
		group   sync.WaitGroup
	)
	shared := &pg.Together[int, int]{Rounds: 2, Most: 7, Patience: time.Hour, Ask: func(_ context.Context, round []int) ([]int, error) {
		mu.Lock()
		running++
		if running > 2 || len(round) > 7 {
			t.Errorf("%d rounds at once, this of %d", running, len(round))
		}
		mu.Unlock()
		answers := make([]int, len(round))
		for i, q := range round {
			answers[i] = -q
		}
		mu.Lock()
		running--
		mu.Unlock()
		return answers, nil
	}}
	for n := range 200 {
		group.Go(func() {
			for i := range 50 {
				ctx, cancel := context.WithCancel(t.Context())
				if n%5 == 0 {
					go cancel()
				}
				q := 1000*n + i
				if a, err := shared.Do(ctx, q); err == nil && a != -q || err != nil && n%5 != 0 {
					t.Errorf("%d was answered %d, %v", q, a, err)
				}
				cancel()
			}
		})
	}
	group.Wait()
}
