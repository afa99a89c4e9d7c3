package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/keytill/keytill/inventory"
)

// open work, all in one snapshot. An event, and what follows from it, is written in one transaction with its job, so when
// this is nothing, nothing is left to come.
const readOpen = `
SELECT (SELECT count(*) FROM keytill.events WHERE merchant_id = $1 AND state = 'pending'),
       (SELECT count(*) FROM keytill.deliveries WHERE merchant_id = $1 AND state = 'pending'),
       (SELECT count(*) FROM keytill.river_job
         WHERE state IN ('available', 'pending', 'retryable', 'running', 'scheduled') AND kind NOT IN ('pick_up', 'fold')),
       (SELECT count(*) FROM keytill.orders WHERE merchant_id = $1)`

type openWork struct{ events, deliveries, jobs, orders int }

func (o openWork) nothing() bool { return o.events == 0 && o.deliveries == 0 && o.jobs == 0 }

// patience is how long nothing at all may change while work is open. It is longer than the pauses between tries.
const patience = 30 * time.Second

// settled waits until nothing is open.
func (s *story) settled() error {
	posted := make(chan struct{})
	close(posted)
	return s.watch(s.ctx, 0, posted)
}

// watch waits until all is posted and nothing is open, and tells how many orders there are on the way to want.
func (s *story) watch(ctx context.Context, want int, posted <-chan struct{}) error {
	var last openWork
	changed := time.Now()
	return poll(ctx, func() (bool, error) {
		all := isClosed(posted) // before the look: what is posted during it counts as open
		var now openWork
		err := s.db.QueryRow(ctx, readOpen, inventory.DefaultMerchant).Scan(&now.events, &now.deliveries, &now.jobs, &now.orders)
		if err != nil {
			return false, fmt.Errorf("ask for open work: %w", err)
		}
		if want > 0 {
			s.count(min(now.orders, want), want)
		}
		if now != last {
			last, changed = now, time.Now()
		}
		if !now.nothing() && time.Since(changed) > patience {
			return false, fmt.Errorf("nothing has moved for %v: %d events, %d deliveries and %d jobs are open", patience,
				now.events, now.deliveries, now.jobs)
		}
		return all && now.nothing(), nil
	})
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
