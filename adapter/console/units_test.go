package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/keytill/keytill/adapter/access"
)

var unitShown = regexp.MustCompile(`Unit \d+<`)

func manyKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("MANY-%04d-KEY", i+1)
	}
	return keys
}

// An order of 450 units on two lines: each of them is on some page, with its key when that is revealed, and can be acted on.
func TestEveryUnitOfALargeOrderIsReachedAndActedOn(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("game", "The Game", manyKeys(460)...)
	o := s.sell("cs_1", "buyer@example.com", "price_game*430@500#li_1 price_game*20@500#li_2")
	b := s.as(access.Support)
	path, units, keys := "/console/orders/cs_1", 0, map[string]bool{}
	for pages := 0; path != "" && pages < 10; pages++ {
		a := b.get(path).want(http.StatusOK)
		shown := len(unitShown.FindAllString(strings.ReplaceAll(a.content(), "</label>", "<"), -1))
		if shown > 200 {
			t.Errorf("%s shows %d units", path, shown)
		}
		units += shown
		_, from, _ := strings.Cut(path, "from=")
		from, _, _ = strings.Cut(from, "#")
		revealed := b.post("/console/orders/cs_1/reveal", url.Values{"reason": {"look"}, "from": {from}}).want(http.StatusOK)
		for _, key := range regexp.MustCompile(`MANY-\d+-KEY`).FindAllString(revealed.body, -1) {
			if keys[key] {
				t.Errorf("%s is shown twice", key)
			}
			keys[key] = true
		}
		path = ""
		if _, link, more := strings.Cut(a.body, `rel="next" href="`); more {
			link, _, _ = strings.Cut(link, `"`)
			path, _, _ = strings.Cut(link, "#")
		}
	}
	if units != 450 || len(keys) != 450 {
		t.Errorf("%d units are shown, %d keys revealed", units, len(keys))
	}
	// The last units of each line, found by their numbers.
	b.get("/console/orders/cs_1?line=1&first=430").want(http.StatusOK).has("Units 430 to 430 of 430", ref(o, 0, 430), ref(o, 1, 20))
	to := b.post("/console/orders/cs_1/replace", url.Values{"unit": {ref(o, 0, 430)}, "reason": {"used"}, "from": {"1.401"}}).to()
	if to != "/console/orders/cs_1?from=1.401&done=replace" {
		t.Errorf("after the act to %s", to)
	}
	b.get(to).has("Replaced.", "was taken back").lacks(ref(o, 0, 430))
	b.post("/console/orders/cs_1/revoke", url.Values{"unit": {ref(o, 1, 20)}, "reason": {"fraud"}, "from": {"2.1"}}).to()
	b.get("/console/orders/cs_1?from=2.20").has("taken back", "by person")
}

// What a batch's page says of its keys is exact before, between and after folds, and who has them is listed with what to do.
func TestABatchSaysWhoHasItsKeys(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("game", "The Game", manyKeys(150)...)
	b := s.as(access.Admin)
	fold := func() { s.must(s.shop.Service().FoldFigures(t.Context())) }
	fold()
	o := s.sell("cs_1", "buyer@example.com", "price_game*60@500#li_1")
	b.get("/console/batch?sku=game&id=1").has("90 available, 60 sold")
	fold()
	b.get("/console/batch?sku=game&id=1").has("90 available, 60 sold")
	b.post("/console/orders/cs_1/revoke", url.Values{"unit": {ref(o, 0, 3)}, "reason": {"fraud"}}).to()
	s.sell("cs_2", "other@example.com", "price_game*1@500#li_2")
	a := b.post("/console/batch", url.Values{"sku": {"game"}, "id": {"1"}, "state": {"recalled"}, "reason": {"stolen"}}).to()
	first := b.get(a).has("60 sold, 90 taken back", "60 in all", "cs_1")
	fold()
	b.get(a).has("60 sold, 90 taken back")
	holders := regexp.MustCompile(`line-id=li_\d&amp;first=\d+`)
	_, link, _ := strings.Cut(first.body, `rel="next" href="`)
	link, _, _ = strings.Cut(link, `"`)
	second := b.get(strings.ReplaceAll(link, "&amp;", "&")).want(http.StatusOK).has("cs_2")
	seen := map[string]bool{}
	for _, h := range append(holders.FindAllString(first.body, -1), holders.FindAllString(second.body, -1)...) {
		seen[h] = true
	}
	if len(seen) != 60 || seen["line-id=li_1&amp;first=3"] || strings.Contains(second.body, `rel="next"`) {
		t.Errorf("%d holders are listed", len(seen))
	}
	if to := b.get("/console/orders/cs_2?line-id=li_2&first=1").to(); to != "/console/orders/cs_2?from=1.1#units" {
		t.Errorf("a holder's unit is at %s", to)
	}
}
