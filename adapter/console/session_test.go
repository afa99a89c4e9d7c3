package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keytill/keytill/adapter"
	"github.com/keytill/keytill/adapter/access"
)

func cookieOf(a answer) *http.Cookie {
	a.t.Helper()
	cookies := (&http.Response{Header: a.header}).Cookies()
	if len(cookies) != 1 {
		a.t.Fatalf("%s: %d cookies", a.asked, len(cookies))
	}
	return cookies[0]
}

func (b *browser) with(cookie *http.Cookie, path string) answer {
	req := b.request(http.MethodGet, path, nil)
	req.AddCookie(&http.Cookie{Name: cookie.Name, Value: cookie.Value})
	return b.do(req)
}

func TestTheCookieIsForThisHostAndNoScript(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	form := url.Values{"token": {s.tokens[access.Viewer]}}
	plain := cookieOf(s.browser().post("/console/login", form))
	if plain.Name != "keytill_console" || plain.Secure || !plain.HttpOnly || plain.SameSite != http.SameSiteLaxMode || plain.Domain != "" {
		t.Errorf("over http: %+v", plain)
	}
	b := s.browser()
	req := b.request(http.MethodPost, "/console/login", strings.NewReader(form.Encode()))
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("X-Forwarded-Proto", "https")
	secure := cookieOf(b.do(req))
	if secure.Name != "__Host-keytill_console" || !secure.Secure || !secure.HttpOnly || secure.Path != "/" || secure.Domain != "" {
		t.Errorf("over https: %+v", secure)
	}
	if strings.Contains(secure.Value, s.tokens[access.Viewer]) {
		t.Error("the cookie holds the token")
	}
}

func TestALogInBeginsANewSessionAndEndsTheOneBefore(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	// Somebody plants a session that they know: their own, and one that they made up.
	attacker := s.browser()
	planted := cookieOf(attacker.post("/console/login", url.Values{"token": {s.tokens[access.Viewer]}}))
	for _, value := range []string{planted.Value, "ZGVmYXVsdA.MADEUP", "x", "."} {
		victim := s.browser()
		req := victim.request(http.MethodPost, "/console/login", strings.NewReader(url.Values{"token": {s.tokens[access.Admin]}}.Encode()))
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.AddCookie(&http.Cookie{Name: planted.Name, Value: value})
		fresh := cookieOf(victim.do(req).want(http.StatusSeeOther))
		if fresh.Value == value {
			t.Errorf("the planted session %q was taken over", value)
		}
		stranger := s.browser()
		if a := stranger.with(&http.Cookie{Name: planted.Name, Value: value}, "/console"); a.status == http.StatusOK {
			t.Errorf("the planted session %q is alive", value)
		}
		stranger.with(fresh, "/console").want(http.StatusOK).has("test-admin")
	}
}

func TestALogOutEndsTheSessionAtTheServer(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	b := s.browser()
	cookie := cookieOf(b.post("/console/login", url.Values{"token": {s.tokens[access.Viewer]}}))
	s.browser().with(cookie, "/console").want(http.StatusOK)
	b.post("/console/logout", nil).want(http.StatusSeeOther)
	s.browser().with(cookie, "/console").want(http.StatusSeeOther)
}

func TestSessionsEndByThemselves(t *testing.T) {
	t.Parallel()
	var late atomic.Int64
	s := newShop(t, func(c *adapter.Config) {
		c.Now = func() time.Time { return time.Now().Add(time.Duration(late.Load())) }
	})
	used, idle := s.as(access.Viewer), s.as(access.Viewer)
	for hours := 1; hours <= 11; hours++ {
		late.Store(int64(time.Duration(hours) * time.Hour))
		used.get("/console").want(http.StatusOK)
	}
	idle.get("/console").want(http.StatusSeeOther)
	late.Store(int64(12*time.Hour + time.Minute))
	used.get("/console").want(http.StatusSeeOther)
}

func TestLogInsAreLimited(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	b := s.browser()
	for range 10 {
		b.post("/console/login", url.Values{"token": {"keytill_admin_guess"}}).want(http.StatusUnauthorized)
	}
	a := b.post("/console/login", url.Values{"token": {s.tokens[access.Admin]}}).want(http.StatusTooManyRequests)
	if a.header.Get("Retry-After") == "" {
		t.Error("it does not say when to try again")
	}
	if strings.Contains(s.log.String(), "keytill_admin_guess") {
		t.Error("the log has what was tried")
	}
}

func TestAfterTheLogInNobodyIsLedElsewhere(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	tries := 0
	for next, want := range map[string]string{
		"/console/orders/cs_1":             "/console/orders/cs_1",
		"/console/orders?waiting=1":        "/console/orders?waiting=1",
		"/console":                         "/console",
		"":                                 "/console",
		"https://evil.example/console":     "/console",
		"//evil.example/console":           "/console",
		"/\\evil.example":                  "/console",
		"/console\\..\\..\\evil":           "/console",
		"/console/../../evil":              "/console",
		"/console/..//evil.example":        "/console",
		"/console//evil.example":           "/console",
		"/consoleevil":                     "/console",
		"javascript:alert(1)":              "/console",
		"/console/\r\nSet-Cookie: a=b":     "/console",
		"///evil.example":                  "/console",
		"http:/console":                    "/console",
		"/v1/orders":                       "/console",
		"/console/%2e%2e/%2e%2e/v1/orders": "/console",
	} {
		tries++
		b := s.browser()
		form := url.Values{"token": {s.tokens[access.Viewer]}, "next": {next}}
		req := b.request(http.MethodPost, "/console/login", strings.NewReader(form.Encode()))
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("X-Forwarded-For", fmt.Sprintf("203.0.113.%d", tries)) // so that log-ins are not limited
		if to := b.do(req).to(); to != want {
			t.Errorf("next %q leads to %q, want %q", next, to, want)
		}
	}
}
