package console_test

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/keytill/keytill/adapter/access"
	"github.com/keytill/keytill/inventory"
)

func TestAPoolIsMadeAndChangedWithErrorsAtTheField(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	b := s.as(access.Admin)
	b.post("/console/pools/new", url.Values{"sku": {" "}, "shortage": {"maybe"}, "low_keys": {"-3"}, "low_percent": {"100"}, "release_at": {"tomorrow"}}).
		want(http.StatusUnprocessableEntity).
		has(`id="sku-help" class="soft"><strong class="bad wrong">`, `id="shortage-help" class="soft"><strong`, `id="low_keys-help" class="soft"><strong`,
			`id="low_percent-help" class="soft"><strong`, `id="release_at-help" class="soft"><strong`, `value="tomorrow" aria-invalid="true"`).
		lacks(`id="max_reserved-help" class="soft"><strong`)
	to := b.post("/console/pools/new", url.Values{"sku": {"a/b"}, "name": {"The Game"}, "shortage": {"wait"}, "low_keys": {"5"}, "release_at": {"2040-03-31T18:00"}}).to()
	b.get(to).want(http.StatusOK).has("Made.", "The Game", "31 Mar 2040 18:00 UTC", "5 keys")
	b.post("/console/pools/new", url.Values{"sku": {"a/b"}, "shortage": {"wait"}}).want(http.StatusUnprocessableEntity).has("There is a pool of this SKU already.")

	b.get("/console/pool/edit?sku=a%2Fb").has(`value="The Game"`, `value="2040-03-31T18:00"`, `value="5"`)
	change := url.Values{"sku": {"a/b"}, "name": {"The Better Game"}, "shortage": {"fail"}, "release_at": {"2041-01-01T00:00"}, "max_reserved": {"7"}}
	b.get(b.post("/console/pool/edit", change).to()).has("Changed.", "The Better Game", "paid units fail", "1 Jan 2041", "In carts at most").lacks("5 keys")
	pool, err := inventory.PoolBySKU(t.Context(), s.db, "default", "a/b")
	s.must(err)
	if pool.Shortage != inventory.Fail || pool.LowKeys != nil || pool.MaxReserved == nil || *pool.MaxReserved != 7 || !pool.ReleaseAt.Equal(time.Date(2041, 1, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("the pool is %+v", pool)
	}
	b.get("/console/audit").has("Pool made", "Pool changed")
	b.post("/console/pool/edit", url.Values{"sku": {"none"}, "shortage": {"wait"}}).want(http.StatusNotFound)
	s.as(access.Support).get("/console/pool?sku=a%2Fb").lacks("/console/pool/edit", "/console/mappings")
}

func TestAReleaseDateStaysOnceKeysAreGivenOut(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("game", "The Game", "GAME-ONE", "GAME-TWO")
	s.sell("cs_1", "buyer@example.com", "price_game*1@500#li_1")
	b := s.as(access.Admin)
	b.post("/console/pool/edit", url.Values{"sku": {"game"}, "shortage": {"wait"}, "release_at": {"2041-01-01T00:00"}}).want(http.StatusUnprocessableEntity).
		has(`id="release_at-help" class="soft"><strong class="bad wrong">Keys of this pool were given out`)
	b.post("/console/pool/edit", url.Values{"sku": {"game"}, "shortage": {"wait"}, "name": {"Another"}}).to()
}

// A notice to the storefront that was given up is sent again, once, from the order and from the finding about it.
func TestANoticeIsSentAgain(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("game", "The Game", "GAME-ONE")
	s.sell("cs_1", "buyer@example.com", "price_game*1@500#li_1")
	giveUp := func(id string) {
		s.exec(`INSERT INTO keytill.deliveries (merchant_id, delivery_id, order_id, channel, type, state, attempts, last_error, send_after, created_at, done_at)
		        OVERRIDING SYSTEM VALUE VALUES ('default', `+id+`, 'cs_1', 'hook', 'fulfillment.completed', 'failed', 40, '503 of the storefront', now() - interval '4 days', now() - interval '4 days', now())`,
			`INSERT INTO keytill.findings (merchant_id, kind, subject, order_id, detail, opened_at, told)
		     VALUES ('default', 'undeliverable', 'delivery `+id+`', 'cs_1', 'fulfillment.completed could not be delivered over hook: 503', now(), true)`)
	}
	giveUp("901")
	b := s.as(access.Support)
	b.get("/console/orders/cs_1").has("Not told to the storefront", "503 of the storefront", "/console/deliveries/901/again")
	b.get("/console/findings").has("/console/deliveries/901/again")
	b.get(b.post("/console/deliveries/901/again", url.Values{"reason": {"it is back"}}).to()).has("the notice is sent to the storefront again", "Notice sent again").
		lacks("/console/deliveries/901/again", "A delivery was given up.")
	b.get("/console/findings").lacks("delivery 901")
	var state, job string
	s.must(s.db.QueryRow(t.Context(), `SELECT d.state, j.queue FROM keytill.deliveries d JOIN keytill.river_job j ON j.kind = 'deliver' AND j.args->>'delivery_id' = '901'
	    WHERE d.delivery_id = 901`).Scan(&state, &job))
	if state != "pending" || job != "hook" {
		t.Errorf("the delivery is %s, its job in %s", state, job)
	}
	b.post("/console/deliveries/901/again", nil).want(http.StatusConflict)
	b.post("/console/deliveries/x/again", nil).want(http.StatusConflict)
	s.as(access.Viewer).post("/console/deliveries/901/again", nil).want(http.StatusForbidden)
}
