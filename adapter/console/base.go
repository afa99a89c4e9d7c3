package console

import (
	"context"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/go-chi/chi/v5"
)

// A storefront may mount keytill below a path of its own: on a sub-router of chi's, or behind http.StripPrefix. Inside the
// console all paths begin with Path; what leaves it, in links and redirects, has the storefront's path before.

type baseKey struct{}

func baseOf(ctx context.Context) string {
	base, _ := ctx.Value(baseKey{}).(string)
	return base
}

// baseForm is what may stand before Path: it goes into links, and a link that begins with // would lead to another site.
var baseForm = regexp.MustCompile(`^(/[A-Za-z0-9_~][A-Za-z0-9._~-]*)*$`)

// withoutBase finds what the storefront's routers took off the path, or left before it, and serves the rest.
func (c *Console) withoutBase(w http.ResponseWriter, r *http.Request) {
	base, inner := "", r.URL.Path
	if route := chi.RouteContext(r.Context()); route != nil && route.RoutePath != "" {
		if full, cut := strings.CutSuffix(r.URL.EscapedPath(), route.RoutePath); cut && full != "" {
			base, inner = full, strings.TrimPrefix(r.URL.Path, full)
		}
	}
	if asked, err := url.ParseRequestURI(r.RequestURI); err == nil {
		if stripped, cut := strings.CutSuffix(asked.Path, r.URL.Path); cut {
			base = stripped + base
		}
	}
	if !baseForm.MatchString(base) {
		http.NotFound(w, r)
		return
	}
	again := r.WithContext(context.WithValue(r.Context(), baseKey{}, base))
	if inner != r.URL.Path {
		at := *r.URL
		at.RawPath = strings.TrimPrefix(at.RawPath, strings.TrimSuffix(r.URL.Path, inner))
		at.Path = inner
		again.URL = &at
	}
	c.handler.ServeHTTP(w, again)
}

// redirect leads to a path of the console.
func redirect(w http.ResponseWriter, r *http.Request, path string) {
	http.Redirect(w, r, baseOf(r.Context())+path, http.StatusSeeOther)
}
