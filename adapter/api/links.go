package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/keytill/keytill/adapter/access"
)

// errNoPages says that there is nothing to link to.
var errNoPages = errors.New("there are no buyers' pages: the daemon has no KEYTILL_PUBLIC_URL")

// A Link leads to an order's page, where its buyer sees their keys. It is as good as the keys.
type Link struct {
	Order string `json:"order"`
	URL   string `json:"url"`
}

func (a *API) addLinks() {
	// Never kept for an Idempotency-Key: who has the link sees the keys.
	add(a, operation{id: "create-link", method: http.MethodPost, path: "/v1/orders/{id}/link", tag: "Keys",
		title: "Make a link to the order's page", about: "Its buyer sees their keys there. The audit has who made it, and a person says why."}, a.createLink)
	add(a, operation{id: "end-links", method: http.MethodPost, path: "/v1/orders/{id}/end-links", tag: "Keys", repeat: repeatSafe,
		title: "End all links to the order's page that were given out so far"}, a.endLinks)
}

func (a *API) createLink(ctx context.Context, in *ReasonInput) (*Output[Link], error) {
	if a.Link == nil {
		return nil, errNoPages
	}
	order, err := a.order(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	reason := given(in.Body).Reason
	if caller(ctx).Role == access.Storefront {
		reason = "for the storefront"
	}
	merchant := caller(ctx).Merchant
	if order, err = a.Service.RevealLink(ctx, merchant, order.ID, who(ctx, reason)); err != nil {
		return nil, err
	}
	return &Output[Link]{Link{Order: order.ID, URL: a.Link(merchant, order)}}, nil
}

func (a *API) endLinks(ctx context.Context, in *ReasonInput) (*Output[Noted], error) {
	order, err := a.order(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	if err := a.Service.EndLinks(ctx, caller(ctx).Merchant, order.ID, who(ctx, given(in.Body).Reason)); err != nil {
		return nil, err
	}
	return &Output[Noted]{Noted{order.ID}}, nil
}
