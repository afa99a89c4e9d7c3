package security

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/keytill/keytill/adapter/access"
)

// ask makes a request, which is led nowhere, and returns the answer with its body.
func (d *daemon) ask(method, path string, body string, header http.Header) (*http.Response, string) {
	d.t.Helper()
	req, err := http.NewRequestWithContext(d.t.Context(), method, "http://"+d.addr+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	for name, values := range header {
		req.Header[name] = values
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return resp, string(text)
}

// Every kind of answer that the daemon gives, those to nonsense among them.
func TestEveryAnswerForbidsWhatBrowsersNeedNotDo(t *testing.T) {
	t.Parallel()
	admin, line := token(t, access.Admin)
	d := newTown(t).serve(line)
	bearer := http.Header{"Authorization": {"Bearer " + admin}}
	for _, c := range []struct {
		method, path string
		header       http.Header
		status       int
	}{
		{"GET", "/", nil, 404}, {"GET", "/healthz", nil, 200}, {"GET", "/readyz", nil, 200}, {"GET", "/metrics", nil, 200},
		{"GET", "/webhooks/stripe", nil, 405}, {"POST", "/webhooks/stripe", nil, 400},
		{"GET", "/orders/nonsense", nil, 404}, {"POST", "/orders/nonsense", nil, 404},
		{"GET", "/v1/openapi.json", nil, 200}, {"GET", "/v1/orders", nil, 401}, {"GET", "/v1/orders", bearer, 200},
		{"GET", "/v1/nonsense", bearer, 404}, {"GET", "/v1/keys/verify?key=x", nil, 401}, {"GET", "/v1/keys/verify?key=x", bearer, 200},
		{"GET", "/console", nil, 303}, {"GET", "/console/login", nil, 200}, {"GET", "/console/static/console.css", nil, 200},
		{"GET", "/console/static/", nil, 303}, {"GET", "/console/static/../../../etc/passwd", nil, 307}, {"GET", "/etc/passwd", nil, 404}, {"POST", "/console/login", nil, 401},
		{"TRACE", "/healthz", nil, 405}, {"TRACE", "/console/login", nil, 303}, {"OPTIONS", "/v1/orders", nil, 405}, {"CONNECT", "/healthz", nil, 405},
	} {
		resp, body := d.ask(c.method, c.path, "", c.header)
		if resp.StatusCode != c.status && (c.status < 400 || resp.StatusCode < 400) {
			t.Errorf("%s %s: status %d, want %d", c.method, c.path, resp.StatusCode, c.status)
		}
		h := resp.Header
		policy := h.Get("Content-Security-Policy")
		for _, rule := range []string{"default-src 'none'", "base-uri 'none'", "frame-ancestors 'none'"} {
			if !strings.Contains(policy, rule) || strings.Contains(policy, "unsafe") {
				t.Errorf("%s %s: the policy %q has no %s", c.method, c.path, policy, rule)
			}
		}
		if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") == "" {
			t.Errorf("%s %s: %v", c.method, c.path, h)
		}
		if h.Get("Strict-Transport-Security") != "" {
			t.Errorf("%s %s: it speaks of https over http", c.method, c.path)
		}
		for _, name := range []string{"Server", "X-Powered-By", "Access-Control-Allow-Origin"} {
			if h.Get(name) != "" {
				t.Errorf("%s %s: %s is %q", c.method, c.path, name, h.Get(name))
			}
		}
		if len(body) > 0 && h.Get("Content-Type") == "" {
			t.Errorf("%s %s: no content type", c.method, c.path)
		}
		if (strings.HasPrefix(c.path, "/v1/orders") || strings.HasPrefix(c.path, "/v1/keys") || strings.HasPrefix(c.path, "/console/login") ||
			strings.HasPrefix(c.path, "/orders/")) && h.Get("Cache-Control") != "no-store" {
			t.Errorf("%s %s may be kept: %q", c.method, c.path, h.Get("Cache-Control"))
		}
	}
	for name, header := range map[string]http.Header{"a proxy says so": {"X-Forwarded-Proto": {"https"}}} {
		resp, _ := d.ask("GET", "/console/login", "", header)
		if got := resp.Header.Get("Strict-Transport-Security"); !strings.Contains(got, "max-age=31536000") || !strings.Contains(got, "includeSubDomains") {
			t.Errorf("over https, since %s: %q", name, got)
		}
	}
}

// A token that is tried, one that may not, and a log-in that fails are in the log with whose and where from; what was sent
// is not. Somebody who tries on and on does not fill it.
func TestWhoIsNotLetInIsLogged(t *testing.T) {
	t.Parallel()
	_, line := token(t, access.Viewer)
	verify, verifyLine := token(t, access.Verify)
	d := newTown(t).serve(line, verifyLine)
	from := func(client string, more http.Header) http.Header {
		h := http.Header{"X-Forwarded-For": {client}}
		for name, values := range more {
			h[name] = values
		}
		return h
	}
	const guess = "keytill_admin_aGuessThatIsNoToken"
	d.ask("GET", "/v1/orders", "", from("203.0.113.1", http.Header{"Authorization": {"Bearer " + guess}}))
	d.ask("GET", "/v1/orders", "", from("203.0.113.2", http.Header{"Authorization": {"Bearer " + verify}}))
	d.ask("GET", "/v1/keys/verify?key=NEVER-LOGGED", "", from("203.0.113.3", http.Header{"Authorization": {"Bearer " + guess}}))
	d.ask("POST", "/console/login", url.Values{"token": {guess}}.Encode(), from("203.0.113.4", http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}))
	for range 100 {
		d.ask("GET", "/v1/orders", "", from("203.0.113.5", nil))
	}
	byClient := make(map[string][]string)
	for text := range strings.SplitSeq(strings.TrimSpace(d.log.text()), "\n") {
		var entry struct {
			Msg, Client, Token, Time string
			Status                   int
		}
		if err := json.Unmarshal([]byte(text), &entry); err != nil {
			t.Errorf("a line that is no JSON: %q", text)
		}
		if entry.Msg == "a request was not let in" {
			if entry.Time == "" {
				t.Errorf("without its time: %s", text)
			}
			byClient[entry.Client] = append(byClient[entry.Client], fmt.Sprint(entry.Status, " ", entry.Token))
		}
	}
	for client, want := range map[string]string{"203.0.113.1": "[401 ]", "203.0.113.2": "[403 the-verify]", "203.0.113.3": "[401 ]", "203.0.113.4": "[401 ]"} {
		if got := fmt.Sprint(byClient[client]); got != want {
			t.Errorf("of %s the log says %s, want %s", client, got, want)
		}
	}
	if n := len(byClient["203.0.113.5"]); n == 0 || n > 11 {
		t.Errorf("a hundred tries are %d lines", n)
	}
	for _, secret := range []string{guess, verify, "NEVER-LOGGED"} {
		if strings.Contains(d.log.text(), secret) {
			t.Errorf("the log holds %s", secret)
		}
	}
}

