package orderpage

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/inventory"
)

// shelf is a shop with one order, cs_1 of the default merchant.
type shelf struct {
	serial   int
	revealed int
	looks    int
}

// ForBuyer reads the order.
func (s *shelf) ForBuyer(_ context.Context, merchant, order string, serial int, reveal bool) (fulfillment.Order, []inventory.Owned, error) {
	s.looks++
	if merchant != "default" || order != "cs_1" || serial != s.serial {
		return fulfillment.Order{}, nil, fulfillment.ErrNoOrder
	}
	o := fulfillment.Order{ID: "cs_1", Locale: "de-AT", Lines: []fulfillment.OrderLine{{ID: "li_1", SKU: "game", Name: "Spiel & <Spaß>",
		Units: []fulfillment.OrderUnit{{Unit: 1, State: fulfillment.UnitFulfilled}, {Unit: 2, State: fulfillment.UnitWaiting}}}}}
	if !reveal {
		return o, nil, nil
	}
	s.revealed++
	return o, []inventory.Owned{{Line: "li_1", Unit: 1, SKU: "game", Name: "Spiel", Text: "KEY-<1>"}}, nil
}

type visit struct {
	*Handler
	shelf *shelf
	now   time.Time
}

func newVisit(t *testing.T) *visit {
	t.Helper()
	v := &visit{shelf: &shelf{}, now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	clock := func() time.Time { return v.now }
	links, err := NewLinks("https://keys.example.com/shop/", [][]byte{{1}, {2}}, time.Hour, clock)
	if err != nil {
		t.Fatal(err)
	}
	v.Handler = New(Config{Orders: v.shelf, Links: links, Shop: "Shop", Now: clock, Logger: slog.New(slog.DiscardHandler)})
	return v
}

func (v *visit) token() string {
	url := v.Links.URL(Ref{Merchant: "default", Order: "cs_1", Serial: v.shelf.serial}, v.now)
	return strings.TrimPrefix(url, "https://keys.example.com/shop/orders/")
}

func (v *visit) ask(method, token, form string) *http.Response {
	r := httptest.NewRequest(method, "/orders/x", strings.NewReader(form))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	v.Serve(w, r, token)
	return w.Result()
}

func body(t *testing.T, r *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestKeysAreShownOnAClickOnly(t *testing.T) {
	t.Parallel()
	v := newVisit(t)
	got := v.ask(http.MethodGet, v.token(), "")
	text := body(t, got)
	if got.StatusCode != http.StatusOK || strings.Contains(text, "KEY-") || v.shelf.revealed != 0 || !strings.Contains(text, "Spiel &amp; &lt;Spaß&gt;") ||
		!strings.Contains(text, "1 Schlüssel folgt") {
		t.Errorf("GET: %s, revealed %d\n%s", got.Status, v.shelf.revealed, text)
	}
	for name, want := range map[string]string{"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff"} {
		if got.Header.Get(name) != want {
			t.Errorf("%s: %q", name, got.Header.Get(name))
		}
	}
	if policy := got.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
		t.Errorf("policy %q", policy)
	}
	if !strings.Contains(got.Header.Get("X-Robots-Tag"), "noindex") {
		t.Error("it may be indexed")
	}
	text = body(t, v.ask(http.MethodPost, v.token(), ""))
	if !strings.Contains(text, "KEY-&lt;1&gt;") || v.shelf.revealed != 1 {
		t.Errorf("POST, revealed %d\n%s", v.shelf.revealed, text)
	}
	file := v.ask(http.MethodPost, v.token(), "format=csv")
	if text := body(t, file); !strings.Contains(text, "KEY-<1>") || !strings.HasPrefix(file.Header.Get("Content-Type"), "text/csv") {
		t.Errorf("the file: %s", text)
	}
}

// Whoever asks with a link that does not work learns nothing of why.
func TestBadLinksLookTheSame(t *testing.T) {
	t.Parallel()
	v := newVisit(t)
	good := v.token()
	expired := v.Links.URL(Ref{Merchant: "default", Order: "cs_1", Serial: v.shelf.serial + 1}, v.now.Add(-2*time.Hour))
	ended := good
	v.shelf.serial++
	flipped := []byte(v.token())
	flipped[len(flipped)-3] ^= 1
	unknown := v.Links.URL(Ref{Merchant: "default", Order: "cs_2"}, v.now)
	var first string
	for name, token := range map[string]string{"none": "x", "cut": good[:20], "changed": string(flipped), "ended": ended,
		"expired": expired[len("https://keys.example.com/shop/orders/"):], "unknown": unknown[len("https://keys.example.com/shop/orders/"):],
		"long": strings.Repeat("A", 5000)} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			before := v.shelf.looks
			got := v.ask(method, token, "")
			text := body(t, got)
			nonce := text[strings.Index(text, `nonce="`)+7:][:22]
			text = strings.ReplaceAll(text, nonce, "")
			if first == "" {
				first = text
			}
			if got.StatusCode != http.StatusNotFound || text != first || v.shelf.looks != before+1 {
				t.Errorf("%s %s: %s, %d looks\n%s", method, name, got.Status, v.shelf.looks-before, text)
			}
		}
	}
	if got := v.ask(http.MethodGet, v.token(), ""); got.StatusCode != http.StatusOK {
		t.Errorf("a new link: %s", got.Status)
	}
}

func TestLinksOfAnOlderSecretWork(t *testing.T) {
	t.Parallel()
	v := newVisit(t)
	older, err := NewLinks("https://keys.example.com", [][]byte{{2}}, time.Hour, v.Now)
	if err != nil {
		t.Fatal(err)
	}
	url := older.URL(Ref{Merchant: "default", Order: "cs_1"}, v.now)
	if got := v.ask(http.MethodGet, strings.TrimPrefix(url, "https://keys.example.com/orders/"), ""); got.StatusCode != http.StatusOK {
		t.Errorf("%s", got.Status)
	}
}

func TestALinkIsAskedForTooOften(t *testing.T) {
	t.Parallel()
	v := newVisit(t)
	status := 0
	for range perLink + 1 {
		status = v.ask(http.MethodGet, v.token(), "").StatusCode
	}
	if status != http.StatusTooManyRequests {
		t.Errorf("%d", status)
	}
	v.now = v.now.Add(time.Minute)
	if status = v.ask(http.MethodGet, v.token(), "").StatusCode; status != http.StatusOK {
		t.Errorf("a minute later: %d", status)
	}
}

func TestPublicURLsThatAreNone(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"", "keys.example.com", "ftp://keys.example.com", "https://a:b@keys.example.com", "https://keys.example.com/?a=b"} {
		if _, err := NewLinks(url, nil, time.Hour, time.Now); err == nil {
			t.Errorf("%q is taken", url)
		}
	}
}
