package console_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/keytill/keytill/adapter/access"
)

var linked = regexp.MustCompile(`(?:href|action|src|formaction)="(/[^"]*)"`)

// A storefront mounts keytill where it likes, and every link, form and redirect stays there.
func TestTheConsoleWorksBelowAnyPath(t *testing.T) {
	t.Parallel()
	for name, mount := range map[string]func(s *shop) http.Handler{
		"a sub-router": func(s *shop) http.Handler {
			router := chi.NewRouter()
			router.Route("/shop/keys", func(r chi.Router) { s.shop.Mount(r) })
			return router
		},
		"a mounted handler": func(s *shop) http.Handler {
			router := chi.NewRouter()
			router.Mount("/shop/keys", s.shop.Handler())
			return router
		},
		"a stripped prefix": func(s *shop) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("/shop/keys/", http.StripPrefix("/shop/keys", s.shop.Handler()))
			return mux
		},
		"a stripped prefix and a sub-router": func(s *shop) http.Handler {
			router := chi.NewRouter()
			router.Route("/keys", func(r chi.Router) { s.shop.Mount(r) })
			return http.StripPrefix("/shop", router)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			s.stock("a/b c", "The Game", "GAME-ONE")
			s.sell("cs_1", "buyer@example.com", "price_a/b_c*1@500#li_1")
			server := httptest.NewServer(mount(s))
			t.Cleanup(server.Close)
			s.url = server.URL
			const base = "/shop/keys"
			b := s.browser()
			if to := b.get(base + "/console/orders/cs_1").to(); to != base+"/console/login?next=%2Fconsole%2Forders%2Fcs_1" {
				t.Fatalf("to the log-in: %s", to)
			}
			if to := b.post(base+"/console/login", url.Values{"token": {s.tokens[access.Admin]}, "next": {"/console/orders/cs_1"}}).to(); to != base+"/console/orders/cs_1" {
				t.Fatalf("after the log-in: %s", to)
			}
			seen := 0
			for _, path := range []string{"/console", "/console/orders", "/console/orders/cs_1", "/console/pools", "/console/pool?sku=a%2Fb+c", "/console/pools/new",
				"/console/pool/edit?sku=a%2Fb+c", "/console/batch?sku=a%2Fb+c&id=1", "/console/findings", "/console/audit"} {
				for _, link := range linked.FindAllStringSubmatch(b.get(base+path).want(http.StatusOK).body, -1) {
					seen++
					if !strings.HasPrefix(link[1], base+"/console") {
						t.Errorf("%s leads to %s", path, link[1])
					}
				}
			}
			if seen < 100 {
				t.Errorf("only %d links were seen", seen)
			}
			if a := b.get(base + "/console/static/console.css"); a.status != http.StatusOK || !strings.Contains(a.body, "--page") {
				t.Errorf("the style sheet: %d", a.status)
			}
			if to := b.post(base+"/console/orders/cs_1/settle", nil).to(); to != base+"/console/orders/cs_1?done=settle" {
				t.Errorf("after an act: %s", to)
			}
			if a := b.get(base + "/console/orders/..%2f..%2fx"); a.status != http.StatusNotFound {
				t.Errorf("a path that climbs: %d", a.status)
			}
		})
	}
}

// What a request's path says may not become the beginning of a link that leads elsewhere.
func TestNoPathBeforeTheConsoleBecomesALinkToAnotherSite(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	router := chi.NewRouter()
	router.Route("/{tenant}", func(r chi.Router) { s.shop.Mount(r) })
	for _, path := range []string{"//evil.example/console", "/%2F%2Fevil.example/console", "/%2Fevil.example/console", "/\"><script>/console", "/a%22b/console"} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		u, err := url.Parse("http://shop.example" + path)
		if err != nil {
			t.Fatal(err)
		}
		r.URL, r.RequestURI = u, path
		w := httptest.NewRecorder()
		router.ServeHTTP(w, r)
		if to := w.Header().Get("Location"); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d to %q", path, w.Code, to)
		}
	}
	// A storefront that takes whatever stands first off the path.
	for _, path := range []string{"//evil.example/console", "/\\evil.example/console", "/x//evil.example/console", "/../console"} {
		r := httptest.NewRequest(http.MethodGet, "/console", nil)
		r.RequestURI = path
		w := httptest.NewRecorder()
		s.shop.Handler().ServeHTTP(w, r)
		if to := w.Header().Get("Location"); w.Code != http.StatusNotFound {
			t.Errorf("%s, taken off: %d to %q", path, w.Code, to)
		}
	}
	r := httptest.NewRequest(http.MethodGet, "/acme/console", nil)
	w := httptest.NewRecorder()
	router.ServeHTTP(w, r)
	if to := w.Header().Get("Location"); to != "/acme/console/login" {
		t.Errorf("a tenant's console leads to %q, %d", to, w.Code)
	}
}
