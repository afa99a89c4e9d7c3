package api_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keytill/keytill/adapter"
	"github.com/keytill/keytill/adapter/access"
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

// A shop is a keytill with an API and a token for each role.
type shop struct {
	t      *testing.T
	db     *pgxpool.Pool
	stripe *stripefake.Server
	url    string
	tokens map[access.Role]string
	log    *lockedBuffer
}

const other access.Role = "other" // an admin's token of another merchant

type config = adapter.Config

func newShop(t *testing.T, change ...func(*config)) *shop {
	t.Helper()
	s := &shop{t: t, db: pgtest.New(t), stripe: stripefake.Start(stripefake.Config{}), tokens: make(map[access.Role]string), log: &lockedBuffer{}}
	t.Cleanup(s.stripe.Close)
	var lines []string
	for _, role := range access.Roles {
		text, line, err := access.New(access.Token{Name: "test-" + string(role), Role: role})
		s.must(err)
		s.tokens[role], lines = text, append(lines, line)
	}
	text, line, err := access.New(access.Token{Name: "test-other", Role: access.Admin, Merchant: "other"})
	s.must(err)
	s.tokens[other], lines = text, append(lines, line)
	tokens, err := access.Read(strings.NewReader(strings.Join(lines, "\n")))
	s.must(err)
	keyset, err := inventory.NewKeyset()
	s.must(err)
	c := config{Pool: s.db, PublicURL: "https://keys.example.com", Keyset: keyset, Tokens: tokens,
		Stripe: adapter.Stripe{APIKey: s.stripe.APIKey(), WebhookSecrets: s.stripe.Secrets(), URL: s.stripe.URL(), PerSecond: 10_000},
		Logger: slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	for _, f := range change {
		f(&c)
	}
	sh, err := adapter.New(t.Context(), c)
	s.must(err)
	server := httptest.NewServer(sh.Handler())
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

// An answer is what the API gave back.
type answer struct {
	status int
	header http.Header
	body   string
}

// call makes a request with a role's token. A body that is no string is sent as JSON.
func (s *shop) call(role access.Role, method, path string, body any, headers ...string) answer {
	s.t.Helper()
	a, err := s.try(role, method, path, body, headers...)
	s.must(err)
	return a
}

func (s *shop) try(role access.Role, method, path string, body any, headers ...string) (answer, error) {
	var reader io.Reader
	kind := "application/json"
	switch b := body.(type) {
	case nil:
	case string:
		reader, kind = strings.NewReader(b), "application/octet-stream"
	default:
		text, err := json.Marshal(b)
		if err != nil {
			return answer{}, err
		}
		reader = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, reader)
	if err != nil {
		return answer{}, err
	}
	if reader != nil {
		req.Header.Set("Content-Type", kind)
	}
	if token, ok := s.tokens[role]; ok {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(text)}, err
}

// want makes a request that must be answered with a status.
func (s *shop) want(status int, role access.Role, method, path string, body any, headers ...string) answer {
	s.t.Helper()
	a := s.call(role, method, path, body, headers...)
	if a.status != status {
		s.t.Fatalf("%s %s: %d %s, want %d", method, path, a.status, a.body, status)
	}
	return a
}

// read decodes an answer.
func read[T any](s *shop, a answer) (value T) {
	s.t.Helper()
	s.must(json.Unmarshal([]byte(a.body), &value))
	return value
}

type fields = map[string]any

// stock makes a pool game, sold as price_game, with the keys GAME-1 to GAME-n.
func (s *shop) stock(n int) {
	s.t.Helper()
	s.want(http.StatusCreated, access.Admin, "POST", "/v1/pools", fields{"sku": "game", "name": "The Game"})
	s.want(http.StatusOK, access.Admin, "PUT", "/v1/mappings/price_game", fields{"sku": "game"})
	if n > 0 {
		s.want(http.StatusOK, access.Admin, "POST", "/v1/pools/game/imports", keys("GAME", n))
	}
}

func keys(prefix string, n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(prefix + "-" + string(rune('A'+i%26)) + strings.Repeat("x", i/26) + "\n")
	}
	return b.String()
}

// sell makes a paid session at Stripe, of so many units (and #line after them), and settles it.
func (s *shop) sell(session string, units string) {
	s.t.Helper()
	n, line, named := strings.Cut(units, "#")
	item := "price_game*" + n + "@500"
	if named {
		item += "#" + line
	}
	items, err := stripefake.ParseItems(item)
	s.must(err)
	s.must(s.stripe.Session(session, items, stripefake.Fields{"customer_details.email": "buyer@example.com"}))
	s.want(http.StatusOK, access.Storefront, "POST", "/v1/orders/"+session+"/settle", nil)
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
