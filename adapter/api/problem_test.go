package api_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/keytill/keytill/adapter/access"
)

// problem reads a problem document and holds it against what every one must have.
func (s *shop) problem(a answer) (kind string) {
	s.t.Helper()
	var p struct {
		Type, Title, Detail string
		Status              int
	}
	if err := json.Unmarshal([]byte(a.body), &p); err != nil || a.header.Get("Content-Type") != "application/problem+json" {
		s.t.Errorf("%d %s %s is no problem document", a.status, a.header.Get("Content-Type"), a.body)
	}
	if p.Status != a.status || p.Title == "" || p.Detail == "" || !strings.HasPrefix(p.Type, "urn:keytill:problem:") {
		s.t.Errorf("%d: %s", a.status, a.body)
	}
	if a.header.Get("X-Request-Id") == "" {
		s.t.Errorf("%s names no request", a.body)
	}
	for _, inside := range []string{"SQLSTATE", "keytill.", "pgx", "goroutine", ".go:", "127.0.0.1", "SELECT"} {
		if strings.Contains(a.body, inside) {
			s.t.Errorf("the answer holds %q: %s", inside, a.body)
		}
	}
	return strings.TrimPrefix(p.Type, "urn:keytill:problem:")
}

func TestProblems(t *testing.T) {
	t.Parallel()
	s := newShop(t, func(c *config) { c.PublicURL = "" })
	s.stock(1)
	s.sell("cs_1", "1#li_1")
	for _, tt := range []struct {
		method, path string
		body         any
		status       int
		kind         string
	}{
		{"GET", "/v1/orders/cs_none", nil, 404, "no_order"},
		{"GET", "/v1/orders/buyer@example.com", nil, 404, "no_order"},
		{"POST", "/v1/orders/cs_none/settle", nil, 404, "not_at_stripe"},
		{"POST", "/v1/orders/cs_1/reveal", fields{}, 422, "invalid"},
		{"POST", "/v1/orders/cs_1/reveal", fields{"reason": " "}, 422, "no_reason"},
		{"POST", "/v1/orders/cs_1/lines/li_1/units/2/revoke", fields{"reason": "x"}, 404, "no_unit"},
		{"POST", "/v1/orders/cs_1/lines/li_1/units/1/revoke", fields{"reason": "x", "key_id": 12345}, 409, "other_key"},
		{"POST", "/v1/refunds/re_none/attribution", fields{"lines": "none"}, 404, "no_refund"},
		{"POST", "/v1/reservations", fields{"ref": "c", "lines": []fields{{"sku": "game", "quantity": 1}}}, 409, "sold_out"},
		{"POST", "/v1/reservations", fields{"ref": "c", "lines": []fields{{"sku": "none", "quantity": 1}}}, 404, "no_pool"},
		{"POST", "/v1/reservations", fields{"ref": "c", "lines": []fields{{"sku": "game", "quantity": 0}}}, 422, "invalid"},
		{"POST", "/v1/pools", fields{"sku": "game"}, 409, "pool_exists"},
		{"POST", "/v1/pools", fields{"sku": "x", "shortage": "maybe"}, 422, "invalid"},
		{"POST", "/v1/pools", fields{"sku": "x", "unknown": 1}, 422, "invalid"},
		{"PUT", "/v1/mappings/price_2", fields{}, 422, "invalid"},
		{"PUT", "/v1/mappings/price_2", fields{"sku": "none"}, 404, "no_pool"},
		{"POST", "/v1/pools/game/imports", "\n\n", 422, "empty_file"},
		{"POST", "/v1/pools/game/imports", keys("GAME", 1), 409, "imported_before"},
		{"POST", "/v1/pools/game/imports", "A\xff", 422, "bad_file"},
		{"POST", "/v1/pools/game/imports?format=lines&column=2", "A", 422, "invalid"},
		{"PUT", "/v1/pools/game/batches/99/state", fields{"state": "recalled"}, 404, "no_batch"},
		{"POST", "/v1/orders/search", fields{}, 422, "invalid"},
		{"POST", "/v1/orders/cs_1/link", fields{"reason": "ticket"}, 409, "no_pages"},
		{"GET", "/v1/no-such-thing", nil, 404, "no_such_operation"},
		{"PATCH", "/v1/pools", nil, 404, "no_such_operation"},
	} {
		a := s.call(access.Admin, tt.method, tt.path, tt.body)
		if kind := s.problem(a); a.status != tt.status || kind != tt.kind {
			t.Errorf("%s %s: %d %s, want %d %s", tt.method, tt.path, a.status, a.body, tt.status, tt.kind)
		}
	}
}

func TestWhatIsInsideStaysInside(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock(1)
	_, err := s.db.Exec(t.Context(), `ALTER TABLE keytill.findings RENAME TO gone`)
	s.must(err)
	a := s.want(http.StatusInternalServerError, access.Admin, "GET", "/v1/findings", nil, "X-Request-Id", "request-from-outside")
	if kind := s.problem(a); kind != "internal" {
		t.Error(a.body)
	}
	if text := s.log.String(); !strings.Contains(text, "request=request-from-outside") || !strings.Contains(text, "42P01") ||
		!strings.Contains(text, "token=test-admin") {
		t.Errorf("the log does not have it:\n%s", text)
	}
	s.stripe.Close()
	a = s.call(access.Admin, "POST", "/v1/orders/cs_1/settle", nil)
	if s.problem(a); a.status < 500 {
		t.Error(a.status, a.body)
	}
}

func TestWhatWasSentIsNotSentBack(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	const key = "SECRET-KEY-1"
	for _, body := range []any{fields{"key": key, "query": 5}, fields{"key": []string{key}}, fields{key: "x"}, `{"key": "` + key + `"`} {
		a := s.call(access.Admin, "POST", "/v1/orders/search", body, "Content-Type", "application/json")
		if a.status < 400 || strings.Contains(strings.ReplaceAll(a.body, "body."+key, ""), key) {
			t.Errorf("%v: %d %s", body, a.status, a.body)
		}
	}
	if strings.Contains(s.log.String(), key) {
		t.Error("the log holds what was sent")
	}
}

func TestRequestsAreBounded(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock(0)
	large := fields{"query": strings.Repeat("x", 70<<10)}
	for _, headers := range [][]string{nil, {"Idempotency-Key", "large"}} {
		a := s.want(http.StatusRequestEntityTooLarge, access.Admin, "POST", "/v1/orders/cs_1/resend", large, headers...)
		s.problem(a)
	}
	s.problem(s.want(http.StatusRequestEntityTooLarge, access.Admin, "POST", "/v1/pools/game/imports", strings.Repeat("0123456789abcde\n", 2<<20+1)))
}
