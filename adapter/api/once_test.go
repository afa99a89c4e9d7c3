package api_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/keytill/keytill/adapter/access"
)

const replaceUnit = "/v1/orders/cs_1/lines/li_1/units/1/replace"

// bought has an order cs_1 whose line li_1 has one unit, and keys left.
func bought(t *testing.T) *shop {
	t.Helper()
	s := newShop(t)
	s.stock(20)
	s.sell("cs_1", "1#li_1")
	return s
}

func (s *shop) replaced() (n int) {
	s.t.Helper()
	s.must(s.db.QueryRow(s.t.Context(), `SELECT count(*) FROM keytill.audit WHERE action = 'replace'`).Scan(&n))
	return n
}

func TestAWriteWithAnIdempotencyKeyIsDoneOnce(t *testing.T) {
	t.Parallel()
	s := bought(t)
	body := fields{"reason": "faulty"}
	first := s.want(http.StatusOK, access.Support, "POST", replaceUnit, body, "Idempotency-Key", "a")
	again := s.want(http.StatusOK, access.Support, "POST", replaceUnit, body, "Idempotency-Key", "a")
	if again.body != first.body || again.header.Get("Idempotent-Replayed") != "true" || first.header.Get("Idempotent-Replayed") != "" ||
		again.header.Get("Content-Type") != first.header.Get("Content-Type") {
		t.Errorf("first %v %s\nagain %v %s", first.header, first.body, again.header, again.body)
	}
	if n := s.replaced(); n != 1 {
		t.Errorf("replaced %d times", n)
	}
	s.want(http.StatusOK, access.Support, "POST", replaceUnit, body, "Idempotency-Key", "b")
	s.want(http.StatusOK, access.Admin, "POST", replaceUnit, body, "Idempotency-Key", "a") // of another token: another key
	s.want(http.StatusOK, access.Support, "POST", replaceUnit, body)
	if n := s.replaced(); n != 4 {
		t.Errorf("replaced %d times, want 4", n)
	}
}

func TestAnIdempotencyKeyIsOfOneRequest(t *testing.T) {
	t.Parallel()
	s := bought(t)
	s.want(http.StatusOK, access.Support, "POST", replaceUnit, fields{"reason": "faulty"}, "Idempotency-Key", "a")
	for _, other := range []struct {
		path string
		body any
	}{{replaceUnit, fields{"reason": "other"}}, {strings.Replace(replaceUnit, "replace", "revoke", 1), fields{"reason": "faulty"}},
		{strings.Replace(replaceUnit, "units/1", "units/2", 1), fields{"reason": "faulty"}}} {
		a := s.want(http.StatusUnprocessableEntity, access.Support, "POST", other.path, other.body, "Idempotency-Key", "a")
		if !strings.Contains(a.body, "key_reused") {
			t.Errorf("%s %v: %s", other.path, other.body, a.body)
		}
	}
	s.want(http.StatusUnprocessableEntity, access.Support, "POST", replaceUnit, fields{"reason": "x"}, "Idempotency-Key", strings.Repeat("k", 201))
}

