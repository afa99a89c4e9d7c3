package stripefaults_test

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/integration_test/shoptest"
)

// A target is a route as an operation calls it, and what it is broken by.
type target struct {
	operation operation
	route     route
	faults    []fault
}

func (t target) String() string { return t.operation.name + ": " + string(t.route) }

// shop is a shop with a breaker before its Stripe.
func shop(t *testing.T, keys int) (*shoptest.Shop, *breaker) {
	t.Helper()
	var b breaker
	return shoptest.Open(t, shoptest.Config{Keys: keys, OnRequest: b.onRequest}), &b
}

// targets runs all operations once, with nothing wrong, and tells what they call: each route with the first operation
// that has it for its own.
func targets(t *testing.T) []target {
	t.Helper()
	s, b := shop(t, 300)
	seen := make(map[route]bool)
	var found []target
	for i, op := range operations {
		b.seen = nil
		c := &try{Shop: s, n: i + 1}
		op.prepare(c)
		s.Must(op.do(c))
		if diff := cmp.Diff(op.truth, op.state(c)); diff != "" {
			t.Fatalf("%s, with nothing wrong (-want +got):\n%s", op.name, diff)
		}
		routes := slices.Sorted(maps.Keys(b.seen))
		for _, r := range routes {
			own := !seen[r]
			if op.own != nil {
				own = op.own(r)
			}
			if own {
				found = append(found, target{operation: op, route: r})
			}
		}
		for _, r := range routes {
			seen[r] = true
		}
	}
	for r := range seen {
		if !slices.ContainsFunc(found, func(t target) bool { return t.route == r }) {
			t.Errorf("%s is no operation's own: nothing breaks it", r)
		}
	}
	return found
}

// exercised is what was tried.
type exercised struct {
	mu   sync.Mutex
	ran  map[string]bool // targets
	seen map[string]int  // calls that a fault met, by target and fault
}

func (e *exercised) note(t target, f fault, calls int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ran[t.String()] = true
	e.seen[t.String()+" "+f.name] += calls
}

// Every call that keytill makes is broken in every way. Under the fault, keytill does all there is to do, or nothing, and
// says what is wrong; it never hands out a key on a part of the truth, and it asks a bounded number of times. Once Stripe
// behaves, it does all that is left.
func TestEveryCallBrokenInEveryWay(t *testing.T) {
	t.Parallel()
	all := targets(t)
	tried := drawn(t)
	for i := range all {
		for j, f := range faults {
			if (f.on == nil || f.on(all[i].route)) && tried(i, j) {
				all[i].faults = append(all[i].faults, f)
			}
		}
	}
	done := &exercised{ran: make(map[string]bool), seen: make(map[string]int)}
	var group sync.WaitGroup
	turns := make(chan struct{}, atOnce)
	for _, target := range all {
		group.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			t.Run(target.String(), func(t *testing.T) { tryFaults(t, target, done) })
		})
	}
	group.Wait()
	cases := 0
	for _, target := range all {
		if !done.ran[target.String()] && strings.Contains(flag.Lookup("test.run").Value.String(), "/") {
			continue // somebody wants to see others
		}
		for _, f := range target.faults {
			cases++
			if done.seen[target.String()+" "+f.name] == 0 {
				t.Errorf("%s, which %s: no call met the fault", target, f.name)
			}
		}
	}
	t.Logf("%d routes, %d faults, %d cases", len(all), len(faults), cases)
}

// atOnce is how many routes are broken at the same time. Most of their time goes by in waiting for what hangs.
const atOnce = 12

func tryFaults(t *testing.T, target target, done *exercised) {
	s, b := shop(t, max(target.operation.keys, 8)*len(target.faults))
	for i, f := range target.faults {
		tryFault(t, &try{Shop: s, n: i + 1}, b, target, f, done)
	}
	breaches, err := fulfillment.Check(t.Context(), s.DB, s.Now(), 0)
	s.Must(err)
	for _, breach := range breaches {
		t.Error(breach)
	}
}

// mostCalls is more than any operation here needs with all its retries.
const mostCalls = 1500

