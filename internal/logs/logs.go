// Package logs puts into every line of the log what it belongs to: the request with its id, the job, the event, the order.
// Whoever begins something says so once, in the context; whoever logs with that context need not know.
//
//	ctx = logs.Begin(ctx, "request", id)   // around a request or a job
//	logs.Note(ctx, "order", order)         // as soon as it is known, for all lines from then on
//	log.WarnContext(ctx, "…")              // request=… order=… beside what it says itself
package logs

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"sync"
)

type contextKey struct{}

// A trail is what is known so far.
type trail struct {
	mu    sync.Mutex
	attrs []slog.Attr
}

// Begin begins something, of which a name is known. What it is a part of is known on.
func Begin(ctx context.Context, key, value string) context.Context {
	t := &trail{attrs: append(known(ctx), slog.String(key, value))}
	return context.WithValue(ctx, contextKey{}, t)
}

// Note adds what is found out on the way; outside of Begin it does nothing.
func Note(ctx context.Context, key, value string) {
	t, _ := ctx.Value(contextKey{}).(*trail)
	if t == nil || value == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.attrs = slices.DeleteFunc(slices.Clone(t.attrs), func(a slog.Attr) bool { return a.Key == key })
	t.attrs = append(t.attrs, slog.String(key, value))
}

func known(ctx context.Context) []slog.Attr {
	t, _ := ctx.Value(contextKey{}).(*trail)
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.attrs)
}

// New makes a logger whose lines have what their contexts know.
func New(l *slog.Logger) *slog.Logger {
	if _, done := l.Handler().(handler); done {
		return l
	}
	return slog.New(handler{l.Handler()})
}

type handler struct{ slog.Handler }

// Handle adds what the context knows and the line does not say itself.
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	attrs := known(ctx)
	if len(attrs) == 0 {
		return h.Handler.Handle(ctx, r)
	}
	said := make(map[string]bool, r.NumAttrs())
	r.Attrs(func(a slog.Attr) bool {
		said[a.Key] = true
		return true
	})
	r = r.Clone()
	for _, a := range attrs {
		if !said[a.Key] {
			r.AddAttrs(a)
		}
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs keeps the wrapping.
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.Handler.WithAttrs(attrs)}
}

// WithGroup keeps the wrapping.
func (h handler) WithGroup(name string) slog.Handler { return handler{h.Handler.WithGroup(name)} }

// RequestIDHeader carries a request's name through proxies, the log and the answer.
const RequestIDHeader = "X-Request-Id"

var requestIDForm = regexp.MustCompile(`^[A-Za-z0-9._-]{8,64}$`)

// Requests names every request: as its sender does, or with a name made up here, which the answer has.
func Requests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(RequestIDHeader)
		if !requestIDForm.MatchString(id) {
			id = rand.Text()
		}
		w.Header().Set(RequestIDHeader, id)
		next.ServeHTTP(w, r.WithContext(Begin(r.Context(), "request", id)))
	})
}
