package console_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"

	"github.com/keytill/keytill/adapter"
	"github.com/keytill/keytill/adapter/access"
	"github.com/keytill/keytill/internal/pgtest"
	"github.com/keytill/keytill/internal/stripefake"
	"github.com/keytill/keytill/inventory"
)

// The console is mounted with the Shop where there are access tokens. Somebody logs in with one, and sees the shop.
func Example() {
	db, done := pgtest.Example()
	defer done()
	stripe := stripefake.Start(stripefake.Config{})
	defer stripe.Close()
	token, line, err := access.New(access.Token{Name: "jane", Role: access.Viewer})
	if err != nil {
		panic(err)
	}
	tokens, err := access.Read(strings.NewReader(line))
	if err != nil {
		panic(err)
	}
	keyset, err := inventory.NewKeyset()
	if err != nil {
		panic(err)
	}
	shop, err := adapter.New(context.Background(), adapter.Config{Pool: db, Keyset: keyset, Tokens: tokens, Logger: slog.New(slog.DiscardHandler),
		Stripe: adapter.Stripe{APIKey: stripe.APIKey(), WebhookSecrets: stripe.Secrets(), URL: stripe.URL()}})
	if err != nil {
		panic(err)
	}
	server := httptest.NewServer(shop.Handler())
	defer server.Close()

	jar, err := cookiejar.New(nil)
	if err != nil {
		panic(err)
	}
	browser := &http.Client{Jar: jar}
	title := func(resp *http.Response, err error) string {
		if err != nil {
			panic(err)
		}
		defer resp.Body.Close()
		page, err := io.ReadAll(resp.Body)
		if err != nil {
			panic(err)
		}
		return resp.Status + ": " + regexp.MustCompile(`<title>(.*)</title>`).FindStringSubmatch(string(page))[1]
	}
	fmt.Println(title(browser.Get(server.URL + "/console")))
	fmt.Println(title(browser.PostForm(server.URL+"/console/login", url.Values{"token": {token}})))
	fmt.Println(title(browser.Get(server.URL + "/console/findings")))
	// Output:
	// 200 OK: Log in · keytill
	// 200 OK: Overview · keytill
	// 200 OK: Findings · keytill
}
