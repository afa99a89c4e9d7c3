package cli

import (
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/keytill/keytill/adapter/access"
	"github.com/keytill/keytill/adapter/limit"
)

// A front stands before everything that the daemon serves: what holds for every answer, and a log of who was not let in.
type front struct {
	next   http.Handler
	public *url.URL       // where browsers reach the daemon; nil: not known
	tokens *access.Tokens // nil: there are none
	noted  *limit.Limiter // by client, so that nobody fills the log
	log    *slog.Logger
}

// notedPerMinute is how many refusals of one client are logged a minute.
const notedPerMinute = 10

func newFront(next http.Handler, publicURL string, tokens *access.Tokens, now func() time.Time, logger *slog.Logger) *front {
	f := &front{next: next, tokens: tokens, noted: limit.New(notedPerMinute, now), log: logger}
	if u, err := url.Parse(publicURL); err == nil && publicURL != "" {
		f.public = u
	}
	return f
}

const (
	// nothing lets a browser do nothing with an answer. Pages for people set their own policy in its place.
	nothing = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

	// A year, as browsers' own lists ask for at least. It speaks for names below the daemon's own host and no others.
	onlyHTTPS = "max-age=31536000; includeSubDomains"
)

// ServeHTTP serves a request.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", nothing)
	h.Set("Referrer-Policy", "no-referrer")
	if f.overHTTPS(r) {
		h.Set("Strict-Transport-Security", onlyHTTPS)
	}
	if len(r.TransferEncoding) > 0 && r.ProtoMajor == 1 {
		// Where a proxy and this server read the length of a body differently, what one takes for the rest of it is to the
		// other the next request. net/http goes by the chunks, as it should, and drops a Content-Length beside them without a
		// word; so after chunks there is no next request on a connection.
		h.Set("Connection", "close")
	}
	if !guarded(r.URL.Path) {
		f.next.ServeHTTP(w, r)
		return
	}
	seen := &seenStatus{ResponseWriter: w, status: http.StatusOK}
	f.next.ServeHTTP(seen, r)
	f.note(r, seen.status)
}

// guarded reports whether a path is of what takes a token.
func guarded(path string) bool {
	return strings.HasPrefix(path, "/v1/") || path == "/console" || strings.HasPrefix(path, "/console/")
}

// note logs that somebody was not let in. The path is not in it, since keys may be, nor is what was sent as a token.
func (f *front) note(r *http.Request, status int) {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests:
	default:
		return
	}
	client := limit.Client(r)
	if !f.noted.Allow(client) {
		return
	}
	area, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	f.log.WarnContext(r.Context(), "a request was not let in", "status", status, "area", area, "method", r.Method, "client", client,
		"token", f.name(r))
}

// name is the name of the token that a request came with; empty if it has none that is known.
func (f *front) name(r *http.Request) string {
	if f.tokens == nil {
		return ""
	}
	_, text, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token, _ := f.tokens.Find(strings.TrimSpace(text))
	return token.Name
}

// overHTTPS reports whether a browser came over https: by what a proxy says, or because that is where the daemon is known
// to be. Who sends the header without https gets an answer that their browser does not heed.
func (f *front) overHTTPS(r *http.Request) bool {
	return r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https") ||
		f.public != nil && f.public.Scheme == "https" && strings.EqualFold(r.Host, f.public.Host)
}

// seenStatus notes the status of an answer.
type seenStatus struct {
	http.ResponseWriter
	status int
}

// WriteHeader notes the status.
func (s *seenStatus) WriteHeader(status int) {
	s.status = status
	s.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController through.
func (s *seenStatus) Unwrap() http.ResponseWriter { return s.ResponseWriter }
