package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// A Report says what one sweep of one merchant did.
type Report struct {
	ID        int64     `json:"sweep_id,omitempty"` // none of a dry run
	Merchant  string    `json:"merchant"`
	DryRun    bool      `json:"dry_run"`
	StartedAt time.Time `json:"started_at"`
	EndedAt   time.Time `json:"ended_at"`
	Until     time.Time `json:"until"` // what was created later belongs to the webhook

	Tally
	DeliveredUnpaid int             `json:"delivered_but_unpaid"` // of the differing: keys were out, and Stripe says there is no money
	Pages           int             `json:"pages"`
	PickedUp        int             `json:"picked_up"` // recorded events that no job worked
	ByKind          map[Kind]*Tally `json:"by_kind"`
	ByReason        map[Reason]int  `json:"by_reason"`
	Late            Lateness        `json:"late"`
	Silence         string          `json:"silence,omitempty"` // payments happen, and no event comes

	// Payments are those that a dry run would settle, or that could not be settled; not more than a thousand.
	Payments []Payment `json:"payments,omitempty"`
	Error    string    `json:"error,omitempty"` // what ended the sweep early
}

// A Tally counts what became of objects and payments.
type Tally struct {
	Walked    int `json:"walked"`    // objects that were compared
	Differing int `json:"differing"` // payments that were to be settled
	Repaired  int `json:"repaired"`
	Unchanged int `json:"unchanged"` // a settle looked at it, and left it as it was
	Ignored   int `json:"ignored"`   // it is no order of keys
	Known     int `json:"known"`     // differs as it did when a settle looked at it; not looked at again
	Failed    int `json:"failed"`
}

// A Payment is one that differs.
type Payment struct {
	Ref    string `json:"ref"`
	Object string `json:"object"`
	Kind   Kind   `json:"kind"`
	Reason Reason `json:"reason,omitempty"`
	Error  string `json:"error,omitempty"`
}

// Lateness says how long after it could be known a difference was repaired.
type Lateness struct {
	MaxSeconds    int64 `json:"max_seconds"`
	MedianSeconds int64 `json:"median_seconds"`
}

// OK reports whether everything that could be settled was.
func (r Report) OK() bool { return r.Failed == 0 && r.Error == "" }

// maxPayments bounds a report's list.
const maxPayments = 1000

func (r *Report) tally(kind Kind) *Tally {
	if r.ByKind == nil {
		r.ByKind = make(map[Kind]*Tally)
	}
	if r.ByKind[kind] == nil {
		r.ByKind[kind] = &Tally{}
	}
	return r.ByKind[kind]
}

func (r *Report) list(p Payment) {
	if len(r.Payments) < maxPayments {
		r.Payments = append(r.Payments, p)
	}
}

// run is one sweep of one merchant under way.
type run struct {
	merchant string
	dry      bool
	started  time.Time
	until    time.Time // what was created later belongs to the webhook
	begin    time.Time // where the first sweep begins
	since    time.Time // zero unless a person asked
	stopped  time.Time // when the last sweep began, if it was stopped on its way
	lease    *lease    // nil in a dry run
	progress func(Progress)

	report  Report
	covered map[Kind]Span // what the walks of this sweep have looked at
	would   map[string]bool
	late    lateness
	silence silence
}

// Progress tells how far a sweep is.
type Progress struct {
	Merchant string
	Kind     Kind    // what is walked; empty: differing payments are settled
	Count    int     // objects that were compared, or payments that were settled
	Part     float64 // of the walk, or of the payments: from 0 to 1
}

func (r *run) tell(kind Kind, count int, done, total time.Duration) {
	if r.progress == nil {
		return
	}
	part := 1.0
	if total > 0 {
		part = float64(done) / float64(total)
	}
	r.progress(Progress{Merchant: r.merchant, Kind: kind, Count: count, Part: part})
}

// fail counts something that could not be done.
func (r *run) fail(kind Kind, ref string, err error) {
	r.report.Failed++
	r.report.tally(kind).Failed++
	r.report.list(Payment{Ref: ref, Kind: kind, Error: err.Error()})
}

// wouldSettle notes what a dry run found, each payment once.
func (r *run) wouldSettle(d difference) {
	if r.would[d.ref()] {
		return
	}
	r.would[d.ref()] = true
	r.counts(d.kind, d.reason)
	r.report.list(Payment{Ref: d.ref(), Object: d.ID, Kind: d.kind, Reason: d.reason})
}

func (r *run) counts(kind Kind, reason Reason) {
	r.report.Differing++
	r.report.tally(kind).Differing++
	if r.report.ByReason == nil {
		r.report.ByReason = make(map[Reason]int)
	}
	r.report.ByReason[reason]++
	if reason == DeliveredUnpaid {
		r.report.DeliveredUnpaid++
	}
}

