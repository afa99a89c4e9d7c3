package reconcile

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func second(n int) time.Time { return time.Unix(1_800_000_000+int64(n), 0).UTC() }

func between(from, to int) span { return spanOf(second(from), second(to)) }

func TestASweepThatGoesOnDoesNotLookAtTheWindowOfAKindThatWasDone(t *testing.T) {
	t.Parallel()
	c := cursor{exists: true, horizon: second(4000)}
	got := c.plan(second(5300), second(0), time.Time{}, second(5000), time.Hour, true)
	if diff := cmp.Diff([]span{between(4000, 5000)}, got, cmp.AllowUnexported(span{})); diff != "" {
		t.Error(diff)
	}
}

func TestPlans(t *testing.T) {
	t.Parallel()
	const window = 100 * time.Second
	old := between(10, 20)
	old.after = "cs_7"
	for name, tt := range map[string]struct {
		cursor cursor
		since  time.Time
		want   []span
	}{
		"the first sweep begins with the first pool":          {cursor{}, time.Time{}, []span{between(0, 5000)}},
		"the first sweep begins where a person says":          {cursor{}, second(4000), []span{between(4000, 5000)}},
		"the next looks at the window again":                  {cursor{exists: true, horizon: second(4000)}, time.Time{}, []span{between(3900, 5000)}},
		"the window does not reach behind the first pool":     {cursor{exists: true, horizon: second(50)}, time.Time{}, []span{between(0, 5000)}},
		"what a person asks for leaves no hole":               {cursor{exists: true, horizon: second(3000)}, second(4000), []span{between(3000, 5000)}},
		"a person may look far back":                          {cursor{exists: true, horizon: second(4900)}, second(1000), []span{between(1000, 5000)}},
		"what could not be read is tried again":               {cursor{exists: true, horizon: second(4000), spans: []span{old}}, time.Time{}, []span{between(3900, 5000), old}},
		"what could not be read is not in the window too":     {cursor{exists: true, horizon: second(4000), spans: []span{between(3950, 3951)}}, time.Time{}, []span{between(3951, 5000), between(3950, 3951), between(3900, 3950)}},
		"a sweep that was killed goes on":                     {cursor{exists: true, horizon: second(4000), walking: true, moved: second(4900), spans: []span{old}}, time.Time{}, []span{between(4000, 5000), old}},
		"one that was killed long ago looks back once more":   {cursor{exists: true, horizon: second(4000), walking: true, moved: second(300), spans: []span{old}}, time.Time{}, []span{between(3900, 5000), old}},
		"nothing new, and only what could not be read before": {cursor{exists: true, horizon: second(5000), walking: true, moved: second(5000), spans: []span{old}}, time.Time{}, []span{old}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := second(5300)
			if got := tt.cursor.plan(now, second(0), tt.since, second(5000), window, false); cmp.Diff(tt.want, got, cmp.AllowUnexported(span{})) != "" {
				t.Error(cmp.Diff(tt.want, got, cmp.AllowUnexported(span{})))
			}
		})
	}
}

// Whatever the cursor, every second from the horizon on, and all of what was left behind, is in the plan, and once only.
func TestAPlanLeavesNothingOutAndNothingTwice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		horizon := rapid.IntRange(0, 60).Draw(t, "horizon")
		c := cursor{exists: true, horizon: second(horizon), walking: rapid.Bool().Draw(t, "walking"),
			moved: second(rapid.IntRange(-5000, 60).Draw(t, "moved"))}
		left := make(map[int]bool)
		for at := 0; at < horizon; {
			at += rapid.IntRange(0, 10).Draw(t, "gap")
			to := at + rapid.IntRange(1, 10).Draw(t, "length")
			if to > horizon {
				break
			}
			c.spans = append(c.spans, between(at, to))
			for s := at; s < to; s++ {
				left[s] = true
			}
			at = to
		}
		var since time.Time
		if rapid.Bool().Draw(t, "asked") {
			since = second(rapid.IntRange(0, 70).Draw(t, "since"))
		}
		window := time.Duration(rapid.IntRange(0, 30).Draw(t, "window")) * time.Second
		plan := c.plan(second(70), second(0), since, second(70), window, rapid.Bool().Draw(t, "goes on"))
		seen := make(map[int]int)
		for _, s := range plan {
			if s.empty() {
				t.Fatalf("an empty span: %v", s)
			}
			for at := s.From; at.Before(s.To); at = at.Add(time.Second) {
				seen[int(at.Unix()-second(0).Unix())]++
			}
		}
		for s := range 70 {
			if (s >= horizon || left[s]) && seen[s] == 0 {
				t.Fatalf("second %d is left out of %v", s, plan)
			}
			if seen[s] > 1 {
				t.Fatalf("second %d is in %v twice", s, plan)
			}
		}
		if !slices.IsSortedFunc(plan, func(a, b span) int { return b.From.Compare(a.From) }) {
			t.Fatalf("not newest first: %v", plan)
		}
	})
}

