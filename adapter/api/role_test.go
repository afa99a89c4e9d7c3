package api_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/keytill/keytill/adapter/access"
)

// allowed says for each operation who may do it: v viewer, s support, a admin, f storefront, k verify. It is written down a
// second time on purpose: who changes a permission changes it here, too.
var allowed = map[string]string{
	"list-orders":      "vsa",
	"search-orders":    "vsaf",
	"get-order":        "vsaf",
	"get-history":      "vsa",
	"settle-order":     "saf",
	"retry-order":      "sa",
	"resend-order":     "saf",
	"get-order-keys":   "af",
	"reveal-keys":      "sa",
	"create-link":      "saf",
	"end-links":        "sa",
	"revoke-key":       "sa",
	"replace-key":      "sa",
	"attribute-refund": "sa",
	"send-again":       "saf",

	"reserve":             "af",
	"release-reservation": "af",

	"list-pools":      "vsaf",
	"create-pool":     "a",
	"change-pool":     "a",
	"list-mappings":   "vsaf",
	"set-mapping":     "a",
	"import-keys":     "a",
	"list-batches":    "vsa",
	"set-batch-state": "a",
	"get-stock":       "vsaf",

	"list-findings": "vsa",
	"list-audit":    "vsa",
	"start-sweep":   "a",
	"list-sweeps":   "vsa",

	"verify-key":       "ak",
	"list-key-changes": "ak",
}

var letters = map[access.Role]string{access.Viewer: "v", access.Support: "s", access.Admin: "a", access.Storefront: "f", access.Verify: "k"}

func TestEveryRoleOnEveryRoute(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	seen := 0
	for path, methods := range s.document().Paths {
		for method, op := range methods {
			seen++
			who, known := allowed[op.OperationID]
			if !known {
				t.Errorf("nobody said who may do %s", op.OperationID)
				continue
			}
			target := strings.NewReplacer("{id}", "cs_none", "{sku}", "none", "{ref}", "none", "{item}", "price_none", "{line}", "li_1",
				"{unit}", "1", "{batch}", "1").Replace(path)
			if a := s.call("", strings.ToUpper(method), target, nil); a.status != http.StatusUnauthorized || a.header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s without a token: %d", op.OperationID, a.status)
			}
			for _, role := range access.Roles {
				a := s.call(role, strings.ToUpper(method), target, nil)
				if got, want := a.status != http.StatusForbidden, strings.Contains(who, letters[role]); got != want {
					t.Errorf("%s as %s: %d %s, want it to be allowed: %t", op.OperationID, role, a.status, a.body, want)
				}
				if a.status == http.StatusUnauthorized || a.status >= 500 {
					t.Errorf("%s as %s: %d %s", op.OperationID, role, a.status, a.body)
				}
			}
		}
	}
	if seen != len(allowed) {
		t.Errorf("the document has %d operations, the table %d", seen, len(allowed))
	}
}

func TestOnlyAWholeTokenIsOne(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	admin := s.tokens[access.Admin]
	for _, header := range []string{"", admin, "Basic " + admin, "Bearer", "Bearer ", "Bearer " + admin + "x", "Bearer " + admin[:len(admin)-1],
		"Bearer " + strings.ToUpper(admin), "Bearer " + admin + ", Bearer " + admin} {
		if a := s.call("", "GET", "/v1/pools", nil, "Authorization", header); a.status != http.StatusUnauthorized {
			t.Errorf("%q: %d", strings.ReplaceAll(header, admin, "TOKEN"), a.status)
		}
	}
	s.want(http.StatusOK, "", "GET", "/v1/pools", nil, "Authorization", "bearer "+admin)
}

func TestATokenIsOfOneMerchant(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock(3)
	s.sell("cs_1", "1")
	s.want(http.StatusNotFound, other, "GET", "/v1/orders/cs_1", nil)
	s.want(http.StatusNotFound, other, "GET", "/v1/orders/cs_1/keys", nil)
	s.want(http.StatusNotFound, other, "POST", "/v1/orders/cs_1/reveal", fields{"reason": "curious"})
	s.want(http.StatusNotFound, other, "POST", "/v1/pools/game/imports", "STOLEN-1\n")
	for _, path := range []string{"/v1/orders", "/v1/pools", "/v1/audit", "/v1/findings", "/v1/mappings", "/v1/stock"} {
		if list := read[struct{ Data []any }](s, s.want(http.StatusOK, other, "GET", path, nil)); len(list.Data) > 0 {
			t.Errorf("%s of another merchant: %v", path, list.Data)
		}
	}
}

func TestViewersSeeNoWholeAddress(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock(3)
	s.sell("cs_1", "1")
	for _, role := range []access.Role{access.Viewer, access.Support} {
		for _, a := range []answer{s.want(http.StatusOK, role, "GET", "/v1/orders/cs_1", nil), s.want(http.StatusOK, role, "GET", "/v1/orders", nil),
			s.want(http.StatusOK, role, "POST", "/v1/orders/search", fields{"query": "buyer@example.com"})} {
			if whole := strings.Contains(a.body, "buyer@example.com"); whole != (role == access.Support) {
				t.Errorf("%s: %s", role, a.body)
			}
		}
	}
}

func TestAStorefrontSendsKeysToTheOrdersOwnAddressAlone(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock(3)
	s.sell("cs_1", "1")
	s.want(http.StatusUnprocessableEntity, access.Storefront, "POST", "/v1/orders/cs_1/resend", fields{"to": "thief@example.com"})
	s.want(http.StatusAccepted, access.Storefront, "POST", "/v1/orders/cs_1/resend", nil)
	var recipients []string
	s.must(s.db.QueryRow(t.Context(), `SELECT array_agg(recipient) FROM keytill.deliveries WHERE channel = 'email'`).Scan(&recipients))
	if !slices.Equal(recipients, []string{"buyer@example.com"}) {
		t.Errorf("sent to %v", recipients)
	}
}

func TestTheAPIIsClosedWithoutTokens(t *testing.T) {
	t.Parallel()
	s := newShop(t, func(c *config) { c.Tokens = nil })
	for _, path := range []string{"/v1/openapi.json", "/v1/pools", "/v1/orders/cs_1", "/v1/keys/verify", "/metrics"} {
		if a := s.call(access.Admin, "GET", path, nil); a.status != http.StatusNotFound {
			t.Errorf("%s: %d", path, a.status)
		}
	}
}
