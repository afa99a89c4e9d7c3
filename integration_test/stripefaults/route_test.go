package stripefaults_test

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/keytill/keytill/internal/stripefake"
)

// A route is a call of Stripe's API without its ids and the like: what a fault can be put on.
type route string

var objectID = regexp.MustCompile(`^[a-z]+_`)

// routeOf tells the route of a request. Lists are told apart by what they are filtered by: the refunds of a payment are
// another call than those of a sweep.
func routeOf(r *http.Request) route {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	for i, part := range parts[1:] {
		if objectID.MatchString(part) && part != "payment_intents" && part != "early_fraud_warnings" && part != "line_items" && part != "webhook_endpoints" {
			parts[i+1] = "{id}"
		}
	}
	var filters []string
	for name := range r.URL.Query() {
		base, _, _ := strings.Cut(name, "[")
		if base == "payment_intent" || base == "created" || base == "expand" {
			filters = append(filters, base)
		}
	}
	slices.Sort(filters)
	name := r.Method + " /" + strings.Join(parts, "/")
	if filters = slices.Compact(filters); len(filters) > 0 {
		name += "?" + strings.Join(filters, "&")
	}
	return route(name)
}

// list reports whether the answer is a list.
func (r route) list() bool {
	path, _, _ := strings.Cut(string(r), "?")
	return !strings.HasSuffix(path, "{id}")
}

// ofPayment reports whether it is a list of what belongs to one payment.
func (r route) ofPayment() bool {
	return r.list() && !r.swept() && !strings.Contains(string(r), "webhook_endpoints")
}

// swept reports whether it is a list that a sweep walks.
func (r route) swept() bool { return strings.HasSuffix(string(r), "?created") }

// A breaker stands before the fake. It notes the routes that are called, and has those of one route fail.
type breaker struct {
	mu     sync.Mutex
	seen   map[route]bool
	calls  int
	broken route
	fault  func() *stripefake.Fault
}

func (b *breaker) onRequest(r *http.Request) *stripefake.Fault {
	called := routeOf(r)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.seen == nil {
		b.seen = make(map[route]bool)
	}
	b.seen[called] = true
	if b.fault == nil || called != b.broken {
		return nil
	}
	b.calls++
	return b.fault()
}

// breakRoute has the calls of a route fail from now on.
func (b *breaker) breakRoute(r route, fault func() *stripefake.Fault) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.broken, b.fault, b.calls = r, fault, 0
}

// heal ends the fault and says how many calls met it.
func (b *breaker) heal() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fault = nil
	return b.calls
}
