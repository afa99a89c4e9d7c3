package console_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/keytill/keytill/adapter/access"
	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/internal/stripefake"
	"github.com/keytill/keytill/inventory"
)

func TestAnOrderIsFoundByWhateverTheBuyerHolds(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("game", "The Game", "GAME-ONE", "GAME-TWO", "GAME-THREE")
	order := s.sell("cs_1", "buyer@example.com", "price_game*1@500#li_1")
	s.must(s.stripe.Refund("re_1", order.PaymentIntent, stripefake.Fields{"amount": "100"}))
	if _, err := s.shop.Settle(t.Context(), "cs_1"); err != nil {
		t.Fatal(err)
	}
	b := s.as(access.Support)
	for _, held := range []string{"cs_1", order.PaymentIntent, order.Charge, "re_1", " Buyer@Example.com ", "GAME-ONE"} {
		if to := b.post("/console/orders", url.Values{"q": {held}}).to(); to != "/console/orders/cs_1" {
			t.Errorf("%s leads to %s", held, to)
		}
	}
	b.post("/console/orders", url.Values{"q": {"GAME-TWO"}}).want(http.StatusNotFound).has("No order has that")
	if to := b.get("/console/orders/" + order.Charge).to(); to != "/console/orders/cs_1" {
		t.Errorf("the charge leads to %s", to)
	}
	s.sell("cs_2", "buyer@example.com", "price_game*1@500#li_2")
	b.post("/console/orders", url.Values{"q": {"buyer@example.com"}}).want(http.StatusOK).has("/console/orders/cs_1", "/console/orders/cs_2")
}

func TestKeysAreMaskedUntilSomebodySaysWhyTheyMustSeeThem(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("game", "The Game", "GAME-ONE", "GAME-TWO")
	s.sell("cs_1", "buyer@example.com", "price_game*1@500#li_1")
	b := s.as(access.Support)
	b.get("/console/orders/cs_1").want(http.StatusOK).lacks("GAME-ONE")
	b.post("/console/orders/cs_1/reveal", url.Values{"reason": {"  "}}).want(http.StatusUnprocessableEntity).has("Say why").lacks("GAME-ONE")
	shown := b.post("/console/orders/cs_1/reveal", url.Values{"reason": {"the buyer lost the mail"}}).want(http.StatusOK)
	shown.has("GAME-ONE", "the buyer lost the mail", "test-support").lacks("GAME-TWO")
	if shown.header.Get("Cache-Control") != "no-store" {
		t.Errorf("keys may be kept: %v", shown.header)
	}
	b.get("/console/orders/cs_1").lacks("GAME-ONE").has("Keys revealed", "the buyer lost the mail")
	b.get("/console/audit").has("Keys revealed", "the buyer lost the mail", "cs_1")
	if strings.Contains(s.log.String(), "GAME-ONE") || strings.Contains(s.log.String(), "buyer@example.com") {
		t.Error("the log tells a key or an address")
	}
}

func TestAKeyIsReplacedOnceHoweverOftenTheFormIsSent(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("game", "The Game", "GAME-ONE", "GAME-TWO", "GAME-THREE")
	order := s.sell("cs_1", "buyer@example.com", "price_game*1@500#li_1")
	b := s.as(access.Support)
	form := url.Values{"unit": {ref(order, 0, 1)}, "reason": {"used already"}}
	page := b.get("/console/orders/cs_1")
	page.has(`value="` + ref(order, 0, 1) + `"`)
	b.post("/console/orders/cs_1/replace", url.Values{"unit": form["unit"]}).want(http.StatusUnprocessableEntity).has("Say why")
	if to := b.post("/console/orders/cs_1/replace", form).to(); to != "/console/orders/cs_1?done=replace" {
		t.Errorf("to %s", to)
	}
	b.post("/console/orders/cs_1/replace", form).want(http.StatusConflict).has("another key by now")
	b.get("/console/orders/cs_1?done=replace").has("never sold again", "Key replaced", "used already", "was taken back")
	b.post("/console/orders/cs_1/reveal", url.Values{"reason": {"look"}}).has("GAME-TWO").lacks("GAME-ONE", "GAME-THREE")
}

func TestAReplacementWithoutStockWaits(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("game", "The Game", "GAME-ONE")
	order := s.sell("cs_1", "buyer@example.com", "price_game*1@500#li_1")
	b := s.as(access.Support)
	to := b.post("/console/orders/cs_1/replace", url.Values{"unit": {ref(order, 0, 1)}, "reason": {"used already"}}).to()
	b.get(to).has("The shelf is empty", "waits for stock")
	b.get("/console/orders?waiting=1").has("cs_1")
}

func TestARevokedKeyStaysRevoked(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("game", "The Game", "GAME-ONE", "GAME-TWO")
	order := s.sell("cs_1", "buyer@example.com", "price_game*2@500#li_1")
	b := s.as(access.Support)
	b.post("/console/orders/cs_1/revoke", url.Values{"unit": {ref(order, 0, 2)}, "reason": {"resold by the buyer"}}).to()
	b.post("/console/orders/cs_1/settle", nil).to()
	b.get("/console/orders/cs_1").has("taken back", "by person", "Key revoked", "resold by the buyer")
	for _, unit := range []string{"", "x", "1", "1.0.li_1", "-1.5.li_1", "9.1.li_1", "1.1.", "1.99999999999999999999.li_1"} {
		if a := b.post("/console/orders/cs_1/revoke", url.Values{"unit": {unit}, "reason": {"x"}}); a.status != http.StatusNotFound && a.status != http.StatusConflict {
			t.Errorf("unit %q: %d", unit, a.status)
		}
	}
}