func tryFault(t *testing.T, c *try, b *breaker, target target, f fault, done *exercised) {
	t.Helper()
	op := target.operation
	fail := func(format string, args ...any) {
		t.Helper()
		t.Errorf("%s, which %s: %s", target, f.name, fmt.Sprintf(format, args...))
	}
	op.prepare(c)
	before := op.state(c)
	b.breakRoute(target.route, f.make(target.route))
	patient := c.Shop
	if f.waits {
		c.Shop = patient.Impatient(patience)
	}
	err := op.do(c)
	c.Shop = patient
	calls := b.heal()
	done.note(target, f, calls)
	if calls > mostCalls {
		fail("%d calls", calls)
	}
	want := refused
	if f.want != nil {
		want = f.want(target.route)
	}
	after := op.state(c)
	if want == either {
		part := op.hidden[target.route]
		switch {
		case err == nil:
			want = right
		case op.hidden != nil && after[part] == op.truth[part]:
			before[part] = op.truth[part] // what the list showed is done, and that it did not end well is told
			fallthrough
		default:
			want = refused
		}
	}
	switch want {
	case right:
		if diff := cmp.Diff(op.truth, after); err != nil || diff != "" {
			fail("%v (-want +got):\n%s", err, diff)
		}
	case refused:
		checkRefused(c, target, f, before, after, err, fail)
	case believed:
		for part, got := range after {
			if part != op.hidden[target.route] && op.hidden != nil && got != op.truth[part] {
				fail("%s is %s, want %s", part, got, op.truth[part])
			}
			if f.name != unknownStates && got != before[part] && fulfilled(got) > fulfilled(op.truth[part]) {
				fail("%s is %s: more than %s", part, got, op.truth[part])
			}
		}
	}
	mend(c, target, f, fail)
}

// unknownStates is the fault that design answers by taking nothing: what a state means that is not known, a person is asked.
const unknownStates = "has states that nobody knows"

// emptyList is the fault that no second look at events makes good.
const emptyList = "is a list of nothing"

func fulfilled(told string) (n int) {
	_, _ = fmt.Sscanf(told[max(0, strings.Index(told, "Fulfilled:")):], "Fulfilled:%d", &n) // what is no order has none
	return n
}

// checkRefused holds that what the broken call is about is as it was, that all else came right, and that keytill says so.
func checkRefused(c *try, target target, f fault, before, after state, err error, fail func(string, ...any)) {
	c.T.Helper()
	op := target.operation
	want := maps.Clone(before)
	if op.hidden != nil {
		want = maps.Clone(op.truth)
		part := op.hidden[target.route]
		want[part] = before[part]
	}
	if diff := cmp.Diff(want, after); diff != "" {
		fail("something was done on it (-want +got):\n%s", diff)
	}
	if err == nil {
		fail("no error")
		return
	}
	if !strings.Contains(err.Error(), f.says) {
		fail("the error %q does not say %q", err, f.says)
	}
	if c.event == "" || op.hidden != nil {
		return
	}
	if state, note := c.eventState(); state != "pending" || !strings.Contains(note, f.says) {
		fail("its event is %s: %q", state, note)
	}
}

// mend has keytill try again with a Stripe that behaves, as the job queue does; and where its event was ended for a lie, has
// it sweep.
func mend(c *try, target target, f fault, fail func(string, ...any)) {
	c.T.Helper()
	op := target.operation
	if op.hidden != nil {
		c.GoTo(c.Now().Add(3 * shoptest.Grace))
	}
	if err := op.do(c); err != nil {
		fail("with a Stripe that behaves again: %v", err)
	}
	if op.hidden == nil && c.event != "" && cmp.Diff(op.truth, op.state(c)) != "" {
		if state, _ := c.eventState(); state == "pending" {
			fail("its event is still pending")
		}
		c.GoTo(c.Now().Add(3 * shoptest.Grace))
		if err := doSweep(c); err != nil {
			fail("the sweep after it: %v", err)
		}
	}
	after := op.state(c)
	if f.name == emptyList && op.hidden[target.route] == "events" {
		// Events are listed once, since none changes. One that a list hid is not found again: what it told of is found by
		// the lists of payments, refunds and disputes, and a review by the next event about it.
		after["events"] = op.truth["events"]
	}
	if diff := cmp.Diff(op.truth, after); diff != "" {
		fail("it was not made good (-want +got):\n%s", diff)
	}
}
