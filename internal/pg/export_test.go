package pg

import "time"

// WaitForWaiting returns once so many wait for a round.
func WaitForWaiting[Q, A any](t *Together[Q, A], n int) {
	for {
		t.mu.Lock()
		waiting := len(t.waiting)
		t.mu.Unlock()
		if waiting == n {
			return
		}
		time.Sleep(time.Millisecond)
	}
}
