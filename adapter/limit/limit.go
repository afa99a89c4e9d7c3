// Package limit bounds how often somebody may ask.
package limit

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// A Limiter gives everyone so many tries a minute, and as many at once. It lives in one process: several processes
// allow a multiple.
type Limiter struct {
	perMinute int
	now       func() time.Time

	mu    sync.Mutex
	known map[string]*rate.Limiter
}

// maxKnown bounds the memory of a Limiter; those who have not asked for long are forgotten first.
const maxKnown = 10_000

// New makes a Limiter.
func New(perMinute int, now func() time.Time) *Limiter {
	return &Limiter{perMinute: perMinute, now: now, known: make(map[string]*rate.Limiter)}
}

// Allow reports whether who may ask once more.
func (l *Limiter) Allow(who string) bool {
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.known[who]
	if one == nil {
		if len(l.known) >= maxKnown {
			l.forget(now)
		}
		one = rate.NewLimiter(rate.Every(time.Minute/time.Duration(l.perMinute)), l.perMinute)
		l.known[who] = one
	}
	return one.AllowN(now, 1)
}

// forget drops those who have all their tries again, since a new one has as many. If everyone has just asked, all start
// anew: better than to refuse those who come.
func (l *Limiter) forget(now time.Time) {
	for who, one := range l.known {
		if one.TokensAt(now) >= float64(l.perMinute) {
			delete(l.known, who)
		}
	}
	if len(l.known) >= maxKnown {
		clear(l.known)
	}
}

// Client names who asks: the address of the connection, or what a proxy in the same network says, the last entry of
// X-Forwarded-For, which is the proxy's own. From elsewhere that header is anybody's word and does not count. Of an
// IPv6 address it is the /64, which is what one customer has.
func Client(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if forwarded := r.Header.Values("X-Forwarded-For"); len(forwarded) > 0 && (addr.IsLoopback() || addr.IsPrivate()) {
		last := forwarded[len(forwarded)-1]
		last = strings.TrimSpace(last[strings.LastIndexByte(last, ',')+1:])
		if told, err := netip.ParseAddr(last); err == nil {
			addr = told
		}
	}
	addr = addr.Unmap().WithZone("")
	if addr.Is6() {
		if prefix, err := addr.Prefix(64); err == nil {
			return prefix.String()
		}
	}
	return addr.String()
}
