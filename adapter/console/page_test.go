package console_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/keytill/keytill/adapter/access"
)

// walk follows a list to its end and counts how often each entry is shown.
func (b *browser) walk(path string, entry *regexp.Regexp, between func()) map[string]int {
	b.t.Helper()
	seen := make(map[string]int)
	for pages := 0; path != "" && pages < 20; pages++ {
		a := b.get(path).want(200)
		found := entry.FindAllString(a.content(), -1)
		if len(found) > 50 {
			b.t.Errorf("%s shows %d entries", path, len(found))
		}
		for _, f := range found {
			seen[f]++
		}
		path = ""
		if _, link, more := strings.Cut(a.body, `rel="next" href="`); more {
			link, _, _ = strings.Cut(link, `"`)
			path = strings.ReplaceAll(link, "&amp;", "&")
		}
		between()
	}
	return seen
}

func TestListsShowEveryEntryOnceThoughOthersAreAdded(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for _, sql := range []string{
		`INSERT INTO keytill.orders (merchant_id, order_id, payment, currency, amount_total, amount_captured, amount_refunded, placed_at, ticket, settled_at)
		 SELECT 'default', 'cs_a' || lpad(n::text, 3, '0'), 'paid', 'eur', 1, 1, 0, now() - n / 3 * interval '1 minute', n, now() FROM generate_series(1, 120) n`,
		`INSERT INTO keytill.findings (merchant_id, kind, subject, detail, opened_at)
		 SELECT 'default', 'unknown_price', 'price_a' || lpad(n::text, 3, '0'), 'x', now() FROM generate_series(1, 120) n`,
		`INSERT INTO keytill.audit (merchant_id, at, actor, action, subject)
		 SELECT 'default', now(), 'jane', 'import', 'batch_a' || lpad(n::text, 3, '0') FROM generate_series(1, 120) n`,
		`INSERT INTO keytill.pools (merchant_id, sku, name, created_at) SELECT 'default', 'sku_a' || lpad(n::text, 3, '0'), 'Product', now() FROM generate_series(1, 120) n`,
	} {
		if _, err := s.db.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	added := 0
	add := func() {
		added++
		_, err := s.db.Exec(t.Context(), `INSERT INTO keytill.orders (merchant_id, order_id, payment, currency, amount_total, amount_captured, amount_refunded,
			placed_at, ticket, settled_at) VALUES ('default', 'cs_new' || $1::int, 'paid', 'eur', 1, 1, 0, now(), 1, now())`, added)
		s.must(err)
	}
	b := s.as(access.Viewer)
	for path, entry := range map[string]string{"/console/orders": `>cs_a\d+<`, "/console/orders?payment=paid": `>cs_a\d+<`, "/console/findings": `>price_a\d+<`,
		"/console/audit": `>batch_a\d+<`, "/console/pools": `>sku_a\d+<`} {
		seen := b.walk(path, regexp.MustCompile(entry), add)
		if len(seen) != 120 {
			t.Errorf("%s shows %d of 120", path, len(seen))
		}
		for what, n := range seen {
			if n != 1 {
				t.Errorf("%s shows %s %d times", path, what, n)
			}
		}
	}
}
