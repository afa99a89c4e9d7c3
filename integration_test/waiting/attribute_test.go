package waiting

import (
	"errors"
	"testing"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/internal/stripefake"
	"github.com/keytill/keytill/inventory"
)

// A refund that fits nothing waits for a person's word, and only for one that can be true.
func TestARefundIsAttributedToLinesOfItsOrderAlone(t *testing.T) {
	t.Parallel()
	s := open(t, 3)
	s.buy("cs_1", "price_game*2")
	s.Must(s.Stripe.Refund("re_1", "pi_1", stripefake.Fields{"amount": "1"}))
	_, err := s.Service.Settle(t.Context(), inventory.DefaultMerchant, "cs_1")
	s.Must(err)
	s.wantUnits("cs_1", "map[fulfilled:2]")
	for _, c := range []struct {
		refund, lines string
		want          error
	}{
		{"re_1", "", fulfillment.ErrAttribution},
		{"re_1", "li_none", fulfillment.ErrNoLine},
		{"re_1", "li_none:1", fulfillment.ErrNoLine},
		{"re_1", "price_game:3", fulfillment.ErrAttribution},
		{"re_2", "price_game:1", fulfillment.ErrNoRefund},
		{"re_1", "price_game:1", nil},
	} {
		_, err := s.Service.AttributeRefund(t.Context(), inventory.DefaultMerchant, c.refund, c.lines, fulfillment.Person{Name: "jane", Reason: "asked"})
		if !errors.Is(err, c.want) {
			t.Errorf("%s to %q: %v, want %v", c.refund, c.lines, err, c.want)
		}
	}
	_, err = s.Service.Settle(t.Context(), inventory.DefaultMerchant, "cs_1")
	s.Must(err)
	s.wantUnits("cs_1", "map[fulfilled:1 revoked:1]")
}
