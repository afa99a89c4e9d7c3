package console_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"mime/multipart"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keytill/keytill/adapter"
	"github.com/keytill/keytill/adapter/access"
	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/internal/pgtest"
	"github.com/keytill/keytill/internal/sqltest"
	"github.com/keytill/keytill/internal/stripefake"
	"github.com/keytill/keytill/inventory"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestEveryStatementPrepares(t *testing.T) {
	t.Parallel()
	sqltest.Prepare(t, pgtest.New(t), ".", nil)
}

// A shop is a keytill with a console and a token for each role.
type shop struct {
	t      *testing.T
	db     *pgxpool.Pool
	stripe *stripefake.Server
	shop   *adapter.Shop
	url    string
	tokens map[access.Role]string
	log    *lockedBuffer
}

const other access.Role = "other" // an admin's token of another merchant

func newShop(t *testing.T, change ...func(*adapter.Config)) *shop {
	t.Helper()
	s := &shop{t: t, db: pgtest.New(t), stripe: stripefake.Start(stripefake.Config{}), tokens: make(map[access.Role]string), log: &lockedBuffer{}}
	t.Cleanup(s.stripe.Close)
	var lines []string
	for _, role := range append([]access.Role{other}, access.Roles...) {
		token := access.Token{Name: "test-" + string(role), Role: role}
		if role == other {
			token.Role, token.Merchant = access.Admin, "other"
		}
		text, line, err := access.New(token)
		s.must(err)
		s.tokens[role], lines = text, append(lines, line)
	}
	tokens, err := access.Read(strings.NewReader(strings.Join(lines, "\n")))
	s.must(err)
	keyset, err := inventory.NewKeyset()
	s.must(err)
	c := adapter.Config{Pool: s.db, Keyset: keyset, Tokens: tokens,
		Stripe: adapter.Stripe{APIKey: s.stripe.APIKey(), WebhookSecrets: s.stripe.Secrets(), URL: s.stripe.URL(), PerSecond: 10_000},
		Logger: slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	for _, f := range change {
		f(&c)
	}
	s.shop, err = adapter.New(t.Context(), c)
	s.must(err)
	server := httptest.NewServer(s.shop.Handler())
	t.Cleanup(server.Close)
	s.url = server.URL
	s.must(inventory.AddMerchant(t.Context(), s.db, "other", "acct_other", time.Now()))
	return s
}

func (s *shop) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// stock makes a pool that is sold as price_SKU, with so many keys SKU-A, SKU-B, ….
func (s *shop) stock(sku, name string, keys ...string) {
	s.t.Helper()
	ctx := s.t.Context()
	var pool inventory.Pool
	s.must(pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) (err error) {
		pool, err = inventory.CreatePool(ctx, tx, inventory.Pool{Merchant: inventory.DefaultMerchant, SKU: sku, Name: name, CreatedAt: time.Now().Add(-72 * time.Hour)})
		return err
	}))
	s.must(s.shop.Service().Map(ctx, inventory.DefaultMerchant, "price_"+sku, &pool, 1))
	if len(keys) > 0 {
		_, _, err := s.shop.Service().Import(ctx, inventory.Import{Pool: pool, File: strings.NewReader(strings.Join(keys, "\n")), FileName: sku + ".txt",
			Supplier: "Wholesale Ltd", Actor: "test", At: time.Now()})
		s.must(err)
	}
}

// sell makes a paid session at Stripe, of items such as price_game*2@500#li_1, and settles it.
func (s *shop) sell(session, email, items string) fulfillment.Order {
	s.t.Helper()
	parsed, err := stripefake.ParseItems(strings.Fields(items)...)
	s.must(err)
	s.must(s.stripe.Session(session, parsed, stripefake.Fields{"customer_details.email": email}))
	order, err := s.shop.Settle(s.t.Context(), session)
	s.must(err)
	return order
}

// A browser keeps cookies and follows no redirect by itself.
type browser struct {
	*shop
	client *http.Client
}

func (s *shop) browser() *browser {
	s.t.Helper()
	jar, err := cookiejar.New(nil)
	s.must(err)
	return &browser{s, &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// as is a browser that has logged in.
func (s *shop) as(role access.Role) *browser {
	s.t.Helper()
	b := s.browser()
	b.post("/console/login", url.Values{"token": {s.tokens[role]}}).want(http.StatusSeeOther)
	return b
}

// An answer is what the console gave back.
type answer struct {
	t      *testing.T
	asked  string
	status int
	header http.Header
	body   string
}

func (b *browser) do(req *http.Request) answer {
	b.t.Helper()
	resp, err := b.client.Do(req)
	b.must(err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	b.must(err)
	return answer{b.t, req.Method + " " + req.URL.Path, resp.StatusCode, resp.Header, string(text)}
}

func (b *browser) request(method, path string, body io.Reader) *http.Request {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, body)
	b.must(err)
	if method == http.MethodPost { // as every browser of the last years says
		req.Header.Set("Sec-Fetch-Site", "same-origin")
		req.Header.Set("Origin", b.url)
	}
	return req
}

func (b *browser) get(path string) answer {
	b.t.Helper()
	return b.do(b.request(http.MethodGet, path, nil))
}

func (b *browser) post(path string, form url.Values) answer {
	b.t.Helper()
	req := b.request(http.MethodPost, path, strings.NewReader(form.Encode()))
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return b.do(req)
}

func (b *browser) upload(file, text string, fields ...string) answer {
	b.t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	for i := 0; i+1 < len(fields); i += 2 {
		b.must(form.WriteField(fields[i], fields[i+1]))
	}
	part, err := form.CreateFormFile("file", file)
	b.must(err)
	_, err = part.Write([]byte(text))
	b.must(err)
	b.must(form.Close())
	req := b.request(http.MethodPost, "/console/imports", &body)
	req.Header.Set("Content-Type", form.FormDataContentType())
	return b.do(req)
}

// want fails the test unless the answer has a status.
func (a answer) want(status int) answer {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("%s: %d, want %d:\n%s", a.asked, a.status, status, a.content())
	}
	return a
}

// content is the page without what all pages have.
func (a answer) content() string {
	if _, content, ok := strings.Cut(a.body, "<main"); ok {
		return content
	}
	return a.body
}

// to is where the answer leads.
func (a answer) to() string {
	a.t.Helper()
	a.want(http.StatusSeeOther)
	return a.header.Get("Location")
}

func (a answer) has(texts ...string) answer {
	a.t.Helper()
	for _, text := range texts {
		if !strings.Contains(a.body, text) {
			a.t.Errorf("%s does not have %q:\n%s", a.asked, text, a.content())
		}
	}
	return a
}

func (a answer) lacks(texts ...string) answer {
	a.t.Helper()
	for _, text := range texts {
		if strings.Contains(a.body, text) {
			a.t.Errorf("%s has %q:\n%s", a.asked, text, a.content())
		}
	}
	return a
}

// ref is how a form names a unit with its key.
func ref(o fulfillment.Order, line, unit int) string {
	u := o.Lines[line].Units[unit-1]
	return fmt.Sprintf("%d.%d.%s", u.Unit, u.KeyID, o.Lines[line].ID)
}

// lockedBuffer is a log that several goroutines write.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write appends.
func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
