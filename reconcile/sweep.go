package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Config is what a Sweeper needs. DB, Stripe and Settler are required.
type Config struct {
	DB      *pgxpool.Pool
	Stripe  Stripe
	Settler Settler

	// Grace is how long an object belongs to the webhook; five minutes unless set.
	Grace time.Duration

	// Window is how far behind the cursor sessions and payments are looked at again, since what is made today may be paid
	// next week; seven days unless set. It should be longer than the longest authorization or bank delay.
	Window time.Duration

	// SilenceAfter is how long no event may come while payments are made; six hours unless set, negative: for ever.
	SilenceAfter time.Duration

	// Reported, if set, is called with the report of each sweep that was not dry, to count it.
	Reported func(Report)

	Now    func() time.Time // time.Now unless set
	Logger *slog.Logger     // slog.Default unless set
}

// Defaults of Config.
const (
	DefaultGrace        = 5 * time.Minute
	DefaultWindow       = 7 * 24 * time.Hour
	DefaultSilenceAfter = 6 * time.Hour
)

// A Sweeper sweeps.
type Sweeper struct {
	db           *pgxpool.Pool
	stripe       Stripe
	settler      Settler
	grace        time.Duration
	window       time.Duration
	silenceAfter time.Duration
	reported     func(Report)
	now          func() time.Time
	log          *slog.Logger
}

// New makes a Sweeper.
func New(c Config) (*Sweeper, error) {
	if c.DB == nil || c.Stripe == nil || c.Settler == nil {
		return nil, errors.New("reconcile: Config needs DB, Stripe and Settler")
	}
	if c.Grace < 0 || c.Window < 0 {
		return nil, errors.New("reconcile: neither Grace nor Window can be negative")
	}
	s := &Sweeper{db: c.DB, stripe: c.Stripe, settler: c.Settler, grace: c.Grace, window: c.Window, silenceAfter: c.SilenceAfter,
		reported: c.Reported, now: c.Now, log: c.Logger}
	if s.grace == 0 {
		s.grace = DefaultGrace
	}
	if s.window == 0 {
		s.window = DefaultWindow
	}
	s.window = max(s.window, overlap)
	if s.silenceAfter == 0 {
		s.silenceAfter = DefaultSilenceAfter
	}
	if s.reported == nil {
		s.reported = func(Report) {}
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	return s, nil
}

// overlap is the least that two sweeps both look at: times at Stripe are whole seconds.
const overlap = 2 * time.Second

// Options say how a sweep differs from the scheduled one.
type Options struct {
	Since    time.Duration  // how far to look back; zero: from where the last sweep ended, and the window behind that
	DryRun   bool           // compare and change nothing
	Progress func(Progress) // called after each page and each round of settles
}

// Index: pools_pkey.
const readBegin = `SELECT min(created_at) FROM keytill.pools WHERE merchant_id = $1`

// Sweep compares a merchant's objects at Stripe with its orders and settles the payments that differ. Where it was
// stopped, by whatever, the next one goes on.
//
// It returns ErrBusy while another process sweeps this merchant. The report is of use even beside another error: that
// says what ended the sweep early. What could not be settled is no error; see Report.OK.
func (s *Sweeper) Sweep(ctx context.Context, merchant string, o Options) (Report, error) {
	ctx = AsSweep(ctx)
	now := s.now()
	r := &run{merchant: merchant, dry: o.DryRun, started: now, until: now.Add(-s.grace), progress: o.Progress,
		covered: make(map[Kind]Span), would: make(map[string]bool)}
	if o.Since > 0 {
		r.since = now.Add(-o.Since)
	}
	r.report = Report{Merchant: merchant, DryRun: o.DryRun, StartedAt: now, Until: r.until}
	if !o.DryRun {
		l, err := s.take(ctx, merchant)
		if err != nil {
			return r.report, fmt.Errorf("sweep merchant %s: %w", merchant, err)
		}
		r.lease = l
		defer l.end(ctx)
		if err := s.begin(ctx, r); err != nil {
			return r.report, fmt.Errorf("sweep merchant %s: %w", merchant, err)
		}
	}
	err := s.sweep(ctx, r)
	r.report.EndedAt = s.now()
	r.report.Late = r.late.report()
	if err != nil {
		err = fmt.Errorf("sweep merchant %s: %w", merchant, err)
		r.report.Error = err.Error()
	}
	if o.DryRun {
		return r.report, err
	}
	s.reported(r.report)
	return r.report, errors.Join(err, s.save(ctx, r.report))
}

func (s *Sweeper) sweep(ctx context.Context, r *run) error {
	var begin *time.Time
	if err := s.db.QueryRow(ctx, readBegin, r.merchant).Scan(&begin); err != nil {
		return fmt.Errorf("look for the first pool: %w", err)
	}
	if begin == nil && r.since.IsZero() {
		return nil // nothing was ever for sale
	}
	if begin != nil {
		r.begin = begin.Add(-overlap)
	}
	r.begin = latest(r.begin, time.Unix(0, 0))
	if err := s.readSilence(ctx, r); err != nil {
		return err
	}
	if !r.dry {
		n, err := s.settler.PickUp(ctx)
		if err != nil {
			return fmt.Errorf("pick up events that no job worked: %w", err)
		}
		r.report.PickedUp = n
	}
	// The lists first, all of them: with all that differs at hand, the oldest payment comes to its keys first.
	var unread error // the kinds that Stripe gave no answer about
	silent := false  // the last one was of those
	for _, kind := range Kinds {
		if kind == Events {
			if err := s.repair(ctx, r); err != nil {
				return errors.Join(unread, err)
			}
		}
		err := s.walkOne(ctx, r, kind)
		if err != nil && (silent || !errors.Is(err, ErrUnavailable) || ctx.Err() != nil) {
			return errors.Join(unread, err)
		}
		// One list that does not come hides neither the others nor what was found. Two in a row are Stripe's absence.
		silent = err != nil
		unread = errors.Join(unread, err)
	}
	if err := s.repair(ctx, r); err != nil || unread != nil {
		return errors.Join(unread, err)
	}
	return s.checkSilence(ctx, r)
}

// walkOne walks one kind. What only concerns this kind is told in the report and does not end the sweep.
func (s *Sweeper) walkOne(ctx context.Context, r *run, kind Kind) error {
	walk := s.walkKind
	if kind == Open {
		walk = func(ctx context.Context, r *run, _ Kind) error { return s.walkOpen(ctx, r) }
	}
	err := walk(ctx, r, kind)
	if errors.Is(err, ErrForbidden) || errors.Is(err, errKind) {
		r.fail(kind, "", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	return nil
}

const readMerchants = `SELECT merchant_id FROM keytill.merchants ORDER BY merchant_id`

// Merchants are all there are to sweep.
func (s *Sweeper) Merchants(ctx context.Context) ([]string, error) {
	rows, err := s.db.Query(ctx, readMerchants)
	if err != nil {
		return nil, fmt.Errorf("read the merchants: %w", err)
	}
	merchants, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("read the merchants: %w", err)
	}
	return merchants, nil
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

type sweepKey struct{}

// AsSweep marks what is done for a sweep, so that whoever shares out Stripe's calls lets others go first.
func AsSweep(ctx context.Context) context.Context { return context.WithValue(ctx, sweepKey{}, true) }

// Sweeping reports whether a call is made for a sweep. Calls for a webhook or a person go before those.
func Sweeping(ctx context.Context) bool { return ctx.Value(sweepKey{}) != nil }
