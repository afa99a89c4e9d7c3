package integration_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/internal/stripefake"
)

// overtaken is the error of a settle, unless a newer one has done its work.
func overtaken(err error) error {
	if errors.Is(err, fulfillment.ErrStale) {
		return nil
	}
	return err
}

// A thousand orders, every event several times and in no order, and a keytill that is killed again and again in the midst
// of it: each order gets one key, and no key goes to two.
func TestStormOfOrdersWithDuplicatesAndKills(t *testing.T) {
	t.Parallel()
	rounds(t, 1, 20, func(t *testing.T, round int) {
		w := newTown(t)
		s := &storm{town: w, orders: length(150, 1000), kills: 4, rand: rand.New(rand.NewPCG(uint64(round), 1))}
		s.run()
	})
}

type storm struct {
	*town
	orders, kills int
	rand          *rand.Rand

	mu        sync.Mutex // held while keytill is dead
	delivered atomic.Int64
}

const senders = 16

func (s *storm) run() {
	l := s.town.run()
	pool := s.stock(l.shop, "storm", s.orders, 1, "price_storm")
	events := s.events()
	queue := make(chan stripefake.Event, len(events))
	for _, ev := range events {
		queue <- ev
	}
	close(queue)

	var sending errgroup.Group
	for range senders {
		sending.Go(func() error {
			for ev := range queue {
				if err := s.deliver(ev); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for n := range s.kills {
		s.killAfter(int64(len(events) * (n + 1) / (s.kills + 1)))
	}
	s.must(sending.Wait())
	s.must(s.settle(s.ctx))
	s.wantUnits(pool, map[fulfillment.UnitState]int{fulfillment.UnitFulfilled: s.orders})
	s.hold()
}

// events are those of all orders, shuffled, each up to three times.
func (s *storm) events() []stripefake.Event {
	s.t.Helper()
	var events []stripefake.Event
	for n := range s.orders {
		id := fmt.Sprintf("storm%d", n)
		s.sell("cs_"+id, "price_storm*1")
		for _, about := range [][2]string{{"checkout.session.completed", "cs_" + id}, {"payment_intent.succeeded", "pi_" + id}} {
			ev, err := s.stripe.Event(about[0], about[1], stripefake.EventOptions{})
			s.must(err)
			for range 1 + s.rand.IntN(3) {
				events = append(events, ev)
			}
		}
	}
	s.rand.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
	return events
}

// deliver sends an event until it is answered 200, as Stripe does.
func (s *storm) deliver(ev stripefake.Event) error {
	for try := 0; ; try++ {
		s.mu.Lock()
		url := s.life.url
		s.mu.Unlock()
		status, _, err := s.stripe.Deliver(s.ctx, url+webhookPath, ev)
		if err == nil && status == 200 {
			s.delivered.Add(1)
			return nil
		}
		if try == 100 {
			return fmt.Errorf("%s was not taken: %d %w", ev.ID, status, err)
		}
		time.Sleep(20 * time.Millisecond) // Stripe's pause is longer
	}
}

// killAfter kills keytill once so many events were taken, while it works, and starts the next one.
func (s *storm) killAfter(events int64) {
	s.t.Helper()
	for s.delivered.Load() < events {
		time.Sleep(time.Millisecond)
	}
	s.must(s.awaitBusy(s.ctx))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.life.kill()
	s.clock.forward(deadAfter + time.Minute) // the queue may take its jobs for dead, and the pick-up its events for lost
	s.town.run()
	s.must(s.tick(s.ctx))
}
