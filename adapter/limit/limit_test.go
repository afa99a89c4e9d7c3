package limit

import (
	"fmt"
	"net/http/httptest"
	"testing"
	"time"
)

func TestSoManyAMinute(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	l := New(10, func() time.Time { return now })
	allowed := 0
	for range 15 {
		if l.Allow("a") {
			allowed++
		}
	}
	if allowed != 10 || !l.Allow("b") {
		t.Errorf("%d allowed", allowed)
	}
	now = now.Add(6 * time.Second)
	if !l.Allow("a") || l.Allow("a") {
		t.Error("a tenth of a minute does not bring one try")
	}
}

func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	l := New(10, func() time.Time { return now })
	for n := range 3 * maxKnown {
		l.Allow(fmt.Sprint(n))
	}
	if len(l.known) > maxKnown {
		t.Errorf("%d are known", len(l.known))
	}
}

func TestWhoAsks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ remote, forwarded, want string }{
		{"203.0.113.9:1234", "", "203.0.113.9"},
		{"203.0.113.9:1234", "198.51.100.1", "203.0.113.9"}, // anybody's word
		{"127.0.0.1:1234", "198.51.100.7, 198.51.100.1", "198.51.100.1"},
		{"10.0.0.2:1234", "198.51.100.1", "198.51.100.1"},
		{"127.0.0.1:1234", "nonsense", "127.0.0.1"},
		{"[2001:db8:1:2:3::4]:1234", "", "2001:db8:1:2::/64"},
		{"127.0.0.1:1234", "::ffff:198.51.100.1", "198.51.100.1"},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = c.remote
		if c.forwarded != "" {
			r.Header.Set("X-Forwarded-For", c.forwarded)
		}
		if got := Client(r); got != c.want {
			t.Errorf("%s forwarded for %q is %s, want %s", c.remote, c.forwarded, got, c.want)
		}
	}
}
