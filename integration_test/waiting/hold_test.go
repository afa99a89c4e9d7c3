package waiting

import (
	"testing"
	"time"

	"github.com/keytill/keytill/internal/stripefake"
	"github.com/keytill/keytill/inventory"
)

// buyFor makes a paid session that carries a cart's reference, and settles it.
func (s shop) buyFor(ref, session string, items ...string) {
	s.T.Helper()
	parsed, err := stripefake.ParseItems(items...)
	s.Must(err)
	s.Must(s.Stripe.Session(session, parsed, stripefake.Fields{"client_reference_id": ref}))
	_, err = s.Service.Settle(s.T.Context(), inventory.DefaultMerchant, session)
	s.Must(err)
}

func (s shop) wantKeys(p inventory.Pool, state inventory.State, want int64) {
	s.T.Helper()
	stock, err := inventory.StockByRows(s.T.Context(), s.DB, p.Merchant, p.ID)
	s.Must(err)
	if got := stock[p.ID][state]; got != want {
		s.T.Errorf("%d keys of %s are %s, want %d", got, p.SKU, state, want)
	}
}

// The last key of a pool lies in the cart that is paid for.
func TestAPaymentGetsWhatItsCartHolds(t *testing.T) {
	t.Parallel()
	s := open(t, 1)
	p := s.pool("last", nil)
	s.restock(p, "LAST-1")
	if _, err := s.reserve("cart", "last", 1); err != nil {
		t.Fatal(err)
	}
	s.buyFor("cart", "cs_1", "price_last*1")
	s.wantUnits("cs_1", "map[fulfilled:1]")
}

// A reference that is used again is another cart's by then: the end of the first one's payment leaves it what it holds.
func TestAPaymentLeavesAHoldThatIsNewerThanItself(t *testing.T) {
	t.Parallel()
	s := open(t, 1)
	p := s.pool("few", nil)
	s.restock(p, "FEW-1", "FEW-2", "FEW-3")
	parsed, err := stripefake.ParseItems("price_few*1")
	s.Must(err)
	s.Must(s.Stripe.Session("cs_1", parsed, stripefake.Fields{"client_reference_id": "cart"}))
	s.GoTo(s.Now().Add(time.Hour))
	if _, err := s.reserve("cart", "few", 2); err != nil {
		t.Fatal(err)
	}
	_, err = s.Service.Settle(t.Context(), inventory.DefaultMerchant, "cs_1")
	s.Must(err)
	s.wantUnits("cs_1", "map[fulfilled:1]")
	s.wantKeys(p, inventory.Reserved, 1)
}

func TestACartThatWasLeftGivesBackWhatItHeld(t *testing.T) {
	t.Parallel()
	s := open(t, 1)
	p := s.pool("last", nil)
	s.restock(p, "LAST-1")
	if _, err := s.reserve("cart", "last", 1); err != nil {
		t.Fatal(err)
	}
	s.GoTo(s.Now().Add(time.Hour))
	released, err := s.Service.TidyShelf(t.Context())
	s.Must(err)
	if released != 1 {
		t.Errorf("%d holds ended", released)
	}
	s.wantKeys(p, inventory.Available, 1)
}

// The process that should have settled it died with its job.
func TestAnEventWhoseJobIsLostGetsAnother(t *testing.T) {
	t.Parallel()
	s := open(t, 1)
	parsed, err := stripefake.ParseItems("price_game*1")
	s.Must(err)
	s.Must(s.Stripe.Session("cs_1", parsed, nil))
	event, err := s.Stripe.Event("checkout.session.completed", "cs_1", stripefake.EventOptions{})
	s.Must(err)
	if status, _, err := s.Stripe.Deliver(t.Context(), s.Webhook.URL, event); err != nil || status != 200 {
		t.Fatalf("status %d, error %v", status, err)
	}
	_, err = s.DB.Exec(t.Context(), `DELETE FROM keytill.river_job`)
	s.Must(err)
	for _, c := range []struct {
		after time.Duration
		want  int
	}{{time.Minute, 0}, {10 * time.Minute, 1}, {time.Second, 0}} {
		s.GoTo(s.Now().Add(c.after))
		found, err := s.Service.PickUp(t.Context())
		s.Must(err)
		if found != c.want {
			t.Errorf("%v later %d events get a job, want %d", c.after, found, c.want)
		}
	}
	var jobs int
	s.Must(s.DB.QueryRow(t.Context(), `SELECT count(*) FROM keytill.river_job WHERE kind = 'settle' AND args->>'event_id' = $1`, event.ID).Scan(&jobs))
	if jobs != 1 {
		t.Errorf("%d jobs settle the event", jobs)
	}
}

// Nobody waits for the round that tidies the shelf.
func TestAPaymentTakesAKeyWhoseHoldHasRunOut(t *testing.T) {
	t.Parallel()
	s := open(t, 1)
	p := s.pool("last", nil)
	s.restock(p, "LAST-1")
	if _, err := s.reserve("cart", "last", 1); err != nil {
		t.Fatal(err)
	}
	s.GoTo(s.Now().Add(time.Hour))
	s.buy("cs_1", "price_last*1")
	s.wantUnits("cs_1", "map[fulfilled:1]")
}