// settled counts what became of a payment that differed.
func (r *run) settled(t todo, what outcome, cause error, at time.Time) {
	r.counts(t.Kind, t.Reason)
	tally := r.report.tally(t.Kind)
	switch what {
	case repaired:
		r.report.Repaired++
		tally.Repaired++
		r.late.add(at.Sub(t.Known))
	case unchanged:
		r.report.Unchanged++
		tally.Unchanged++
	case ignored:
		r.report.Ignored++
		tally.Ignored++
	case failed:
		r.report.Failed++
		tally.Failed++
		r.report.list(Payment{Ref: t.Ref, Object: t.Objects[0], Kind: t.Kind, Reason: t.Reason, Error: cause.Error()})
	}
}

// goesOn reports whether a kind was walked by the sweep that was stopped, which this one goes on with.
func (r *run) goesOn(c cursor) bool {
	return !r.stopped.IsZero() && r.started.Sub(r.stopped) < 2*resumable && c.lookedAt.Equal(r.stopped)
}

// looked reports whether this sweep has looked at the object of a kind that was created then.
func (r *run) looked(kind Kind, created time.Time) bool {
	at, ok := r.covered[kind]
	return ok && !created.Before(at.From) && created.Before(at.To)
}

// lateness keeps how late repairs were, as numbers of repairs by second: exact below four hours, and to a hundredth above,
// so that it stays small however many there are.
type lateness struct {
	counts map[int64]int
	total  int
	max    int64
}

func (l *lateness) add(late time.Duration) {
	seconds := max(0, int64(late/time.Second))
	l.max = max(l.max, seconds)
	if l.counts == nil {
		l.counts = make(map[int64]int)
	}
	step := int64(1)
	for seconds/step >= exactSeconds {
		step *= 2
	}
	l.counts[seconds/step*step]++
	l.total++
}

const exactSeconds = 4 * 60 * 60

func (l *lateness) report() Lateness {
	seconds := make([]int64, 0, len(l.counts))
	for s := range l.counts {
		seconds = append(seconds, s)
	}
	slices.Sort(seconds)
	half := (l.total + 1) / 2
	for _, s := range seconds {
		if half -= l.counts[s]; half <= 0 {
			return Lateness{MaxSeconds: l.max, MedianSeconds: s}
		}
	}
	return Lateness{}
}

const (
	// A sweep without an end was stopped, or its process died. Index: sweeps_pkey.
	readStopped = `
SELECT started_at, ended_at IS NULL FROM keytill.sweeps WHERE merchant_id = $1 ORDER BY sweep_id DESC LIMIT 1`

	insertSweep = `INSERT INTO keytill.sweeps (merchant_id, started_at) VALUES ($1, $2) RETURNING sweep_id`

	// Index: sweeps_pkey.
	updateSweep = `UPDATE keytill.sweeps SET ended_at = $3, report = $4 WHERE merchant_id = $1 AND sweep_id = $2`

	// Reports are kept for a year. Index: sweeps_started.
	forgetSweeps = `DELETE FROM keytill.sweeps WHERE merchant_id = $1 AND started_at < $2`

	// Index: sweeps_started.
	readReports = `
SELECT report FROM keytill.sweeps
 WHERE merchant_id = $1 AND ended_at IS NOT NULL ORDER BY started_at DESC, sweep_id DESC LIMIT $2`
)

const reportsKept = 366 * 24 * time.Hour

// begin notes that a sweep is under way, and whether the last one was stopped.
func (s *Sweeper) begin(ctx context.Context, r *run) error {
	var stopped bool
	err := s.db.QueryRow(ctx, readStopped, r.merchant).Scan(&r.stopped, &stopped)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("read how the last sweep ended: %w", err)
	}
	if !stopped {
		r.stopped = time.Time{}
	}
	if err := s.db.QueryRow(ctx, insertSweep, r.merchant, r.started).Scan(&r.report.ID); err != nil {
		return fmt.Errorf("begin a report: %w", err)
	}
	return nil
}

// save keeps the report. That of a sweep that was told to stop has no end: the next one goes on with it.
func (s *Sweeper) save(ctx context.Context, r Report) error {
	var ended *time.Time
	if ctx.Err() == nil {
		ended = &r.EndedAt
	}
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
	defer cancel()
	batch := &pgx.Batch{}
	batch.Queue(updateSweep, r.Merchant, r.ID, ended, text)
	batch.Queue(forgetSweeps, r.Merchant, r.EndedAt.Add(-reportsKept))
	batch.Queue(forgetLooked, r.Merchant, r.EndedAt.Add(-lookedFor))
	if err := s.db.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("keep the report: %w", err)
	}
	return nil
}

// Reports are those of a merchant's last sweeps, newest first.
func (s *Sweeper) Reports(ctx context.Context, merchant string, limit int) ([]Report, error) {
	return LastReports(ctx, s.db, merchant, limit)
}
