package api

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"regexp"
	"runtime/debug"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// requestIDHeader carries a request's name through proxies, keytill's log and the answer.
const requestIDHeader = "X-Request-Id"

var requestIDForm = regexp.MustCompile(`^[A-Za-z0-9._-]{8,64}$`)

// guard is around every request: its name, and an answer even if a handler panics.
func (a *API) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(requestIDHeader)
		if !requestIDForm.MatchString(id) {
			id = rand.Text()
		}
		w.Header().Set(requestIDHeader, id)
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		ctx, cancel := context.WithTimeout(context.WithValue(r.Context(), aboutKey{}, &about{request: id}), callTimeout)
		defer cancel()
		seen := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		w = seen
		began := time.Now()
		defer func() {
			a.log(ctx).DebugContext(ctx, "API request", "status", seen.status, "took", time.Since(began))
		}()
		defer func() {
			trouble := recover()
			if trouble == nil {
				return
			}
			if trouble == http.ErrAbortHandler {
				panic(trouble)
			}
			a.log(ctx).ErrorContext(ctx, "an API request panicked", "panic", trouble, "stack", string(debug.Stack()))
			write(w, &huma.ErrorModel{Type: kind("internal"), Status: http.StatusInternalServerError,
				Title: http.StatusText(http.StatusInternalServerError), Detail: internalDetail})
		}()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

type aboutKey struct{}

// about is what the log says of a request. Its path is not in it: it may be what somebody typed.
type about struct {
	request   string
	operation string // empty until it is admitted
	token     string // the token's name
}

func aboutOf(ctx context.Context) *about {
	about, _ := ctx.Value(aboutKey{}).(*about)
	return about
}

// log is a logger that names the request, and who made it for what.
func (a *API) log(ctx context.Context) *slog.Logger {
	about := aboutOf(ctx)
	switch {
	case about == nil:
		return a.Logger
	case about.operation == "":
		return a.Logger.With("request", about.request)
	}
	return a.Logger.With("request", about.request, "operation", about.operation, "token", about.token)
}

// statusWriter notes the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader notes the status.
func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController through.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
