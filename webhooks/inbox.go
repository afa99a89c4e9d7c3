package webhooks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/internal/pg"
	"github.com/keytill/keytill/inventory"
)

// StoreConfig is what a Store needs.
type StoreConfig struct {
	DB       *pgxpool.Pool
	Jobs     fulfillment.Jobs
	Livemode bool // the mode of the API key; events of the other mode are recorded and have no effect
	Now      func() time.Time
}

// Store is the inbox in PostgreSQL. It records an event and the job that settles it in one transaction, and events that
// arrive together in the same one: a commit costs a flush to disk, and its statements their way there and back, whether it
// holds one event or fifty.
type Store struct {
	StoreConfig

	grown chan struct{} // told when enough wait for a commit

	mu         sync.Mutex
	waiting    []*entry
	committing int // transactions on their way
	inside     int // events that wait or are on their way
	most       int // of them at once, lately
}

// entry is an event that somebody waits to be recorded.
type entry struct {
	event Event
	done  chan error
}

const (
	maxCommitting = 2  // transactions at once: while one flushes, the next fills
	maxTogether   = 64 // events in one transaction

	// gatherFor is how long a commit waits for more events where many come. Stripe waits for seconds.
	gatherFor = 2 * time.Millisecond
)

// NewStore makes a Store.
func NewStore(c StoreConfig) (*Store, error) {
	if c.DB == nil || c.Jobs == nil {
		return nil, errors.New("webhooks: StoreConfig needs DB and Jobs")
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Store{StoreConfig: c, grown: make(chan struct{}, 1)}, nil
}

// Record returns once the event is committed, with its job if it is one to settle.
func (s *Store) Record(ctx context.Context, event Event) error {
	e := &entry{event: event, done: make(chan error, 1)}
	s.mu.Lock()
	s.waiting = append(s.waiting, e)
	s.inside++
	s.most = max(s.most, s.inside)
	if len(s.waiting) >= s.enough() {
		select {
		case s.grown <- struct{}{}:
		default:
		}
	}
	if s.committing < maxCommitting {
		s.committing++
		go s.commitWaiting()
	}
	s.mu.Unlock()
	select {
	case err := <-e.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("record event %s: %w", event.ID, ctx.Err())
	}
}

// enough is how many events a commit is worth: half of those that were there at once lately, so that while they are on
// their way the others gather. Where events come one by one it is one.
func (s *Store) enough() int { return min(max(s.most/maxCommitting, 1), maxTogether) }

// commitWaiting records what waits, and ends when nothing does.
func (s *Store) commitWaiting() {
	for {
		together := s.gather()
		if len(together) == 0 {
			return
		}
		s.commit(together)
		s.mu.Lock()
		s.inside -= len(together)
		s.most = max(s.inside, s.most-(s.most+7)/8) // fewer of them may be left
		s.mu.Unlock()
	}
}

// gather takes what waits, a moment later if that is little for the time. Where nothing waits, one commit fewer is on its
// way.
func (s *Store) gather() []*entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.waiting); n > 0 && n < s.enough() {
		s.mu.Unlock()
		patience := time.NewTimer(gatherFor)
		select {
		case <-s.grown:
		case <-patience.C:
		}
		patience.Stop()
		s.mu.Lock()
	}
	n := min(len(s.waiting), maxTogether)
	if n == 0 {
		s.committing--
		return nil
	}
	together := slices.Clone(s.waiting[:n])
	s.waiting = slices.Delete(s.waiting, 0, n)
	return together
}

func (s *Store) commit(together []*entry) {
	ctx, cancel := context.WithTimeout(context.Background(), recordTimeout)
	defer cancel()
	err := s.record(ctx, together)
	if err != nil && len(together) > 1 && ctx.Err() == nil {
		// One of them may be at fault, and must not take the others with it.
		for _, e := range together {
			e.done <- s.record(ctx, []*entry{e})
		}
		return
	}
	for _, e := range together {
		e.done <- err
	}
}

const (
	readAccounts = `SELECT stripe_account, merchant_id FROM keytill.merchants WHERE stripe_account = ANY ($1)`

	// A known event that is still pending and has failed before is worth another try now. Index: events_pkey.
	insertEvents = `
INSERT INTO keytill.events AS e
       (merchant_id, event_id, type, object_id, payment, account, livemode, api_version, created_at, received_at, next_try_at,
        state, note, done_at)
SELECT merchant_id, event_id, type, object_id, payment, account, livemode, api_version, created_at, $1::timestamptz, $1, state, note,
       CASE WHEN state <> 'pending' THEN $1 END
  FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bool[], $9::text[], $10::timestamptz[],
              $11::text[], $12::text[])
       AS n (merchant_id, event_id, type, object_id, payment, account, livemode, api_version, created_at, state, note)
ON CONFLICT (merchant_id, event_id) DO UPDATE SET next_try_at = $1
  WHERE e.state = 'pending' AND e.attempts > 0
RETURNING merchant_id, event_id, state`
)

// row is an event with what is to become of it.
type row struct {
	Event
	merchant string
	ignored  string // why it has no effect; empty: it is to be settled
	foreign  bool   // of a Connect account that is no merchant's
}

func (s *Store) record(ctx context.Context, together []*entry) error {
	err := pg.InTx(ctx, s.DB, func(tx pgx.Tx) error {
		rows, err := s.rows(ctx, tx, together)
		if err != nil {
			return err
		}
		return s.insert(ctx, tx, rows)
	})
	if err != nil {
		return fmt.Errorf("record %d events: %w", len(together), err)
	}
	return nil
}

