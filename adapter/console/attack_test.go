package console_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/keytill/keytill/adapter/access"
)

func TestNoFormOfAnotherSiteIsTaken(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("game", "The Game", "GAME-ONE")
	s.sell("cs_1", "buyer@example.com", "price_game*1@500#li_1")
	b := s.as(access.Admin)
	for name, headers := range map[string]map[string]string{
		"another site":      {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"},
		"another subdomain": {"Sec-Fetch-Site": "same-site", "Origin": "http://evil.localhost"},
		"an old browser":    {"Sec-Fetch-Site": "", "Origin": "https://evil.example"},
		"a sandboxed frame": {"Sec-Fetch-Site": "", "Origin": "null"},
	} {
		for path, form := range map[string]url.Values{
			"/console/orders/cs_1/reveal": {"reason": {"csrf"}},
			"/console/orders/cs_1/resend": {"to": {"thief@example.com"}},
			"/console/logout":             nil,
			"/console/login":              {"token": {s.tokens[access.Viewer]}},
			"/console/sweep":              nil,
		} {
			req := b.request(http.MethodPost, path, strings.NewReader(form.Encode()))
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			for header, value := range headers {
				req.Header.Del(header)
				if value != "" {
					req.Header.Set(header, value)
				}
			}
			if a := b.do(req); a.status != http.StatusForbidden || strings.Contains(a.body, "GAME-ONE") {
				t.Errorf("%s from %s: %d", path, name, a.status)
			}
		}
	}
	b.get("/console").want(http.StatusOK) // still logged in
	b.get("/console/audit").lacks("csrf", "Keys sent again", "Sweep started")
}

func TestNoGETChangesAnything(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("game", "The Game", "GAME-ONE")
	s.sell("cs_1", "buyer@example.com", "price_game*1@500#li_1")
	b := s.as(access.Admin)
	for name := range allowed {
		method, path, _ := strings.Cut(name, " ")
		if method != http.MethodPost || allowed["GET "+path] != "" {
			continue
		}
		a := b.get(strings.ReplaceAll(path, "{id}", "cs_1") + "?reason=x&to=thief@example.com&state=recalled&unit=1")
		if a.status != http.StatusNotFound && a.status != http.StatusMethodNotAllowed {
			t.Errorf("GET %s: %d", path, a.status)
		}
	}
}

// markup is what products, buyers and keys are called in the test of what becomes of it.
const markup = `<script>alert(1)</script><img src=x onerror=alert(1)>"'>{{.Who}}`

func TestMarkupInNamesAddressesAndKeysIsText(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	key := `KEY"><script>alert(2)</script>`
	s.stock("game", markup, key)
	s.stock(`a/../b?<i>&"`, "Odd "+markup)
	s.sell("cs_1", `"<script>alert(3)</script>"@example.com`, "price_game*1@500#li_1")
	b := s.as(access.Admin)
	b.post("/console/orders/cs_1/resend", url.Values{"to": {"a@example.com"}, "reason": {markup}}).to()
	pages := []answer{
		b.post("/console/orders/cs_1/reveal", url.Values{"reason": {markup}}), b.post("/console/orders", url.Values{"q": {markup}}),
		b.upload(`<img src=x onerror=alert(1)>.csv`, "code\nA\nB\n", "sku", "game", "column", markup),
	}
	staged := b.upload(`<img src=x onerror=alert(1)>.txt`, "A\nA\nB\n", "sku", "game", "supplier", markup).to()
	pages = append(pages, b.get(staged))
	b.post(staged+"/confirm", nil).to()
	for _, path := range []string{"/console", "/console/orders", "/console/orders/cs_1", "/console/pools", "/console/pool?sku=game",
		"/console/pool?sku=" + url.QueryEscape(`a/../b?<i>&"`), "/console/audit", "/console/findings", "/console/login?next=" + url.QueryEscape(`"><script>alert(1)`),
		"/console/orders?payment=" + url.QueryEscape(markup), "/console?done=" + url.QueryEscape(markup), "/console/" + url.PathEscape(markup)} {
		pages = append(pages, b.get(path))
	}
	shown := 0
	for _, page := range pages {
		page.lacks("<script>alert", "<img src=x", "onerror=alert(1)>\"", "{{.Who}}\"'")
		shown += strings.Count(page.body, "&lt;script&gt;alert")
	}
	if shown < 10 {
		t.Errorf("the names are shown %d times: the test looks at the wrong pages", shown)
	}
	pages[0].has("KEY&#34;&gt;&lt;script&gt;alert(2)&lt;/script&gt;")
}

func TestEveryAnswerForbidsWhatPagesDoNotNeed(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	b := s.as(access.Viewer)
	for _, path := range []string{"/console", "/console/login", "/console/orders/none", "/console/nothing", "/console/static/console.css", "/console/static/none"} {
		a := b.get(path)
		policy := a.header.Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'", "script-src 'self'", "style-src 'self'"} {
			if !strings.Contains(policy, part) {
				t.Errorf("%s: policy %q has no %s", path, policy, part)
			}
		}
		if strings.Contains(policy, "unsafe") || a.header.Get("X-Content-Type-Options") != "nosniff" || a.header.Get("Referrer-Policy") != "same-origin" {
			t.Errorf("%s: %v", path, a.header)
		}
		if strings.Contains(a.body, " style=") || strings.Contains(a.body, "<style") || strings.Contains(a.body, " onclick=") {
			t.Errorf("%s has what its policy forbids", path)
		}
		if !strings.Contains(path, "static") && a.header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s may be kept: %q", path, a.header.Get("Cache-Control"))
		}
	}
}

func TestPathsThatClimbFindNothing(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("game", "The Game", "GAME-ONE")
	s.sell("cs_1", "buyer@example.com", "price_game*1@500#li_1")
	viewer := s.as(access.Viewer)
	for _, path := range []string{"/console/static/..%2fconsole.go", "/console/static/%2e%2e%2ftemplates%2flayout.html", "/console/static/..%5cx",
		"/console/orders/..%2f..%2fv1%2forders", "/console/orders/cs_1%2freveal", "/console/orders/%00", "/console/orders/%ff", "/console/imports/%2e%2e",
		"/console/orders/buyer%40example.com", "/console/pool?sku=%00", "/console/pool?sku=%ff", "/console/batch?sku=game&id=-1",
		"/console/batch?sku=game&id=99999999999999999999", "/console/batch?sku=game&id=9223372036854775807", "/console/orders?after=x",
		"/console/audit?after=" + "eyJsIjoib3JkZXJzIn0", "/console/findings?after=%00"} {
		if a := viewer.get(path); a.status != http.StatusNotFound && a.status != http.StatusForbidden && a.status != http.StatusBadRequest {
			t.Errorf("%s: %d to %s\n%s", path, a.status, a.header.Get("Location"), a.content())
		}
	}
	// A path is cleaned before a role is looked up: there is no second spelling of an act.
	for _, path := range []string{"/console//orders/cs_1/reveal", "/console/./orders/cs_1/reveal", "/console/x/../orders/cs_1/reveal", "/console/orders/cs_1/reveal/"} {
		if a := viewer.post(path, url.Values{"reason": {"x"}}); strings.Contains(a.body, "GAME-ONE") || a.status == http.StatusOK {
			t.Errorf("%s: %d", path, a.status)
		}
	}
}