func TestKeysAreSentAgainAndToACorrectedAddress(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("game", "The Game", "GAME-ONE")
	s.sell("cs_1", "byuer@example.com", "price_game*1@500#li_1")
	b := s.as(access.Support)
	b.get(b.post("/console/orders/cs_1/resend", url.Values{"to": {"buyer@example.com"}, "reason": {"typo in the address"}}).to()).
		has("On its way", "buyer@example.com", "Keys sent again", "typo in the address")
	b.post("/console/orders/cs_1/resend", url.Values{"to": {"nobody"}}).want(http.StatusUnprocessableEntity).has("no e-mail address")
	b.post("/console/orders/cs_1/resend", nil).to()
	var recipients []string
	s.must(s.db.QueryRow(t.Context(), `SELECT array_agg(recipient ORDER BY delivery_id) FROM keytill.deliveries WHERE channel = 'email'`).Scan(&recipients))
	if len(recipients) != 2 || recipients[0] != "buyer@example.com" || recipients[1] != "byuer@example.com" {
		t.Errorf("sent to %v", recipients)
	}
}

func TestARefundIsAttributedAndItsUnitGoes(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("game", "The Game", "GAME-ONE", "GAME-TWO")
	s.stock("card", "The Card", "CARD-ONE")
	order := s.sell("cs_1", "buyer@example.com", "price_game*2@500#li_1 price_card*1@500#li_2")
	s.must(s.stripe.Refund("re_1", order.PaymentIntent, stripefake.Fields{"amount": "300"}))
	if _, err := s.shop.Settle(t.Context(), "cs_1"); err != nil {
		t.Fatal(err)
	}
	b := s.as(access.Support)
	b.get("/console/findings").has("Refund for an unknown part", "/console/orders/cs_1")
	b.get("/console/orders/cs_1").has("Say what it is for", "re_1")
	b.post("/console/orders/cs_1/attribute", url.Values{"refund": {"re_1"}}).want(http.StatusUnprocessableEntity).has("how many units of which line")
	b.post("/console/orders/cs_1/attribute", url.Values{"refund": {"re_1"}, "units.li_1": {"9"}}).want(http.StatusUnprocessableEntity).has("fewer units")
	b.get(b.post("/console/orders/cs_1/attribute", url.Values{"refund": {"re_1"}, "units.li_1": {"1"}, "units.li_2": {"0"}, "reason": {"one was a gift"}}).to()).
		has("li_1:1", "Refund attributed", "one was a gift", "taken back")
	now, err := fulfillment.LoadOrder(t.Context(), s.db, inventory.DefaultMerchant, "cs_1")
	s.must(err)
	if now.Lines[0].Units[1].State != fulfillment.UnitRevoked || now.Lines[1].Units[0].State != fulfillment.UnitFulfilled {
		t.Errorf("%+v", now.Lines)
	}
	b.get("/console/findings").lacks("Refund for an unknown part")
}

func TestATokenSeesItsOwnMerchantAlone(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("game", "The Game", "GAME-ONE")
	s.sell("cs_1", "buyer@example.com", "price_game*1@500#li_1")
	b := s.as(other)
	b.get("/console/orders/cs_1").want(http.StatusNotFound)
	b.get("/console/pool?sku=game").want(http.StatusNotFound)
	b.post("/console/orders/cs_1/reveal", url.Values{"reason": {"curious"}}).want(http.StatusNotFound).lacks("GAME-ONE")
	b.post("/console/orders", url.Values{"q": {"GAME-ONE"}}).want(http.StatusNotFound)
	b.upload("more.txt", "STOLEN-1\n", "sku", "game").want(http.StatusNotFound)
	for _, path := range []string{"/console", "/console/orders", "/console/pools", "/console/audit", "/console/findings"} {
		b.get(path).want(http.StatusOK).lacks("cs_1", "The Game")
	}
}

func TestViewersSeeNoWholeAddress(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("game", "The Game", "GAME-ONE")
	s.sell("cs_1", "buyer@example.com", "price_game*1@500#li_1")
	s.as(access.Support).post("/console/orders/cs_1/resend", nil).to()
	for _, path := range []string{"/console/orders", "/console/orders/cs_1"} {
		s.as(access.Viewer).get(path).want(http.StatusOK).lacks("buyer@example.com").has("b•••@example.com")
		s.as(access.Support).get(path).want(http.StatusOK).has("buyer@example.com")
	}
}

func TestAPriceWithoutAPoolIsMappedWhereItIsReported(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("game", "The Game", "GAME-ONE")
	s.sell("cs_1", "buyer@example.com", "price_new*1@500#li_1")
	b := s.as(access.Admin)
	b.get("/console/findings").has("Price without a pool", "price_new", "/console/mappings")
	for _, form := range []url.Values{{"item": {"price_new"}, "per_unit": {"1"}}, {"item": {"price_new"}, "per_unit": {"0"}, "sku": {"game"}},
		{"item": {"price_new"}, "per_unit": {"1"}, "sku": {"game"}, "no_keys": {"1"}}} {
		b.post("/console/mappings", form).want(http.StatusUnprocessableEntity)
	}
	b.get(b.post("/console/mappings", url.Values{"item": {"price_new"}, "per_unit": {"1"}, "sku": {"game"}}).to()).
		has("Mapped.").lacks("Price without a pool")
	b.post("/console/orders/cs_1/settle", nil).to()
	b.get("/console/orders/cs_1").has("has its key")
}
