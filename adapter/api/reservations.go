package api

import (
	"context"
	"net/http"
	"time"

	"github.com/keytill/keytill/fulfillment"
)

// ReserveInput asks for keys of one or several pools.
type ReserveInput struct {
	Body struct {
		Ref     string        `json:"ref" minLength:"1" maxLength:"200" doc:"Your cart's name: put it on the Checkout Session as client_reference_id."`
		Lines   []ReserveLine `json:"lines" minItems:"1" maxItems:"100"`
		Seconds int           `json:"seconds,omitempty" minimum:"1" maximum:"604800" doc:"How long; as configured unless said."`
	}
}

// ReserveLine asks for keys of one pool.
type ReserveLine struct {
	SKU      string `json:"sku" minLength:"1" maxLength:"255"`
	Quantity int    `json:"quantity" minimum:"1" maximum:"100" doc:"Keys."`
}

// ReleaseInput names a reservation.
type ReleaseInput struct {
	Ref string `path:"ref" maxLength:"200"`
}

// Released says what a release gave back.
type Released struct {
	Keys int `json:"keys"`
}

func (a *API) addReservations() {
	add(a, operation{id: "reserve", method: http.MethodPost, path: "/v1/reservations", tag: "Reservations", repeat: repeatSafe,
		title: "Hold keys while a buyer pays",
		about: "All lines or none. The same ref again changes what it holds to what it asks for now, and starts its time anew; asking " +
			"twice is asking once. A payment that comes after the time is still honoured."}, a.reserve)
	add(a, operation{id: "release-reservation", method: http.MethodDelete, path: "/v1/reservations/{ref}", tag: "Reservations", repeat: repeatSafe,
		title: "Let go of what a cart holds", about: "Letting go twice is no error."}, a.release)
}

func (a *API) reserve(ctx context.Context, in *ReserveInput) (*Output[fulfillment.Held], error) {
	r := fulfillment.Reservation{Ref: in.Body.Ref, For: time.Duration(in.Body.Seconds) * time.Second}
	for _, l := range in.Body.Lines {
		r.Lines = append(r.Lines, fulfillment.ReservationLine{SKU: l.SKU, Quantity: l.Quantity})
	}
	held, err := a.Service.Reserve(ctx, caller(ctx).Merchant, r)
	if err != nil {
		return nil, err
	}
	return &Output[fulfillment.Held]{held}, nil
}

func (a *API) release(ctx context.Context, in *ReleaseInput) (*Output[Released], error) {
	keys, err := a.Service.Release(ctx, caller(ctx).Merchant, in.Ref)
	if err != nil {
		return nil, err
	}
	return &Output[Released]{Released{keys}}, nil
}
