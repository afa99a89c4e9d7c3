package inventory

import (
	"sync"
	"time"
)

// hints are where in each pool a key was last found: the head of the index is where dead entries pile up while any long
// transaction holds them, and a claim that begins there walks over all of them. They are of this process alone, and nothing
// depends on them.
type hints struct {
	mu sync.Mutex
	of map[poolRef]hint
}

type poolRef struct {
	merchant string
	pool     int64
}

type hint struct {
	position int64
	walks    int           // how many claims have found a key from the head on
	walked   time.Time     // when the last one began to
	pause    time.Duration // after which another does, so that returned keys are found
}

const (
	// Walks from the head come after a pause, and after a longer one where they take long, so that they cost little.
	pauseAtLeast = 5 * time.Second
	pauseAtMost  = 5 * time.Minute
	pauseByWalk  = 50
)

// from is where a claim begins: the zero hint where there is none. When the time for a walk has come it is so for one claim;
// the others go on from the hint meanwhile.
func (m *hints) from(ref poolRef) hint {
	m.mu.Lock()
	defer m.mu.Unlock()
	h, ok := m.of[ref]
	if ok && time.Since(h.walked) > h.pause {
		h.walked = time.Now()
		m.of[ref] = h
		h.position = 0
	}
	return h
}

// remember keeps the first position of a claim that began at from, not the last: a claim that is rolled back then leaves
// little behind. took is how long it took to find.
func (m *hints) remember(ref poolRef, from hint, position int64, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h, ok := m.of[ref]
	switch {
	case !ok || from.position == 0 && from.walks == h.walks:
		h = hint{position, h.walks + 1, time.Now(), min(max(pauseByWalk*took, pauseAtLeast), pauseAtMost)}
	case from.walks == h.walks:
		h.position = max(h.position, position)
	default:
		return // a walk has ended since, and there may be keys again before this one
	}
	m.of[ref] = h
}

func (m *hints) forget(ref poolRef) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.of, ref)
}
