package fulfillment

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/keytill/keytill/internal/pg"
	"github.com/keytill/keytill/inventory"
)

// Errors that a settle can end with. None of them changes anything.
var (
	// ErrNotFound is returned by Stripe for an id that it does not know, or no longer.
	ErrNotFound = errors.New("Stripe knows no such object")

	// ErrRefusedRead says that Stripe calls the question for an object malformed, so that asking again will hardly help.
	ErrRefusedRead = errors.New("Stripe does not take the question")

	// ErrNotOurs says that a payment sells no keys: another application's, a subscription, a setup.
	ErrNotOurs = errors.New("this payment is not an order of keys")

	// ErrNoOrder says that keytill has no such order.
	ErrNoOrder = errors.New("no such order")

	// ErrElsewhere says that units are changed by the storefront's own process alone, which writes its own tables in the
	// same transaction.
	ErrElsewhere = errors.New("the storefront's own process does this, in a transaction with its own tables")

	// ErrStale says that a settle with a newer reading of Stripe was applied first.
	ErrStale = errors.New("a newer reading of Stripe was applied meanwhile")
)

// Stripe reads the truth about payments. The package that talks to Stripe implements it.
type Stripe interface {
	// Payment reads the payment that ref belongs to: the id of a Checkout Session, PaymentIntent, charge, refund,
	// dispute, early fraud warning or review. It returns ErrNotFound for an id that Stripe does not know, and ErrNotOurs
	// for an object that belongs to no payment.
	Payment(ctx context.Context, merchant, ref string) (Payment, error)
}

// Jobs inserts jobs into the job queue, in the transaction that needs them.
type Jobs interface {
	InsertManyTx(ctx context.Context, tx pgx.Tx, params []river.InsertManyParams) ([]*rivertype.JobInsertResult, error)
}

// Config is what a Service needs.
type Config struct {
	DB     *pgxpool.Pool
	Stripe Stripe // nil where nothing is settled, as in most of the command line
	Jobs   Jobs
	Keyset *inventory.Keyset
	Policy Policy

	HoldFor time.Duration // how long a reservation lasts; DefaultHold unless set

	HookKeys bool // hooks carry the text of the keys they are about

	// InTx is called in every transaction that changes units of an order, once for the order, after keytill's own rows are
	// written. What it returns rolls all of it back. It may run again for a transaction that is tried again.
	InTx func(ctx context.Context, tx pgx.Tx, change Change) error

	Observer Observer

	Now    func() time.Time // time.Now unless set
	Logger *slog.Logger     // slog.Default unless set
}

// Service settles payments and keeps what follows from them.
type Service struct {
	db      *pgxpool.Pool
	stripe  Stripe
	jobs    Jobs
	keyset  *inventory.Keyset
	policy  Policy
	now     func() time.Time
	log     *slog.Logger
	claimer *inventory.Claimer
	flights flights

	tickets pg.Together[orderName, ticket]
	sales   pg.Together[reading, settled]
	orders  pg.Together[orderName, Order]

	observer Observer
	holdFor  time.Duration
	hookKeys bool
	inTx     func(ctx context.Context, tx pgx.Tx, change Change) error

	usualReleased average
}

// New makes a Service.
func New(c Config) (*Service, error) {
	if c.DB == nil || c.Jobs == nil || c.Keyset == nil {
		return nil, errors.New("fulfillment: Config needs DB, Jobs and Keyset")
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.HoldFor < 0 {
		return nil, fmt.Errorf("fulfillment: a reservation cannot last %s", c.HoldFor)
	}
	if c.HoldFor == 0 {
		c.HoldFor = DefaultHold
	}
	s := &Service{holdFor: c.HoldFor, db: c.DB, stripe: c.Stripe, jobs: c.Jobs, keyset: c.Keyset, policy: c.Policy, now: c.Now,
		log: c.Logger, claimer: inventory.NewClaimer(), hookKeys: c.HookKeys, inTx: c.InTx, observer: c.Observer}
	s.tickets = pg.Together[orderName, ticket]{Rounds: maxRounds, Most: maxTogether, Worth: worthRound, Ask: s.takeTickets}
	s.sales = pg.Together[reading, settled]{Rounds: maxRounds, Most: maxTogether, Worth: worthRound, Fits: shareable, Ask: s.sell}
	s.orders = pg.Together[orderName, Order]{Rounds: maxRounds, Most: maxTogether, Worth: worthRound, Fits: ofOneMerchant, Ask: s.loadTogether}
	return s, nil
}

// Settles that are ready at the same time share their numbers, their transaction and the reading of their orders. Few large
// rounds cost less than many small ones: two claims of one pool at once walk over each other's keys.
const (
	maxRounds   = 2
	worthRound  = 16
	maxTogether = 64
)

// ClaimStats count what claims of this Service have come to.
func (s *Service) ClaimStats() inventory.ClaimStats { return s.claimer.Stats() }

// average is a moving average that several goroutines may feed.
type average struct {
	mu    sync.Mutex
	value float64
}

// averageWeight is what the newest number counts for.
const averageWeight = 0.1

// swap feeds a number and returns the average before it.
func (a *average) swap(n int) (before float64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before = a.value
	a.value += averageWeight * (float64(n) - a.value)
	return before
}
