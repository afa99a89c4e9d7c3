// Package demo plays a shop's worst day on one machine, with keytill's real parts: a PostgreSQL of its own, Stripe, mail
// server and storefront on the loopback, and between them the Shop that a storefront would mount.
//
//	stage   what is there: database, fake Stripe, mail server, receiver of hooks, the shop
//	story   what happens: orders at once, lost webhooks, a shortage, a refund, a sweep, old events
//	Report  what became of it, read back from the database and from those who received something
//
//	stay    what is open afterwards, if that is asked for: console, API, and a storefront to play with
//
// Nothing of it outlives Run.
package demo

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keytill/keytill/inventory"
)

// Limits of what can be asked for.
const (
	Most          = 10_000
	DefaultOrders = 50
	DefaultKeys   = 50
)

// Config says how large the day is.
type Config struct {
	Orders int // bought at once, from 1 to Most
	Keys   int // on the shelf at first, from 1 to Most

	// Progress is told how far the demo is, from one goroutine; nil is silence.
	Progress func(Progress)
	Logger   *slog.Logger // what keytill itself logs; nil is silence

	// Stay, if set, is where the shop stays open after the story, until Run's context ends: with the console and the API, and
	// with a storefront to buy in. Opened is told once it is open.
	Stay   net.Listener
	Opened func(Report)

	// BeforeChecks is called when all has happened and nothing is checked yet. It is for tests, which break something
	// here and see that the checks find it.
	BeforeChecks func(ctx context.Context, db *pgxpool.Pool, keyset *inventory.Keyset) error
}

// Check says what is wrong with the numbers.
func (c Config) Check() error {
	if c.Orders < 1 || c.Orders > Most {
		return fmt.Errorf("%d orders: it must be from 1 to %d", c.Orders, Most)
	}
	if c.Keys < 1 || c.Keys > Most {
		return fmt.Errorf("%d keys: it must be from 1 to %d", c.Keys, Most)
	}
	return nil
}

// Progress is how far a step is. The last one of a step is Over and has its Note.
type Progress struct {
	Step        string
	Done, Total int // zero where there is nothing to count
	Over        bool
	Note        string // what the step came to
	Took        time.Duration
}

// Run plays the demo and takes everything down again, also when ctx ends early. It returns an error when the demo could
// not be played; that a promise was broken is in the Report. A shop that stays open until ctx ends is no error.
func Run(ctx context.Context, c Config) (Report, error) {
	if err := c.Check(); err != nil {
		return Report{}, err
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Progress == nil {
		c.Progress = func(Progress) {}
	}
	began := time.Now()
	// What the story waits for ends with the stage, and says why: a database that is gone, workers that have failed.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	st := &stage{log: c.Logger, fail: cancel, every: -1}
	defer st.close()
	s := &story{Config: c, stage: st, ctx: ctx, began: began}
	report, err := s.play()
	if err == nil && c.Stay != nil {
		return s.stay(report)
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	return report, err
}

// play is the whole day.
func (s *story) play() (Report, error) {
	for _, step := range []struct {
		title string
		run   func() (note string, err error)
	}{
		{"Starting PostgreSQL, Stripe, mail and storefront", func() (string, error) { return s.open(s.ctx) }},
		{"Importing keys", s.stock},
		{"Orders at once", s.rush},
		{"A webhook that never came", s.lost},
		{"One order too many", s.shortage},
		{"A refund", s.refund},
		{"A webhook that nobody asks about", s.sweep},
		{"Three days later", s.later},
	} {
		if err := s.step(step.title, step.run); err != nil {
			return Report{}, err
		}
	}
	if s.BeforeChecks != nil {
		if err := s.BeforeChecks(s.ctx, s.db, s.keyset); err != nil {
			return Report{}, err
		}
	}
	var report Report
	err := s.step("Checking", func() (note string, err error) {
		report, err = s.report()
		return "", err
	})
	return report, err
}
