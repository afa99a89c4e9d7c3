package integration_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/keytill/keytill/adapter"
	"github.com/keytill/keytill/adapter/access"
	"github.com/keytill/keytill/fulfillment"
)

// ask sends a request and returns the status and the body.
func (p *mailtown) ask(method, address, token, form string) (int, string) {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.ctx, method, address, strings.NewReader(form))
	p.must(err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(r)
	p.must(err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	p.must(err)
	return resp.StatusCode, string(text)
}

// A licence server asks about keys and follows the feed: a revoked key is in it, once, under the name it was verified by,
// and no answer holds a key's text.
func TestALicenceServer(t *testing.T) {
	t.Parallel()
	token, line, err := access.New(access.Token{Name: "licences", Role: access.Verify})
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := access.Read(strings.NewReader(line))
	if err != nil {
		t.Fatal(err)
	}
	p := newMailtown(t, func(c *adapter.Config) { c.Tokens = tokens })
	l := p.launch()
	p.stock(l.shop, "game", 3, 1, "price_game")
	p.buy("cs_1", "price_game")

	verify := func(key string) (found struct{ Status, Key, SKU string }) {
		t.Helper()
		status, text := p.ask(http.MethodGet, l.url+"/v1/keys/verify?key="+url.QueryEscape(key), token, "")
		if status != http.StatusOK || strings.Contains(text, "game-0") {
			t.Errorf("%d %s", status, text)
		}
		p.must(json.Unmarshal([]byte(text), &found))
		return found
	}
	sold := verify("game-0001")
	if sold.Status != "valid" || sold.SKU != "game" || verify("game-0002").Status != "unsold" || verify("nonsense").Status != "unknown" {
		t.Errorf("verified as %+v", sold)
	}
	if status, text := p.ask(http.MethodPost, l.url+"/v1/keys/verify", token, `{"key":"game-0001","sku":"other"}`); !strings.Contains(text, "unknown") {
		t.Errorf("in another pool: %d %s", status, text)
	}
	for _, wrong := range []string{"", token[1:]} {
		if status, _ := p.ask(http.MethodGet, l.url+"/v1/keys/changes", wrong, ""); status != http.StatusUnauthorized {
			t.Errorf("with the token %q: %d", wrong, status)
		}
	}

	type change struct{ Key, Status string }
	var feed struct {
		Changes []change
		Next    string
		More    bool
	}
	follow := func(after string) {
		t.Helper()
		feed.Changes = nil
		status, text := p.ask(http.MethodGet, l.url+"/v1/keys/changes?limit=1&after="+url.QueryEscape(after), token, "")
		if status != http.StatusOK {
			t.Fatalf("%d %s", status, text)
		}
		p.must(json.Unmarshal([]byte(text), &feed))
	}
	follow("")
	if len(feed.Changes) != 0 {
		t.Errorf("the feed has %+v: a sale is no change", feed.Changes)
	}
	p.must(l.shop.Service().RevokeKey(p.ctx, "default", fulfillment.UnitRef{Order: "cs_1", Unit: 1}, fulfillment.Person{Name: "jane", Reason: "test"}))
	// What runs in the database meanwhile may hold the feed back for a moment.
	p.eventually("the revocation is in the feed", func() bool { follow(""); return len(feed.Changes) == 1 })
	if feed.Changes[0] != (change{sold.Key, "revoked"}) || verify("game-0001").Status != "revoked" {
		t.Errorf("the feed has %+v, for %+v", feed.Changes, sold)
	}
	if follow(feed.Next); len(feed.Changes) != 0 || feed.More {
		t.Errorf("after its end the feed has %+v", feed.Changes)
	}
	if status, _ := p.ask(http.MethodGet, l.url+"/v1/keys/changes?after=1.2x", token, ""); status != http.StatusBadRequest {
		t.Errorf("a made-up cursor: %d", status)
	}
}

var linkForm = regexp.MustCompile(`https://keys\.example\.com(/orders/[A-Za-z0-9_-]+)`)

// An order of many keys comes as a file and a link; the page behind it shows them on a click and notes that, until its
// links are ended.
func TestALargeOrderComesAsFileAndLink(t *testing.T) {
	t.Parallel()
	p := newMailtown(t, func(c *adapter.Config) { c.PublicURL = "https://keys.example.com" })
	l := p.launch()
	p.stock(l.shop, "game", 30, 1, "price_game")
	p.sell("cs_1", "price_game*25")
	_, err := l.shop.Settle(p.ctx, "cs_1")
	p.must(err)
	p.eventually("the mail comes", func() bool { return p.mails.Count() == 1 })
	m := p.mails.MessagesTo(mailtownBuyer)[0]
	if len(m.Attachments) != 1 || bytes.Count(m.Attachments[0].Data, []byte("game-00")) != 25 || strings.Contains(m.Text+m.HTML, "game-00") {
		t.Errorf("the mail has %d attachments:\n%s", len(m.Attachments), m.Text)
	}
	found := linkForm.FindStringSubmatch(m.Text)
	if found == nil {
		t.Fatalf("there is no link in\n%s", m.Text)
	}
	page := l.url + found[1]
	if status, text := p.ask(http.MethodGet, page, "", ""); status != http.StatusOK || strings.Contains(text, "game-00") {
		t.Errorf("the page: %d\n%s", status, text)
	}
	if n := p.revealed(); n != 0 {
		t.Errorf("%d keys are revealed by looking", n)
	}
	if status, text := p.ask(http.MethodPost, page, "", ""); status != http.StatusOK || strings.Count(text, "<code>game-00") != 25 {
		t.Errorf("after the click: %d\n%s", status, text)
	}
	if n := p.revealed(); n != 25 {
		t.Errorf("%d keys are revealed by the click", n)
	}
	p.must(l.shop.Service().EndLinks(p.ctx, "default", "cs_1", fulfillment.Person{Name: "jane", Reason: "posted in a forum"}))
	if status, _ := p.ask(http.MethodGet, page, "", ""); status != http.StatusNotFound {
		t.Errorf("after its end: %d", status)
	}
}

func (p *mailtown) revealed() (n int) {
	p.t.Helper()
	p.must(p.db.QueryRow(p.ctx, `SELECT count(*) FROM keytill.fulfilments WHERE revealed_at IS NOT NULL`).Scan(&n))
	return n
}