func TestOfRequestsAtOnceWithOneKeyOneIsDone(t *testing.T) {
	t.Parallel()
	s := bought(t)
	answers := make([]answer, 12)
	var group sync.WaitGroup
	for i := range answers {
		group.Go(func() {
			var err error
			if answers[i], err = s.try(access.Support, "POST", replaceUnit, fields{"reason": "faulty"}, "Idempotency-Key", "race"); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	done := ""
	for _, a := range answers {
		switch {
		case a.status == http.StatusConflict && strings.Contains(a.body, "under_way"):
		case a.status == http.StatusOK && (done == "" || done == a.body):
			done = a.body
		default:
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	if n := s.replaced(); n != 1 || done == "" {
		t.Errorf("replaced %d times", n)
	}
}

func TestWhatFailedByTheCallersFaultIsKept(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	body := fields{"ref": "cart", "lines": []fields{{"sku": "game", "quantity": 1}}}
	s.want(http.StatusNotFound, access.Storefront, "POST", "/v1/reservations", body, "Idempotency-Key", "a")
	s.stock(1)
	a := s.want(http.StatusNotFound, access.Storefront, "POST", "/v1/reservations", body, "Idempotency-Key", "a")
	if a.header.Get("Idempotent-Replayed") != "true" {
		t.Error("it was tried again")
	}
}

func TestWhatFailedHereIsTriedAgain(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock(1)
	_, err := s.db.Exec(t.Context(), `ALTER TABLE keytill.reservations RENAME TO gone`)
	s.must(err)
	body := fields{"ref": "cart", "lines": []fields{{"sku": "game", "quantity": 1}}}
	s.want(http.StatusInternalServerError, access.Storefront, "POST", "/v1/reservations", body, "Idempotency-Key", "a")
	_, err = s.db.Exec(t.Context(), `ALTER TABLE keytill.gone RENAME TO reservations`)
	s.must(err)
	s.want(http.StatusOK, access.Storefront, "POST", "/v1/reservations", body, "Idempotency-Key", "a")
}

// A process that dies in a request leaves its row open.
func TestARequestThatWasCutOff(t *testing.T) {
	t.Parallel()
	s := bought(t)
	reserve := fields{"ref": "cart", "lines": []fields{{"sku": "game", "quantity": 1}}}
	s.want(http.StatusOK, access.Support, "POST", replaceUnit, fields{"reason": "faulty"}, "Idempotency-Key", "once")
	s.want(http.StatusOK, access.Storefront, "POST", "/v1/reservations", reserve, "Idempotency-Key", "safe")
	open := func(ago string) {
		_, err := s.db.Exec(t.Context(), `UPDATE keytill.api_requests
			SET done_at = NULL, status = NULL, body = NULL, begun_at = now() - $1::text::interval`, ago)
		s.must(err)
	}
	open("1 second")
	s.want(http.StatusConflict, access.Storefront, "POST", "/v1/reservations", reserve, "Idempotency-Key", "safe")
	open("5 minutes")
	a := s.want(http.StatusConflict, access.Support, "POST", replaceUnit, fields{"reason": "faulty"}, "Idempotency-Key", "once")
	if !strings.Contains(a.body, "unknown_outcome") || s.replaced() != 1 {
		t.Errorf("%s, replaced %d times", a.body, s.replaced())
	}
	s.want(http.StatusOK, access.Storefront, "POST", "/v1/reservations", reserve, "Idempotency-Key", "safe")
}

func TestAnswersAreForgottenAfterADayAndHoldNoKey(t *testing.T) {
	t.Parallel()
	s := bought(t)
	s.want(http.StatusOK, access.Support, "POST", "/v1/orders/cs_1/reveal", fields{"reason": "ticket"}, "Idempotency-Key", "secret")
	s.want(http.StatusOK, access.Support, "POST", "/v1/orders/cs_1/retry", fields{"reason": "x"}, "Idempotency-Key", "old")
	var kept, keys int
	s.must(s.db.QueryRow(t.Context(), `SELECT count(*), count(*) FILTER (WHERE convert_from(body, 'UTF8') LIKE '%GAME-%') FROM keytill.api_requests`).Scan(&kept, &keys))
	if kept != 1 || keys != 0 {
		t.Errorf("%d answers are kept, %d with keys", kept, keys)
	}
	_, err := s.db.Exec(t.Context(), `UPDATE keytill.api_requests SET expires_at = now() - interval '1 second'`)
	s.must(err)
	s.want(http.StatusOK, access.Support, "POST", "/v1/orders/cs_1/retry", fields{"reason": "y"}, "Idempotency-Key", "new")
	s.must(s.db.QueryRow(t.Context(), `SELECT count(*) FROM keytill.api_requests`).Scan(&kept))
	if kept != 1 {
		t.Errorf("%d answers are kept", kept)
	}
}
