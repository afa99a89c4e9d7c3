package waiting

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/internal/stripefake"
	"github.com/keytill/keytill/inventory"
)

// sent counts what it is given, and answers with err.
type sent struct {
	messages []fulfillment.Message
	err      error
}

// Send takes a message.
func (s *sent) Send(_ context.Context, m fulfillment.Message) (string, error) {
	s.messages = append(s.messages, m)
	return "ok", s.err
}

// deliver makes a try at every delivery of a channel that has a job, as the queue would, also at those that are done.
func (s shop) deliver(channel fulfillment.Channel, to *sent) {
	s.T.Helper()
	rows, err := s.DB.Query(s.T.Context(), `SELECT args FROM keytill.river_job WHERE kind = 'deliver' AND args->>'channel' = $1 ORDER BY id`, channel)
	s.Must(err)
	var jobs []fulfillment.DeliverJob
	for rows.Next() {
		var job fulfillment.DeliverJob
		s.Must(rows.Scan(&job))
		jobs = append(jobs, job)
	}
	s.Must(rows.Err())
	if len(jobs) == 0 {
		s.T.Fatalf("there is nothing to deliver over %s", channel)
	}
	for _, job := range jobs {
		err := s.Service.Deliver(s.T.Context(), map[fulfillment.Channel]fulfillment.Sender{channel: to}, job)
		var later *fulfillment.Later
		if err != nil && !errors.As(err, &later) {
			s.T.Fatal(err)
		}
	}
}

func TestADeliveryThatIsDoneIsNotSentAgain(t *testing.T) {
	t.Parallel()
	s := open(t, 1)
	s.Must(s.Service.ServeChannels(t.Context(), []fulfillment.Channel{fulfillment.ChannelEmail}))
	s.buy("cs_1", "price_game*1")
	to := &sent{}
	for range 3 {
		s.deliver(fulfillment.ChannelEmail, to)
	}
	if len(to.messages) != 1 || len(to.messages[0].Keys) != 1 {
		t.Errorf("%d mails were sent", len(to.messages))
	}
}

// That a receiver is gone is itself something to tell, and cannot be told.
func TestANoticeOfADeadReceiverMakesNoFurtherNotice(t *testing.T) {
	t.Parallel()
	s := open(t, 1)
	s.Must(s.Service.ServeChannels(t.Context(), []fulfillment.Channel{fulfillment.ChannelHook}))
	s.buy("cs_1", "price_game*1")
	dead := &sent{err: fulfillment.ErrRefused}
	for range 4 {
		s.deliver(fulfillment.ChannelHook, dead)
		s.Must(s.Service.TellFindings(t.Context()))
	}
	if len(dead.messages) != 2 { // the order's, and that it could not be told
		t.Errorf("%d notices were made", len(dead.messages))
	}
}

// The order's other key may be told today.
func TestKeysThatAreNotReleasedAreOnNoPage(t *testing.T) {
	t.Parallel()
	s := open(t, 1)
	day := s.Now().Add(24 * time.Hour)
	p := s.pool("soon", func(p *inventory.Pool) { p.ReleaseAt = &day })
	s.restock(p, "SOON-1")
	s.buy("cs_1", "price_game*1", "price_soon*1")
	for _, c := range []struct {
		at   time.Time
		want int
	}{{s.Now(), 1}, {day, 2}} {
		s.GoTo(c.at)
		_, keys, err := s.Service.ForBuyer(t.Context(), p.Merchant, "cs_1", 0, true)
		s.Must(err)
		if len(keys) != c.want {
			t.Errorf("at %v the buyer sees %d keys, want %d", c.at, len(keys), c.want)
		}
	}
}

func TestAnEndedLinkShowsNothing(t *testing.T) {
	t.Parallel()
	s := open(t, 1)
	order := s.buy("cs_1", "price_game*1")
	if _, keys, err := s.Service.ForBuyer(t.Context(), inventory.DefaultMerchant, "cs_1", order.LinkSerial, true); err != nil || len(keys) != 1 {
		t.Fatalf("%d keys, error %v", len(keys), err)
	}
	s.Must(s.Service.EndLinks(t.Context(), inventory.DefaultMerchant, "cs_1", fulfillment.Person{Name: "jane", Reason: "posted in a forum"}))
	if _, keys, err := s.Service.ForBuyer(t.Context(), inventory.DefaultMerchant, "cs_1", order.LinkSerial, true); !errors.Is(err, fulfillment.ErrNoOrder) || len(keys) != 0 {
		t.Errorf("the old link shows %d keys, error %v", len(keys), err)
	}
	if _, keys, err := s.Service.ForBuyer(t.Context(), inventory.DefaultMerchant, "cs_1", order.LinkSerial+1, true); err != nil || len(keys) != 1 {
		t.Errorf("the new one shows %d keys, error %v", len(keys), err)
	}
}

// One of two keys is suspended while the mail is on its way. The buyer gets it when it is theirs again.
func TestAKeyThatAMailLackedComesInAnother(t *testing.T) {
	t.Parallel()
	s := open(t, 2)
	s.Must(s.Service.ServeChannels(t.Context(), []fulfillment.Channel{fulfillment.ChannelEmail}))
	order := s.buy("cs_1", "price_game*2")
	s.Must(s.Stripe.Refund("re_1", "pi_1", stripefake.Fields{"amount": fmt.Sprint(order.Lines[0].Amount / 2), "status": "pending"}))
	_, err := s.Service.Settle(t.Context(), inventory.DefaultMerchant, "cs_1")
	s.Must(err)
	s.wantUnits("cs_1", "map[fulfilled:1 suspended:1]")
	to := &sent{}
	s.deliver(fulfillment.ChannelEmail, to)
	s.Must(s.Stripe.Set("re_1", stripefake.Fields{"status": "failed"}))
	_, err = s.Service.Settle(t.Context(), inventory.DefaultMerchant, "cs_1")
	s.Must(err)
	s.deliver(fulfillment.ChannelEmail, to)
	var keys []int
	for _, m := range to.messages {
		keys = append(keys, len(m.Keys))
	}
	if fmt.Sprint(keys) != "[1 2]" {
		t.Errorf("the mails have %v keys", keys)
	}
}

// A text that was sold twice, once taken back and once not, is somebody's to use.
func TestAKeyIsValidWhereverItMayBeUsed(t *testing.T) {
	t.Parallel()
	s := open(t, 1)
	for _, sku := range []string{"first", "second"} {
		s.restock(s.pool(sku, nil), "SAME-TEXT")
		s.buy("cs_"+sku, "price_"+sku+"*1")
	}
	s.Must(s.Stripe.Refund("re_1", "pi_first", nil))
	_, err := s.Service.Settle(t.Context(), inventory.DefaultMerchant, "cs_first")
	s.Must(err)
	for sku, want := range map[string]inventory.Verdict{"": inventory.Valid, "first": inventory.TakenBack, "second": inventory.Valid} {
		got, err := s.Keyset.Verify(t.Context(), s.DB, inventory.DefaultMerchant, "SAME-TEXT", sku)
		s.Must(err)
		if got.Verdict != want {
			t.Errorf("of SKU %q it is %s, want %s", sku, got.Verdict, want)
		}
	}
}
