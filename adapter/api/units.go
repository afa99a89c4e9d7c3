package api

import (
	"context"
	"net/http"

	"github.com/keytill/keytill/fulfillment"
)

// UnitInput names a unit of an order, and says why.
type UnitInput struct {
	OrderInput
	Line string `path:"line" maxLength:"255" doc:"The line: li_…"`
	Unit int    `path:"unit" minimum:"1" doc:"The unit, from 1."`
	Body struct {
		Reason string `json:"reason" minLength:"1" maxLength:"500" doc:"Why: the audit keeps it."`
		KeyID  int64  `json:"key_id,omitempty" minimum:"1" doc:"The key that the unit must still have, so that two people do not take two keys."`
	}
}

func (a *API) addUnits() {
	const unit = "/v1/orders/{id}/lines/{line}/units/{unit}"
	add(a, operation{id: "revoke-key", method: http.MethodPost, path: unit + "/revoke", tag: "Keys", repeat: repeatSafe,
		title: "Take a unit's key back for good", about: "No payment gives it back."}, a.revokeKey)
	add(a, operation{id: "replace-key", method: http.MethodPost, path: unit + "/replace", tag: "Keys", repeat: repeatOnce,
		title: "Give a unit another key for a faulty one", about: "The old one is never sold again. Without stock the unit waits."}, a.replaceKey)
}

func (a *API) revokeKey(ctx context.Context, in *UnitInput) (*Output[fulfillment.Order], error) {
	return a.onUnit(ctx, in, a.Service.RevokeKey)
}

func (a *API) replaceKey(ctx context.Context, in *UnitInput) (*Output[fulfillment.Order], error) {
	return a.onUnit(ctx, in, a.Service.ReplaceKey)
}

func (a *API) onUnit(ctx context.Context, in *UnitInput,
	act func(context.Context, string, fulfillment.UnitRef, fulfillment.Person) error) (*Output[fulfillment.Order], error) {
	order, err := a.order(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	merchant := caller(ctx).Merchant
	ref := fulfillment.UnitRef{Order: order.ID, Line: in.Line, Unit: in.Unit, KeyID: in.Body.KeyID}
	if err := act(ctx, merchant, ref, who(ctx, in.Body.Reason)); err != nil {
		return nil, err
	}
	if order, err = fulfillment.LoadOrder(ctx, a.DB, merchant, order.ID); err != nil {
		return nil, err
	}
	return answerOrder(ctx, order), nil
}