// What comes from outside cannot begin a line of the log.
func TestNothingFromOutsideBeginsALineOfTheLog(t *testing.T) {
	t.Parallel()
	d := newTown(t).serve()
	const forged = "\n{\"level\":\"ERROR\",\"msg\":\"forged\"}\n"
	body := event("evt_1" + forged)
	if status := d.post(body, d.signature(body, 0)); status != http.StatusOK {
		t.Errorf("status %d", status)
	}
	d.ask("GET", "/v1/orders", "", http.Header{"X-Forwarded-For": {"203.0.113.1\t{\"msg\":\"forged\"}"}, "X-Request-Id": {"forged forged"}})
	for text := range strings.SplitSeq(strings.TrimSpace(d.log.text()), "\n") {
		var entry struct{ Msg string }
		if err := json.Unmarshal([]byte(text), &entry); err != nil || entry.Msg == "forged" {
			t.Errorf("%v: %s", err, text)
		}
	}
	if !strings.Contains(d.log.text(), `evt_1\n{`) {
		t.Error("the event is not in the log: this test has lost its way")
	}
}

// The tokens file is read at the start. Somebody who is taken out of it is out when the daemon is started again, also with
// a session that began before.
func TestATokenThatIsTakenOutEndsItsSessions(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	text, line := token(t, access.Admin)
	_, other := token(t, access.Viewer)
	before, after := w.serve(line, other), w.serve(other)
	resp, _ := before.ask("POST", "/console/login", url.Values{"token": {text}}.Encode(), http.Header{"Content-Type": {"application/x-www-form-urlencoded"}})
	if resp.StatusCode != http.StatusSeeOther || len(resp.Cookies()) != 1 {
		t.Fatalf("log in: %d %v", resp.StatusCode, resp.Cookies())
	}
	session := http.Header{"Cookie": {resp.Cookies()[0].Name + "=" + resp.Cookies()[0].Value}}
	if resp, _ := before.ask("GET", "/console", "", session); resp.StatusCode != http.StatusOK {
		t.Errorf("with the token: %d", resp.StatusCode)
	}
	if resp, _ := after.ask("GET", "/console", "", session); resp.StatusCode != http.StatusSeeOther {
		t.Errorf("without the token: %d", resp.StatusCode)
	}
}
