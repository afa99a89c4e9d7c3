package jobs

import (
	"context"
	"time"
)

const (
	lookAtClock = time.Second
	setBack     = time.Minute // by less, a clock is only put right
)

// Era returns a context that ends with ctx, or when the clock is set back. The queue counts on time that goes on: after
// that, it would do nothing periodic until the time comes again that it saw last, so it is to be started anew.
func Era(ctx context.Context, now func() time.Time) (context.Context, context.CancelFunc) {
	era, end := context.WithCancel(ctx)
	go func() {
		tick := time.NewTicker(lookAtClock)
		defer tick.Stop()
		last := now().Round(0) // the time on the wall alone
		for {
			select {
			case <-era.Done():
				return
			case <-tick.C:
			}
			at := now().Round(0)
			if at.Before(last.Add(-setBack)) {
				end()
				return
			}
			last = at
		}
	}()
	return era, end
}
