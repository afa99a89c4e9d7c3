package inventory

import (
	"testing"
	"testing/synctest"
	"time"
)

// put has claims begin at a position.
func (m *hints) put(ref poolRef, position int64) {
	m.forget(ref)
	m.remember(ref, hint{}, position, 0)
}

// age lets time pass for a pool's hint.
func (m *hints) age(ref poolRef, by time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.of[ref]
	h.walked = h.walked.Add(-by - time.Millisecond)
	m.of[ref] = h
}

var hinted = poolRef{DefaultMerchant, 1}

func newHints() *hints { return &hints{of: make(map[poolRef]hint)} }

func TestOneClaimAtATimeWalksFromTheHead(t *testing.T) {
	t.Parallel()
	m := newHints()
	m.put(hinted, 1000)
	m.age(hinted, pauseAtLeast)
	walker := m.from(hinted)
	if walker.position != 0 {
		t.Fatalf("the first begins at %d, want the head", walker.position)
	}
	other := m.from(hinted)
	if other.position != 1000 {
		t.Errorf("another begins at %d while the first walks, want the hint", other.position)
	}
	m.remember(hinted, walker, 7, 0) // a key is back
	if next := m.from(hinted); next.position != 7 {
		t.Errorf("the next begins at %d, want where the walk found a key", next.position)
	}
	m.remember(hinted, other, 1001, 0) // began before the walk ended
	if next := m.from(hinted); next.position != 7 {
		t.Errorf("the next begins at %d: past what the walk found", next.position)
	}
	m.remember(hinted, m.from(hinted), 8, 0)
	if next := m.from(hinted); next.position != 8 {
		t.Errorf("the next begins at %d, want 8", next.position)
	}
}

// A walk that found nothing, or whose transaction failed, is followed by another.
func TestAWalkThatCameToNothingIsMadeAgain(t *testing.T) {
	t.Parallel()
	m := newHints()
	m.put(hinted, 1000)
	for range 3 {
		m.age(hinted, pauseAtLeast)
		if at := m.from(hinted).position; at != 0 {
			t.Errorf("a claim begins at %d, want the head", at)
		}
	}
}

func TestALongWalkIsFollowedByALongPause(t *testing.T) {
	t.Parallel()
	for took, pause := range map[time.Duration]time.Duration{time.Millisecond: pauseAtLeast, time.Second: 50 * time.Second,
		time.Hour: pauseAtMost} {
		synctest.Test(t, func(t *testing.T) {
			m := newHints()
			m.remember(hinted, hint{}, 1000, took)
			time.Sleep(pause)
			if m.from(hinted).position != 1000 {
				t.Errorf("after a walk of %v the next comes before %v have passed", took, pause)
			}
			time.Sleep(time.Second)
			if m.from(hinted).position != 0 {
				t.Errorf("after a walk of %v none comes within %v", took, pause+time.Second)
			}
		})
	}
}
