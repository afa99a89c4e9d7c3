package api_test

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/keytill/keytill/adapter/access"
)

func (s *shop) insertOrders(from, to int) {
	s.t.Helper()
	// Several have the same time, as orders of a rush have.
	_, err := s.db.Exec(s.t.Context(), `
		INSERT INTO keytill.orders (merchant_id, order_id, payment, currency, amount_total, amount_captured, amount_refunded, placed_at, ticket, settled_at)
		SELECT 'default', 'cs_' || n, 'paid', 'eur', 1, 1, 0, timestamptz '2026-01-01' + n / 4 * interval '1 minute', n, now()
		  FROM generate_series($1::int, $2) AS n`, from, to)
	s.must(err)
}

type page struct {
	Data []struct {
		ID any `json:"id"`
	}
	Next string
}

func TestPagesNeitherRepeatNorMissWhatWasThere(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.insertOrders(100, 199)
	_, err := s.db.Exec(t.Context(), `
		INSERT INTO keytill.findings (merchant_id, kind, subject, detail, opened_at)
		SELECT 'default', 'shortage', 'cs_' || n, 'x', now() FROM generate_series(1, 100) AS n`)
	s.must(err)
	_, err = s.db.Exec(t.Context(), `
		INSERT INTO keytill.audit (merchant_id, at, actor, action, subject) SELECT 'default', now(), 'x', 'y', 'z' FROM generate_series(1, 100)`)
	s.must(err)
	for _, list := range []struct {
		path   string
		meddle func(round int)
	}{
		{"/v1/orders", func(round int) { s.insertOrders(1000*round, 1000*round+6) }},
		{"/v1/findings", func(round int) {
			_, err := s.db.Exec(t.Context(), `UPDATE keytill.findings SET closed_at = now() WHERE finding_id = (SELECT min(finding_id) FROM keytill.findings WHERE closed_at IS NULL)`)
			s.must(err)
		}},
		{"/v1/audit", func(int) {
			_, err := s.db.Exec(t.Context(), `INSERT INTO keytill.audit (merchant_id, at, actor, action, subject) VALUES ('default', now(), 'x', 'y', 'z')`)
			s.must(err)
		}},
	} {
		seen := make(map[string]bool)
		next := ""
		for round := 1; ; round++ {
			got := read[page](s, s.want(http.StatusOK, access.Viewer, "GET", list.path+"?limit=7&cursor="+url.QueryEscape(next), nil))
			for _, entry := range got.Data {
				id := fmt.Sprint(entry.ID)
				if seen[id] {
					t.Errorf("%s: %s is there twice", list.path, id)
				}
				seen[id] = true
			}
			if next = got.Next; next == "" || round > 50 {
				break
			}
			list.meddle(round)
		}
		if len(seen) != 100 {
			t.Errorf("%s: %d entries on all pages, want 100", list.path, len(seen))
		}
	}
}

func TestACursorIsOfItsList(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.insertOrders(1, 5)
	cursor := read[page](s, s.want(http.StatusOK, access.Viewer, "GET", "/v1/orders?limit=2", nil)).Next
	s.want(http.StatusOK, access.Viewer, "GET", "/v1/orders?cursor="+cursor, nil)
	for _, path := range []string{"/v1/findings?cursor=" + cursor, "/v1/audit?cursor=" + cursor, "/v1/orders?cursor=" + cursor[1:],
		"/v1/orders?cursor=e30", "/v1/orders?cursor=%00", "/v1/orders?limit=0", "/v1/orders?limit=201", "/v1/orders?limit=x", "/v1/orders?offset=5"} {
		if a := s.call(access.Viewer, "GET", path, nil); a.status != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}

func TestListsOfOrdersCanBeNarrowed(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock(2)
	s.sell("cs_1", "2")
	s.sell("cs_2", "1")
	for query, want := range map[string]int{"": 2, "?waiting=true": 1, "?payment=refunded": 0, "?payment=paid": 2, "?ref=ch_1": 1, "?ref=cs_3": 0} {
		if got := read[page](s, s.want(http.StatusOK, access.Viewer, "GET", "/v1/orders"+query, nil)); len(got.Data) != want {
			t.Errorf("%q: %d orders, want %d", query, len(got.Data), want)
		}
	}
	s.want(http.StatusUnprocessableEntity, access.Viewer, "GET", "/v1/orders?ref=buyer%40example.com", nil)
	if got := read[page](s, s.want(http.StatusOK, access.Viewer, "POST", "/v1/orders/search?limit=1", fields{"query": "BUYER@example.com"})); len(got.Data) != 1 || got.Next == "" {
		t.Errorf("%+v", got)
	}
	if got := read[page](s, s.want(http.StatusOK, access.Viewer, "POST", "/v1/orders/search", fields{"key": "NO-SUCH-KEY"})); len(got.Data) != 0 {
		t.Errorf("%+v", got)
	}
}
