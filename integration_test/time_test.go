package integration_test

import (
	"context"
	"fmt"
	"time"
)

const (
	settleTimeout = 30 * time.Second
	settleEvery   = 20 * time.Millisecond

	// inFlightTimeout is how long work that was begun may take to end before the clock moves on: none of it takes
	// minutes by itself.
	inFlightTimeout = 5 * time.Second
)

// settle
func settle(ctx context.Context, c *call) error {
	if err := c.exactly(""); err != nil {
		return err
	}
	return c.settle(ctx)
}

// settle waits until nothing is left to do for now.
func (s *scenario) settle(ctx context.Context) error {
	return s.awaitIdle(ctx, settleTimeout, everything)
}

// clock +20m
func clockForward(ctx context.Context, c *call) error {
	if err := c.exactly("+TIME"); err != nil {
		return err
	}
	d, err := ahead(c.words[0])
	if err != nil {
		return err
	}
	// What was begun before belongs to the time before. If it hangs, so be it.
	of := everything
	if c.held() {
		of = notRunning // the script itself keeps what runs from ending
	}
	_ = c.awaitIdle(ctx, inFlightTimeout, of&^openEvents)
	c.clock.forward(d)
	if err := c.tick(ctx); err != nil {
		return err
	}
	return c.awaitIdle(ctx, settleTimeout, of)
}

// tick does what keytill's periodic work would do next by the real clock. Each kind of it has its place here.
func (s *scenario) tick(ctx context.Context) error {
	if err := s.rescueJobs(ctx); err != nil {
		return err
	}
	if _, err := s.life.shop.Service().PickUp(ctx); err != nil {
		return fmt.Errorf("pick up events that lost their job: %w", err)
	}
	if err := s.life.shop.Service().TellFindings(ctx); err != nil {
		return fmt.Errorf("tell of findings: %w", err)
	}
	if _, err := s.life.shop.Service().TidyShelf(ctx); err != nil {
		return fmt.Errorf("tidy the shelf: %w", err)
	}
	return s.promoteJobs(ctx)
}

// awaitIdle waits until nothing is open, while it lets run what becomes due.
func (s *scenario) awaitIdle(ctx context.Context, timeout time.Duration, of openKind) error {
	deadline := time.Now().Add(timeout)
	for {
		if ended, err := s.life.hasEnded(); ended {
			return fmt.Errorf("keytill has ended by itself: %v", err)
		}
		if err := s.promoteJobs(ctx); err != nil {
			return err
		}
		open, err := s.open(ctx, of)
		if err != nil || len(open) == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("after %s there is still something to do:\n%s", timeout, s.situation())
		}
		time.Sleep(settleEvery)
	}
}

// restart [kill]
func restart(ctx context.Context, c *call) error {
	switch {
	case len(c.words) == 0:
		if err := c.life.stop(); err != nil {
			return fmt.Errorf("stop keytill: %w", err)
		}
	case len(c.words) == 1 && c.words[0] == "kill":
		if err := c.awaitBusy(ctx); err != nil {
			return err
		}
		c.life.kill()
	default:
		return fmt.Errorf("it takes nothing or kill, not %q", c.words)
	}
	life, err := c.start(ctx)
	if err != nil {
		return err
	}
	c.life = life
	return nil
}

// busyTimeout is how long a kill waits for work to be begun.
const busyTimeout = time.Second

// awaitBusy waits until keytill is in the midst of work, if there is any: that is when a kill is worth a test.
func (s *scenario) awaitBusy(ctx context.Context) error {
	for deadline := time.Now().Add(busyTimeout); time.Now().Before(deadline); time.Sleep(settleEvery) {
		running, err := s.open(ctx, runningJobs)
		if err != nil || len(running) > 0 {
			time.Sleep(settleEvery) // from the queue to the first call it makes
			return err
		}
		if due, err := s.open(ctx, dueJobs); err != nil || len(due) == 0 {
			return err
		}
	}
	return nil
}
