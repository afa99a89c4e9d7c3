package reconcile

import (
	"maps"
	"slices"
	"time"
)

// span is a stretch of creation times that is still to be walked.
type span struct {
	Span
	after string // the last object of the page that was walked last; empty: none yet

	// seen are the objects of the last second of that page, which may go on on the next: none of them comes again. A walk
	// that another process goes on with does not know them.
	seen map[string]bool
}

func spanOf(from, to time.Time) span {
	return span{Span: Span{From: from.UTC().Truncate(time.Second), To: to.UTC().Truncate(time.Second)}}
}

func (s span) empty() bool { return !s.From.Before(s.To) }

// rest is what is left of a span after a page, which is not empty. Objects of one second can be on two pages, so that
// second stays in.
func (s span) rest(page []Object) span {
	last := page[len(page)-1]
	to := last.Created.Add(time.Second)
	if to.After(s.To) {
		to = s.To
	}
	seen := make(map[string]bool)
	if to.Equal(s.To) {
		maps.Copy(seen, s.seen) // still the same second
	}
	for _, o := range page {
		if !o.Created.Before(to.Add(-time.Second)) && o.Created.Before(to) {
			seen[o.ID] = true
		}
	}
	return span{Span: Span{From: s.From, To: to}, after: last.ID, seen: seen}
}

// halves cuts a span in two, the newer one first, so that a page that cannot be read hides as little as possible. A span
// of one second cannot be cut.
func (s span) halves() []span {
	seconds := s.To.Unix() - s.From.Unix()
	if seconds < 2 {
		return nil
	}
	middle := s.From.Add(time.Duration(seconds/2) * time.Second)
	return []span{{Span: Span{From: middle, To: s.To}}, {Span: Span{From: s.From, To: middle}}}
}

// without is what a span covers and none of others does.
func (s span) without(others []span) []span {
	parts := []span{{Span: s.Span}}
	for _, o := range others {
		var next []span
		for _, p := range parts {
			if !o.From.Before(p.To) || !p.From.Before(o.To) {
				next = append(next, p)
				continue
			}
			before, after := Span{From: p.From, To: o.From}, Span{From: o.To, To: p.To}
			for _, part := range []Span{before, after} {
				if part.From.Before(part.To) {
					next = append(next, span{Span: part})
				}
			}
		}
		parts = next
	}
	return parts
}

// newestFirst is the order in which spans are walked.
func newestFirst(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return b.From.Compare(a.From) })
	return spans
}

// cursor is how far the walk over one kind has come.
type cursor struct {
	exists   bool
	horizon  time.Time // all that was created before is walked, except for the spans
	walking  bool      // the last walk did not end
	moved    time.Time // when it last got on
	spans    []span
	looked   Span      // what the last walk covered that left nothing out,
	lookedAt time.Time // and when it began
}

// resumable is how old the last page of a walk may be for the next sweep to go on from there. After a longer pause what
// was walked is old news, and the window behind the cursor is walked anew; what was not is not forgotten either way.
const resumable = time.Hour

// plan is what a sweep has to walk. begin bounds the first one; since, unless it is zero, is what a person asked for;
// goesOn says that the last sweep was stopped, and not before it had walked all of this kind.
func (c cursor) plan(now, begin, since, to time.Time, window time.Duration, goesOn bool) []span {
	from := begin
	switch {
	case !since.IsZero():
		from = since
		if c.exists && c.horizon.Before(since) {
			from = c.horizon // nothing between the two may be forgotten
		}
	case c.exists && (goesOn || c.walking && now.Sub(c.moved) < resumable):
		from = c.horizon
	case c.exists:
		from = c.horizon.Add(-window)
		if from.Before(begin) {
			from = begin
		}
	}
	next := spanOf(from, to)
	if next.empty() {
		return newestFirst(slices.Clone(c.spans))
	}
	return newestFirst(append(next.without(c.spans), c.spans...))
}

// knownSince is when a difference of an object could be known: not before it was created, and not while the last whole
// walk looked at it.
func (c cursor) knownSince(created time.Time) time.Time {
	if !created.Before(c.looked.From) && created.Before(c.looked.To) && c.lookedAt.After(created) {
		return c.lookedAt
	}
	return created
}