// rows decides what becomes of each event. They are in the order of their ids, each once, so that two transactions with
// the same events do not wait for each other.
func (s *Store) rows(ctx context.Context, tx pgx.Tx, together []*entry) ([]row, error) {
	merchants, err := merchantsOf(ctx, tx, together)
	if err != nil {
		return nil, err
	}
	rows := make([]row, 0, len(together))
	for _, e := range together {
		r := row{Event: e.event, merchant: inventory.DefaultMerchant}
		merchant, known := merchants[e.event.Account]
		if known {
			r.merchant = merchant
		}
		switch {
		case !fulfillment.LeadsToPayment(e.event.Payment):
			r.ignored = "not about a payment"
		case e.event.Livemode != s.Livemode:
			r.ignored = "of the other mode (test or live) than the API key"
		case e.event.Account != "" && !known:
			r.foreign = true
			r.ignored = "account " + e.event.Account + " is no merchant's"
		}
		rows = append(rows, r)
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(a.merchant, b.merchant), cmp.Compare(a.ID, b.ID))
	})
	return slices.CompactFunc(rows, func(a, b row) bool { return a.merchant == b.merchant && a.ID == b.ID }), nil
}

func merchantsOf(ctx context.Context, tx pgx.Tx, together []*entry) (map[string]string, error) {
	var accounts []string
	for _, e := range together {
		if e.event.Account != "" {
			accounts = append(accounts, e.event.Account)
		}
	}
	merchants := make(map[string]string)
	if len(accounts) == 0 {
		return merchants, nil
	}
	found, err := tx.Query(ctx, readAccounts, accounts)
	if err != nil {
		return nil, fmt.Errorf("look for the merchants: %w", err)
	}
	var account, merchant string
	_, err = pgx.ForEachRow(found, []any{&account, &merchant}, func() error {
		merchants[account] = merchant
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for the merchants: %w", err)
	}
	return merchants, nil
}

func (s *Store) insert(ctx context.Context, tx pgx.Tx, rows []row) error {
	now := s.Now()
	c := newColumns(len(rows))
	for _, r := range rows {
		c.add(r)
	}
	inserted, err := tx.Query(ctx, insertEvents, now, c.merchants, c.ids, c.types, c.objects, c.payments, c.accounts, c.livemodes,
		c.versions, c.created, c.states, c.notes)
	if err != nil {
		return fmt.Errorf("insert the events: %w", err)
	}
	pending := make(map[string][]string)
	var merchant, id, state string
	_, err = pgx.ForEachRow(inserted, []any{&merchant, &id, &state}, func() error {
		if state == "pending" {
			pending[merchant] = append(pending[merchant], id)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("insert the events: %w", err)
	}
	for _, r := range rows {
		if !r.foreign {
			continue
		}
		if err := fulfillment.OpenFinding(ctx, tx, r.merchant, fulfillment.Question{Kind: fulfillment.UnknownAccount, Subject: r.Account,
			Detail: "Stripe sends events of account " + r.Account + ": `keytill merchant add ID --account " + r.Account + "` makes it a merchant"}, now); err != nil {
			return err
		}
	}
	if len(pending) == 0 {
		return nil
	}
	jobs := make([]river.InsertManyParams, 0, len(pending))
	for _, merchant := range slices.Sorted(maps.Keys(pending)) {
		jobs = append(jobs, river.InsertManyParams{Args: jobFor(merchant, pending[merchant])})
	}
	if _, err := s.Jobs.InsertManyTx(ctx, tx, jobs); err != nil {
		return fmt.Errorf("insert the jobs: %w", err)
	}
	return nil
}

// jobFor is the job that settles a merchant's events: one row for any number of them. A job costs as much as the event
// itself, and the one that gives them theirs is worked when Stripe has its answer.
func jobFor(merchant string, events []string) river.JobArgs {
	if len(events) == 1 {
		return fulfillment.SettleJob{Merchant: merchant, Event: events[0]}
	}
	return fulfillment.SpreadJob{Merchant: merchant, Events: events}
}

// columns are events as insertEvents takes them.
type columns struct {
	merchants, ids, types, objects, payments, accounts, versions, states, notes []string
	livemodes                                                                   []bool
	created                                                                     []*time.Time
}

func newColumns(n int) *columns {
	text := func() []string { return make([]string, 0, n) }
	return &columns{merchants: text(), ids: text(), types: text(), objects: text(), payments: text(), accounts: text(), versions: text(),
		states: text(), notes: text(), livemodes: make([]bool, 0, n), created: make([]*time.Time, 0, n)}
}

func (c *columns) add(r row) {
	state := "pending"
	if r.ignored != "" {
		state = "ignored"
	}
	var created *time.Time
	if !r.Created.IsZero() {
		created = &r.Created
	}
	c.merchants, c.ids, c.types = append(c.merchants, r.merchant), append(c.ids, r.ID), append(c.types, r.Type)
	c.objects, c.payments, c.accounts = append(c.objects, r.ObjectID), append(c.payments, r.Payment), append(c.accounts, r.Account)
	c.livemodes, c.versions, c.created = append(c.livemodes, r.Livemode), append(c.versions, r.APIVersion), append(c.created, created)
	c.states, c.notes = append(c.states, state), append(c.notes, r.ignored)
}
