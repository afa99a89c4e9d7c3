package api

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"regexp"
	"runtime/debug"

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
		ctx, cancel := context.WithTimeout(context.WithValue(r.Context(), requestKey{}, id), callTimeout)
		defer cancel()
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

type requestKey struct{}

// log is a logger that names the request and who made it.
func (a *API) log(ctx context.Context) *slog.Logger {
	id, _ := ctx.Value(requestKey{}).(string)
	log := a.Logger.With("request", id)
	if token := caller(ctx); token.Name != "" {
		log = log.With("token", token.Name)
	}
	return log
}
