package reconcile

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/keytill/keytill/fulfillment"
)

// walk is the walk over one kind of one merchant's objects.
type walk struct {
	*Sweeper
	run     *run
	kind    Kind
	cursor  cursor
	covered Span // from the oldest to the newest that this walk is to look at
	whole   bool // it looks at all of that
	total   time.Duration
	rest    time.Duration // of total

	failures    int // pages that could not be read,
	consecutive int // and those since one could
	left        int // spans that stay behind
}

const (
	// maxFailures bounds the search for the page that cannot be read: a week of seconds is halved twenty times.
	maxFailures = 64

	// maxConsecutive failures mean that it is not about a page: of two halves, one can be read.
	maxConsecutive = 4
)

// walkKind walks what is to be walked of a kind, and remembers where it got.
func (s *Sweeper) walkKind(ctx context.Context, r *run, kind Kind) error {
	w := &walk{Sweeper: s, run: r, kind: kind}
	var err error
	if w.cursor, err = s.readCursor(ctx, r.merchant, kind); err != nil {
		return err
	}
	plan := w.plan()
	if len(plan) == 0 {
		return nil
	}
	w.covered = Span{From: plan[len(plan)-1].From, To: plan[0].To}
	for _, sp := range plan {
		w.total += sp.To.Sub(sp.From)
	}
	w.rest = w.total
	w.whole = w.total == w.covered.To.Sub(w.covered.From) // a walk that goes on has looked at a part some time ago
	if !r.dry {
		if err := s.beginWalk(ctx, r.merchant, kind, r.until, plan); err != nil {
			return err
		}
	}
	failed := w.spans(ctx, plan)
	if ctx.Err() != nil || errors.Is(failed, errLeaseLost) {
		return failed // the next sweep goes on from here
	}
	if w.left > 0 || failed != nil {
		w.whole = false
	}
	if w.whole {
		r.covered[kind] = w.covered
	}
	return errors.Join(failed, w.end(ctx))
}

// plan is what this walk is to look at.
func (w *walk) plan() []span {
	window, begin, since := w.window, w.run.begin, w.run.since
	switch w.kind {
	case Events:
		// Events do not change, so none needs a second look. Before the first sweep, the other walks have seen what they
		// could tell.
		window = eventOverlap
		if !w.cursor.exists {
			begin = w.run.until.Add(-eventOverlap)
		}
		oldest := w.run.started.Add(-eventsReachBack)
		begin = latest(begin, oldest)
		if !since.IsZero() {
			since = latest(since, oldest)
		}
	case Refunds:
		window = max(window, refundWindow)
	}
	return w.cursor.plan(w.run.started, begin, since, w.run.until, window, w.run.goesOn(w.cursor))
}

const (
	// eventsReachBack is how long Stripe lists an event (docs.stripe.com/api/events).
	eventsReachBack = 30 * 24 * time.Hour

	// eventOverlap is how far behind the cursor events are listed again, in case one shows up late.
	eventOverlap = time.Minute

	// refundWindow is longer than Stripe's "up to 30 days" in which a refund can still fail at the buyer's bank
	// (docs.stripe.com/refunds#failed-refunds).
	refundWindow = 35 * 24 * time.Hour
)

// spans walks the spans one after the other. What cannot be read is halved, and its halves come last, so that it hides
// nothing else; what cannot be halved stays in the plan of the next sweep.
func (w *walk) spans(ctx context.Context, plan []span) error {
	for len(plan) > 0 {
		next := plan[0]
		plan = plan[1:]
		rest, err := w.span(ctx, next)
		if err == nil {
			continue
		}
		var page pageError
		if !errors.As(err, &page) {
			return err
		}
		w.failures++
		w.consecutive++
		w.log.WarnContext(ctx, "a page of Stripe's list cannot be read", "merchant", w.run.merchant, "kind", w.kind,
			"from", rest.From, "to", rest.To, "error", page.error)
		if w.consecutive >= maxConsecutive {
			return fmt.Errorf("%w: %d pages in a row: %w", errKind, w.consecutive, page.error)
		}
		halves := rest.halves()
		if len(halves) == 0 || w.failures >= maxFailures {
			if err := w.leave(ctx, rest, page.error); err != nil {
				return err
			}
			continue
		}
		if !w.run.dry {
			if err := w.split(ctx, w.run.merchant, w.kind, rest, halves, page.Error()); err != nil {
				return err
			}
		}
		plan = append(plan, halves...)
	}
	return nil
}

// errKind says that a kind cannot be listed at all.
var errKind = errors.New("the list cannot be read")

// pageError is what is wrong with one page.
type pageError struct{ error }

func (e pageError) Unwrap() error { return e.error }

// leave notes that a span stays behind.
func (w *walk) leave(ctx context.Context, sp span, why error) error {
	w.left++
	w.run.fail(w.kind, "", fmt.Errorf("what was created from %s to %s UTC cannot be read: %w", sp.From.Format(time.DateTime),
		sp.To.Format(time.DateTime), why))
	if w.run.dry {
		return nil
	}
	if _, err := w.db.Exec(ctx, noteSpan, w.run.merchant, w.kind, sp.From, why.Error()); err != nil {
		return fmt.Errorf("note a span: %w", err)
	}
	return nil
}

