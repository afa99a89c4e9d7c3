package api

import (
	"context"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/keytill/keytill/internal/logs"
)

// guard is around every request: its name, and an answer even if a handler panics. The request's path is not in the log: it
// may be what somebody typed.
func (a *API) guard(next http.Handler) http.Handler {
	return logs.Requests(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
		defer cancel()
		seen := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		w = seen
		began := time.Now()
		defer func() {
			a.Logger.DebugContext(ctx, "API request", "status", seen.status, "took", time.Since(began))
		}()
		defer func() {
			trouble := recover()
			if trouble == nil {
				return
			}
			if trouble == http.ErrAbortHandler {
				panic(trouble)
			}
			a.Logger.ErrorContext(ctx, "an API request panicked", "panic", trouble, "stack", string(debug.Stack()))
			write(w, &huma.ErrorModel{Type: kind("internal"), Status: http.StatusInternalServerError,
				Title: http.StatusText(http.StatusInternalServerError), Detail: internalDetail})
		}()
		next.ServeHTTP(w, r.WithContext(ctx))
	}))
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