func TestHalvesAreTheWhole(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		whole := between(0, rapid.IntRange(1, 10_000).Draw(t, "seconds"))
		depth := 0
		for parts := []span{whole}; len(parts) > 0; depth++ {
			halves := parts[0].halves()
			if len(halves) == 0 {
				if parts[0].To.Sub(parts[0].From) != time.Second {
					t.Fatalf("%v cannot be cut", parts[0])
				}
				break
			}
			if !halves[0].From.Equal(halves[1].To) || !halves[1].From.Equal(parts[0].From) || !halves[0].To.Equal(parts[0].To) {
				t.Fatalf("%v is cut to %v", parts[0], halves)
			}
			parts = halves
		}
		if depth > 16 {
			t.Fatalf("%d cuts", depth)
		}
	})
}

func TestAPageThatGoesInACircleIsRefused(t *testing.T) {
	t.Parallel()
	page := func(more bool, ids ...string) Page {
		p := Page{More: more}
		for i, id := range ids {
			p.Objects = append(p.Objects, Object{ID: id, Created: second(50 - i)})
		}
		return p
	}
	begun := between(0, 50)
	begun.after = "c"
	begun.To = second(49)
	for name, tt := range map[string]struct {
		at   span
		page Page
		ok   bool
	}{
		"first page":                     {between(0, 60), page(true, "a", "b"), true},
		"nothing":                        {between(0, 60), page(false), true},
		"more, and nothing":              {between(0, 60), page(true), false},
		"the first page again":           {begun, page(true, "a", "b", "c"), false},
		"newer than what was walked":     {begun, page(true, "x"), false},
		"older than what was walked, ok": {begun, Page{Objects: []Object{{ID: "d", Created: second(48)}}}, true},
	} {
		if err := tt.at.check(tt.page); (err == nil) != tt.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestKnownSinceTheLastWalkThatSawIt(t *testing.T) {
	t.Parallel()
	c := cursor{looked: Span{From: second(0), To: second(100)}, lookedAt: second(130)}
	for created, want := range map[int]int{50: 130, 100: 100, 120: 120, 99: 130} {
		if got := c.knownSince(second(created)); !got.Equal(second(want)) {
			t.Errorf("created at %d: known since %v, want %v", created, got, second(want))
		}
	}
	if got := (cursor{}).knownSince(second(5)); !got.Equal(second(5)) {
		t.Errorf("before any walk: %v", got)
	}
}

func TestLatenessKeepsMaximumAndMedian(t *testing.T) {
	t.Parallel()
	var l lateness
	if got := l.report(); got != (Lateness{}) {
		t.Errorf("of nothing: %+v", got)
	}
	for _, s := range []int{10, 30, 20, 50, 40, 7 * 24 * 3600} {
		l.add(time.Duration(s) * time.Second)
	}
	l.add(-time.Second) // clocks differ
	if got, want := l.report(), (Lateness{MaxSeconds: 7 * 24 * 3600, MedianSeconds: 30}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// Lists are newest first. The second in which a page ends stays in the rest, which does not count twice what it has seen.
func TestTheSecondInWhichAPageEndsIsWalkedToItsEnd(t *testing.T) {
	t.Parallel()
	page := []Object{{ID: "cs_4", Created: second(60)}, {ID: "cs_3", Created: second(50)}, {ID: "cs_2", Created: second(50)}}
	rest := between(0, 100).rest(page)
	want := span{Span: between(0, 51).Span, after: "cs_2", seen: map[string]bool{"cs_3": true, "cs_2": true}}
	if diff := cmp.Diff(want, rest, cmp.AllowUnexported(span{})); diff != "" {
		t.Errorf("after a page that ends within a second (-want +got):\n%s", diff)
	}
	rest = rest.rest([]Object{{ID: "cs_1", Created: second(50)}})
	want.after, want.seen = "cs_1", map[string]bool{"cs_3": true, "cs_2": true, "cs_1": true}
	if diff := cmp.Diff(want, rest, cmp.AllowUnexported(span{})); diff != "" {
		t.Errorf("after another of the same second (-want +got):\n%s", diff)
	}
}
