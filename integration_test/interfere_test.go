package integration_test

import (
	"fmt"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/inventory"
)

var somebody = fulfillment.Person{Name: "support", Reason: "because"}

// interfere has a person do something to the order as it was last seen.
func (h *history) interfere() error {
	service := h.life.shop.Service()
	if h.refunds > 0 && h.roll(2, "attribute") == 0 {
		r := h.sale.refunds[h.roll(h.refunds, "refund")]
		answer := h.sale.drawAnswer(h.roll)
		if _, err := service.AttributeRefund(h.ctx, inventory.DefaultMerchant, r.id, answer, somebody); err != nil {
			return fmt.Errorf("attribute %s to %s: %w", r.id, answer, err)
		}
		h.note("a person attributes %s to %q", r.id, answer)
		r.answered, r.answer = true, answer
		h.known = nil
		return nil
	}
	line := h.roll(len(h.known.Lines), "line")
	if h.sale.lines[line].perUnit != 1 { // of a pair, taking one key and leaving the other has no place in the oracle
		return nil
	}
	units := h.known.Lines[line].Units
	u := units[h.roll(len(units), "unit")]
	ref := fulfillment.UnitRef{Order: h.known.ID, Line: h.known.Lines[line].ID, Unit: u.Unit}
	switch {
	case u.KeyID == 0 || u.State != fulfillment.UnitFulfilled && u.State != fulfillment.UnitSuspended:
		return nil
	case u.State == fulfillment.UnitFulfilled && h.roll(2, "replace") == 0:
		if err := service.ReplaceKey(h.ctx, inventory.DefaultMerchant, ref, somebody); err != nil {
			return fmt.Errorf("replace %v: %w", ref, err)
		}
		h.note("a person replaces the key of %v", ref)
		order, err := fulfillment.LoadOrder(h.ctx, h.db, inventory.DefaultMerchant, h.known.ID)
		if err != nil {
			return err
		}
		key := order.Lines[line].Units[u.Unit-1].KeyID
		if key == 0 || key == u.KeyID {
			return fmt.Errorf("the key of %v was %d and is %d after its replacement", ref, u.KeyID, key)
		}
		h.judge.keys[place{ref.Line, ref.Unit}] = key
	default:
		if err := service.RevokeKey(h.ctx, inventory.DefaultMerchant, ref, somebody); err != nil {
			return fmt.Errorf("revoke %v: %w", ref, err)
		}
		h.note("a person revokes the key of %v", ref)
		h.judge.person[line]++
	}
	h.known = nil
	return nil
}
