package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"runtime/debug"
	"strings"
	"time"
	"unicode/utf8"
)

// callTimeout ends what takes too long: below the time that a daemon gives a whole request.
const callTimeout = 25 * time.Second

// policy lets a page have its style sheet, its script and its forms, all from here, and nothing else from anywhere: text
// of a product or a buyer that became markup after all could neither run, nor load, nor send anything.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// guard is around every request: headers, no writes from other sites, and an answer even if a handler panics.
func (c *Console) guard(next http.Handler) http.Handler {
	// Browsers say where a request comes from (Sec-Fetch-Site, or Origin). Those that say neither keep a SameSite cookie
	// to themselves on a POST from elsewhere.
	same := http.NewCrossOriginProtection()
	same.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.refuse(w, r, nil, http.StatusForbidden, "This form was sent from another site, so nothing was done.")
	}))
	next = same.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY") // for what does not know frame-ancestors
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		h.Set("X-Robots-Tag", "noindex, nofollow")
		timeout := callTimeout
		if strings.HasPrefix(r.URL.Path, Path+"/imports") {
			timeout = uploadTime
		}
		ctx, cancel := context.WithTimeout(r.Context(), timeout)
		defer cancel()
		defer func() {
			trouble := recover()
			if trouble == nil {
				return
			}
			if trouble == http.ErrAbortHandler {
				panic(trouble)
			}
			c.Logger.ErrorContext(ctx, "a request of the console panicked", "panic", trouble, "stack", string(debug.Stack()))
			c.refuse(w, r, nil, http.StatusInternalServerError, internalProblem)
		}()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

const maxForm = 64 << 10

// readForm reads what a request asks for. Uploads have a reader of their own. Text that the database could not take is no
// text of anything that there is.
func readForm(w http.ResponseWriter, r *http.Request) error {
	if r.URL.Path != Path+"/imports" {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	}
	if err := r.ParseForm(); err != nil {
		return fmt.Errorf("%w: %w", errRequest, err)
	}
	values := []string{r.URL.Path}
	for _, some := range r.Form {
		values = append(values, some...)
	}
	for _, value := range values {
		if !utf8.ValidString(value) || strings.ContainsRune(value, 0) {
			return errRequest
		}
	}
	return nil
}

// secure reports whether the browser came over https: by itself, by what a proxy says, or because that is where the
// console is known to be. Who sends that header without https only makes their own browser drop the cookie.
func (c *Console) secure(r *http.Request) bool {
	return r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https") ||
		c.public != nil && c.public.Scheme == "https" && strings.EqualFold(r.Host, c.public.Host)
}

// inside is where to go after the log-in: a page of the console that a link named, or its first one. What a browser could
// read as another site (//evil, /\evil, a scheme, a path that climbs out) is not followed.
func inside(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.IsAbs() || u.Host != "" || u.Opaque != "" || u.User != nil || strings.ContainsAny(next, "\\\r\n\t") ||
		path.Clean(u.Path) != u.Path || u.Path != Path && !strings.HasPrefix(u.Path, Path+"/") {
		return Path
	}
	return u.RequestURI()
}
