package cli

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/keytill/keytill/adapter"
	"github.com/keytill/keytill/internal/pgtest"
	"github.com/keytill/keytill/inventory"
)

// The daemon shows its metrics; a shop that is mounted on a storefront's router does not, since that is public.
func TestTheDaemonShowsMetricsAndAMountedShopDoesNot(t *testing.T) {
	t.Parallel()
	keyset, err := inventory.NewKeyset()
	if err != nil {
		t.Fatal(err)
	}
	shop, err := adapter.New(t.Context(), adapter.Config{Pool: pgtest.New(t), Keyset: keyset,
		Stripe: adapter.Stripe{APIKey: "sk_test_x", WebhookSecrets: []string{"whsec_x"}}})
	if err != nil {
		t.Fatal(err)
	}
	get := func(h http.Handler, path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		return w
	}
	if w := get(routes(shop), "/metrics"); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "keytill_events_pending 0\n") {
		t.Errorf("the daemon: %d %s", w.Code, w.Body)
	}
	if w := get(shop.Handler(), "/metrics"); w.Code != http.StatusNotFound {
		t.Errorf("a mounted shop: %d", w.Code)
	}
	if w := get(routes(shop), "/healthz"); w.Code != http.StatusOK {
		t.Errorf("/healthz: %d", w.Code)
	}
}