// span walks one span page by page, and returns what is left of it when a page cannot be read.
func (w *walk) span(ctx context.Context, sp span) (span, error) {
	for {
		page, err := w.stripe.Page(ctx, w.run.merchant, w.kind, sp.Span, sp.after)
		switch {
		case err == nil:
			err = sp.check(page)
		case ctx.Err() != nil, errors.Is(err, ErrUnavailable), errors.Is(err, ErrForbidden):
			return sp, err
		}
		if err != nil {
			return sp, pageError{err}
		}
		w.consecutive = 0
		w.run.report.Pages++
		rest := span{}
		if page.More {
			rest = sp.rest(page.Objects)
		}
		if err := w.page(ctx, page.Objects, sp, rest); err != nil {
			return sp, err
		}
		w.rest -= sp.To.Sub(sp.From) - rest.To.Sub(rest.From)
		w.run.tell(w.kind, w.run.report.tally(w.kind).Walked, w.total-w.rest, w.total)
		if !page.More {
			return span{}, nil
		}
		sp = rest
	}
}

var (
	errEmptyPage    = errors.New("the list says that there is more, and the page is empty")
	errRepeatedPage = errors.New("the list gives a page again")
	errDisorder     = errors.New("the list says that there is more, and its page does not end with its oldest object")
)

// check refuses a page that would make the walk go in a circle.
func (s span) check(page Page) error {
	if page.More && len(page.Objects) == 0 {
		return errEmptyPage
	}
	for _, o := range page.Objects {
		if page.More && o.Created.Before(page.Objects[len(page.Objects)-1].Created) {
			return errDisorder
		}
		if s.after != "" && (o.ID == s.after || s.seen[o.ID] || !o.Created.Before(s.To)) {
			return fmt.Errorf("after %s: %w", s.after, errRepeatedPage)
		}
	}
	return nil
}

// page compares a page's objects, and writes in one transaction what differs and how far the walk has come.
func (w *walk) page(ctx context.Context, objects []Object, at, rest span) error {
	found, err := w.compare(ctx, objects)
	if err != nil || w.run.dry {
		return err
	}
	return w.progress(ctx, at, rest, found)
}

// difference is an object that differs.
type difference struct {
	Object
	kind   Kind
	reason Reason
	digest []byte
	stored stored
	known  time.Time // since when it could be known
}

// ref is what is to be settled: the order, by its name; else the payment. An order that was not found has the session
// for its name where there is one.
func (d difference) ref() string {
	switch {
	case d.stored.Order != "":
		return d.stored.Order
	case d.Event != nil && d.session() == "":
		return d.Event.Payment
	default:
		return d.session()
	}
}

// compare tells what of a page differs, and counts it.
func (w *walk) compare(ctx context.Context, objects []Object) ([]difference, error) {
	if len(objects) == 0 {
		return nil, nil
	}
	known, err := w.readStored(ctx, w.run.merchant, objects)
	if err != nil {
		return nil, err
	}
	tally := w.run.report.tally(w.kind)
	tally.Walked += len(objects)
	w.run.report.Walked += len(objects)
	var found []difference
	for i, o := range objects {
		w.run.silence.see(w.kind, o)
		reason := compare(w.kind, o, known[i])
		if reason == Same {
			continue
		}
		d := difference{Object: o, kind: w.kind, reason: reason, stored: known[i], digest: digest(w.kind, o, known[i]),
			known: w.cursor.knownSince(o.Created)}
		if string(d.digest) == string(known[i].LookedFor) {
			tally.Known++
			w.run.report.Known++
			continue
		}
		if w.kind == Events && !w.settles(d) {
			d.reason = Same // it is recorded, so that nobody looks at it again
		}
		if d.reason != Same && w.run.dry {
			w.run.wouldSettle(d)
		}
		found = append(found, d)
	}
	return found, nil
}

// settles reports whether a missing event is worth a settle. One that is about an order is; so is one of a kind that can
// be a payment's first, unless the payment is among those that this sweep has looked at already, in Stripe's own list.
func (w *walk) settles(d difference) bool {
	if !fulfillment.LeadsToPayment(d.Event.Payment) {
		return false
	}
	if d.stored.Order != "" {
		return true
	}
	prefix, _, _ := strings.Cut(d.Event.Object, "_")
	switch prefix {
	case "cs":
		return !w.run.looked(Sessions, d.Event.Created)
	case "pi":
		return !w.run.looked(Intents, d.Event.Created)
	}
	return d.Event.Type == "charge.captured"
}

// end remembers how the walk ended.
func (w *walk) end(ctx context.Context) error {
	if w.run.dry {
		return nil
	}
	query, args := endWalk, []any{w.run.merchant, w.kind}
	if w.whole {
		query = endWholeWalk
		args = append(args, w.run.started, w.covered.From, w.covered.To)
	}
	if _, err := w.db.Exec(ctx, query, args...); err != nil {
		return fmt.Errorf("end the walk: %w", err)
	}
	return nil
}
