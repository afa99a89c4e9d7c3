package console_test

import (
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/keytill/keytill/adapter/access"
)

// allowed says for each route who may have it: v viewer, s support, a admin. It is written down a second time on purpose:
// who changes a permission changes it here, too.
var allowed = map[string]string{
	"GET /console":             "vsa",
	"GET /console/pools":       "vsa",
	"GET /console/pool":        "vsa",
	"GET /console/batch":       "vsa",
	"GET /console/orders":      "vsa",
	"POST /console/orders":     "vsa",
	"GET /console/orders/{id}": "vsa",
	"GET /console/findings":    "vsa",
	"GET /console/audit":       "vsa",

	"POST /console/orders/{id}/reveal":    "sa",
	"POST /console/orders/{id}/resend":    "sa",
	"POST /console/orders/{id}/replace":   "sa",
	"POST /console/orders/{id}/revoke":    "sa",
	"POST /console/orders/{id}/retry":     "sa",
	"POST /console/orders/{id}/settle":    "sa",
	"POST /console/orders/{id}/attribute": "sa",

	"POST /console/deliveries/{id}/again": "sa",

	"GET /console/pools/new":  "a",
	"POST /console/pools/new": "a",
	"GET /console/pool/edit":  "a",
	"POST /console/pool/edit": "a",

	"POST /console/imports":              "a",
	"GET /console/imports/{id}":          "a",
	"POST /console/imports/{id}/confirm": "a",
	"POST /console/imports/{id}/discard": "a",
	"POST /console/batch":                "a",
	"POST /console/sweep":                "a",
	"POST /console/mappings":             "a",
}

var letters = map[access.Role]string{access.Viewer: "v", access.Support: "s", access.Admin: "a"}

func TestEveryRoleOnEveryRoute(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("game", "The Game", "GAME-ONE")
	s.sell("cs_1", "buyer@example.com", "price_game*1@500#li_1")
	browsers := make(map[access.Role]*browser)
	for role := range letters {
		browsers[role] = s.as(role)
	}
	for name, who := range allowed {
		method, path, _ := strings.Cut(name, " ")
		path = strings.ReplaceAll(path, "{id}", "cs_1")
		ask := func(b *browser) answer {
			if method == http.MethodPost {
				return b.post(path, nil)
			}
			return b.get(path)
		}
		if a := ask(s.browser()); a.status != http.StatusSeeOther || !strings.HasPrefix(a.header.Get("Location"), "/console/login") {
			t.Errorf("%s without a session: %d to %s", name, a.status, a.header.Get("Location"))
		}
		for role, letter := range letters {
			a := ask(browsers[role])
			if got, want := a.status != http.StatusForbidden, strings.Contains(who, letter); got != want {
				t.Errorf("%s as %s: %d, want it to be allowed: %t", name, role, a.status, want)
			}
			if a.status >= 500 || strings.HasPrefix(a.header.Get("Location"), "/console/login") {
				t.Errorf("%s as %s: %d to %s\n%s", name, role, a.status, a.header.Get("Location"), a.content())
			}
		}
	}
}

// TestTheTableOfRolesHasEveryRoute reads the routes where they are made, so that none is added without saying who may.
func TestTheTableOfRolesHasEveryRoute(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("console.go")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`\{"([A-Z]+ )"? ?\+? ?(order)?(?: \+ )?"?([^"]*)", access\.`).FindAllStringSubmatch(string(source), -1)
	seen := 0
	for _, m := range found {
		name := m[1] + m[3]
		if m[2] != "" {
			name = m[1] + "/console/orders/{id}" + m[3]
		}
		if allowed[name] == "" {
			t.Errorf("nobody said who may have %q", name)
		}
		seen++
	}
	if seen < len(allowed)-1 {
		t.Errorf("%d routes were read, the table has %d", seen, len(allowed))
	}
}

func TestPagesShowNoFormThatTheRoleMayNotSend(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("game", "The Game", "GAME-ONE")
	s.sell("cs_1", "buyer@example.com", "price_game*1@500#li_1")
	viewer, support, admin := s.as(access.Viewer), s.as(access.Support), s.as(access.Admin)
	viewer.get("/console/orders/cs_1").lacks("/reveal", "/resend", "/replace", "/settle")
	support.get("/console/orders/cs_1").has("/reveal", "/resend", "/replace", "/settle")
	support.get("/console/pool?sku=game").lacks("/console/imports")
	admin.get("/console/pool?sku=game").has("/console/imports")
}

func TestProgramsTokensDoNotLogIn(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for _, role := range []access.Role{access.Verify, access.Storefront} {
		b := s.browser()
		b.post("/console/login", url.Values{"token": {s.tokens[role]}}).want(http.StatusForbidden).has("is for programs")
		if to := b.get("/console").to(); to != "/console/login" {
			t.Errorf("%s got in: to %s", role, to)
		}
	}
}
