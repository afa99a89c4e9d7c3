package adapter

import (
	"context"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/inventory"
)

// A Reservation holds stock while a buyer pays. Its Ref goes on the Checkout Session as client_reference_id.
type Reservation = fulfillment.Reservation

// A ReservationLine asks for keys of one SKU.
type ReservationLine = fulfillment.ReservationLine

// Reserve holds stock of the default merchant before payment, all of it or none: fulfillment.ErrSoldOut,
// fulfillment.ErrTooMany. Asking twice with one reference is asking once. A reservation that runs out gives its keys
// back; a payment that comes later is still honoured.
func (s *Shop) Reserve(ctx context.Context, r Reservation) (fulfillment.Held, error) {
	return s.service.Reserve(ctx, inventory.DefaultMerchant, r)
}

// Release lets go of what a reference holds, and says how many keys that gave back.
func (s *Shop) Release(ctx context.Context, ref string) (int, error) {
	return s.service.Release(ctx, inventory.DefaultMerchant, ref)
}
