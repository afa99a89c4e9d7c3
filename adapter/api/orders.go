package api

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/keytill/keytill/adapter/access"
	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/internal/logs"
)

// OrderInput names an order.
type OrderInput struct {
	ID string `path:"id" maxLength:"255" doc:"The order (cs_… or pi_…), or another id of its payment: a PaymentIntent, charge, refund or dispute."`
}

// ListOrdersInput says which orders to list.
type ListOrdersInput struct {
	Page
	Ref     string `query:"ref" maxLength:"255" doc:"An id of the payment: cs_…, pi_…, ch_…, re_…, dp_…"`
	Payment string `query:"payment" enum:"pending,paid,part_refunded,refunded,disputed,lost,closed" doc:"Those in this state of payment."`
	Waiting bool   `query:"waiting" doc:"Those with units that wait for stock, the longest waiting first, whatever their payment."`
}

// SearchInput says what a buyer holds.
type SearchInput struct {
	Page
	Body struct {
		Query string `json:"query,omitempty" maxLength:"320" doc:"An id of the payment, or the buyer's e-mail address."`
		Key   string `json:"key,omitempty" maxLength:"4096" doc:"The text of a key that they have or had."`
	}
}

// ReasonInput is an act on an order, with why.
type ReasonInput struct {
	OrderInput
	Body *Reason
}

// Reason is why somebody does something.
type Reason struct {
	Reason string `json:"reason,omitempty" maxLength:"500" doc:"Why, for the audit."`
}

// ResendInput says where to send an order's keys.
type ResendInput struct {
	OrderInput
	Body *Resend
}

// Resend says where to send an order's keys, and why.
type Resend struct {
	Reason
	To string `json:"to,omitempty" format:"email" maxLength:"320" doc:"Another address than the order's; not for storefronts."`
}

// AttributionInput says what a refund is for.
type AttributionInput struct {
	ID   string `path:"id" maxLength:"255" doc:"The refund: re_…"`
	Body struct {
		Lines  string `json:"lines" minLength:"1" maxLength:"4000" doc:"li_…[:N], several separated by commas, or none." example:"li_1Abc:2"`
		Reason string `json:"reason,omitempty" maxLength:"500" doc:"Why, for the audit."`
	}
}

// DeliveryInput names a delivery, and says why.
type DeliveryInput struct {
	ID   int64 `path:"id" minimum:"1" doc:"The delivery's number."`
	Body *Reason
}

// Noted says which order an act belongs to.
type Noted struct {
	Order string `json:"order" doc:"Empty for what is about no order."`
}

func (a *API) addOrders() {
	add(a, operation{id: "list-orders", method: http.MethodGet, path: "/v1/orders", tag: "Orders", title: "List orders, newest first",
		about: "What a person would look for with an e-mail address or a key, search-orders finds: those do not belong in URLs, which end up in logs."}, a.listOrders)
	add(a, operation{id: "search-orders", method: http.MethodPost, path: "/v1/orders/search", tag: "Orders",
		title: "Find orders by whatever the buyer holds"}, a.searchOrders)
	add(a, operation{id: "get-order", method: http.MethodGet, path: "/v1/orders/{id}", tag: "Orders", title: "Read an order",
		about: "The order as it was last settled, with its lines and units. It holds no key."}, a.getOrder)
	add(a, operation{id: "get-history", method: http.MethodGet, path: "/v1/orders/{id}/history", tag: "Orders",
		title: "Read what happened to an order", about: "Events, movements of its keys, deliveries, refunds, disputes, acts of people and findings."}, a.getHistory)
	add(a, operation{id: "settle-order", method: http.MethodPost, path: "/v1/orders/{id}/settle", tag: "Orders", repeat: repeatSafe,
		title: "Read the payment at Stripe now and bring its order to that",
		about: "What a thank-you page calls with the Checkout Session's id. Calling it twice is calling it once."}, a.settleOrder)
	add(a, operation{id: "retry-order", method: http.MethodPost, path: "/v1/orders/{id}/retry", tag: "Orders", repeat: repeatSafe,
		title: "Settle an order and try its failed units again"}, a.retryOrder)
	add(a, operation{id: "resend-order", method: http.MethodPost, path: "/v1/orders/{id}/resend", tag: "Orders", repeat: repeatOnce,
		title: "Mail an order's keys again", status: http.StatusAccepted,
		about: "Suspended and revoked keys are not in it. A storefront sends to the order's own address alone."}, a.resendOrder)
	add(a, operation{id: "send-again", method: http.MethodPost, path: "/v1/deliveries/{id}/send", tag: "Orders", repeat: repeatOnce,
		title: "Send a notice to the storefront again that was given up", status: http.StatusAccepted,
		about: "The deliveries of an order are in its history; the finding undeliverable names one as well. The notice keeps its id. Mails are sent again with resend-order."}, a.sendAgain)
	add(a, operation{id: "attribute-refund", method: http.MethodPost, path: "/v1/refunds/{id}/attribution", tag: "Orders", repeat: repeatSafe,
		title: "Say which lines a refund is for", status: http.StatusAccepted,
		about: "Answers the finding unattributed_refund. A settle follows."}, a.attributeRefund)
}

func (a *API) listOrders(ctx context.Context, in *ListOrdersInput) (*ListOutput[fulfillment.Order], error) {
	if strings.Contains(in.Ref, "@") {
		return nil, fmt.Errorf("%w: an e-mail address does not belong in a URL; POST /v1/orders/search", errInvalid)
	}
	if in.Waiting && (in.Payment != "" || in.Ref != "") {
		return nil, fmt.Errorf("%w: waiting is a list of its own: it goes with neither payment nor ref", errInvalid)
	}
	filter := fulfillment.OrderFilter{Payment: fulfillment.PaymentState(in.Payment), Waiting: in.Waiting, Query: in.Ref}
	return a.ordersPage(ctx, in.Page, filter)
}

func (a *API) ordersPage(ctx context.Context, page Page, filter fulfillment.OrderFilter) (*ListOutput[fulfillment.Order], error) {
	list := "orders"
	if filter.Waiting {
		list = "waiting"
	}
	after, err := page.afterOrder(list)
	if err != nil {
		return nil, err
	}
	orders, err := fulfillment.ListOrders(ctx, a.DB, caller(ctx).Merchant, filter, after, page.Limit+1)
	if err != nil {
		return nil, err
	}
	return listOf(masked(ctx, orders), page.Limit, func(o fulfillment.Order) place { return place{List: list, At: o.ListedAt, ID: o.ID} }), nil
}

func (a *API) searchOrders(ctx context.Context, in *SearchInput) (*ListOutput[fulfillment.Order], error) {
	switch {
	case (in.Body.Query == "") == (in.Body.Key == ""):
		return nil, fmt.Errorf("%w: say query or key", errInvalid)
	case in.Body.Query != "":
		return a.ordersPage(ctx, in.Page, fulfillment.OrderFilter{Query: in.Body.Query})
	}
	orders, err := a.Service.FindOrdersByKey(ctx, caller(ctx).Merchant, in.Body.Key)
	if err != nil && len(orders) == 0 {
		orders, err = nil, ignoreNone(err)
	}
	if err != nil {
		return nil, err
	}
	return listOf(masked(ctx, orders), len(orders), nil), nil
}

func (a *API) getOrder(ctx context.Context, in *OrderInput) (*Output[fulfillment.Order], error) {
	order, err := a.order(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	return answerOrder(ctx, order), nil
}

// order finds the one order that an id means.
func (a *API) order(ctx context.Context, id string) (fulfillment.Order, error) {
	found, err := a.orderID(ctx, id)
	if err != nil {
		return fulfillment.Order{}, err
	}
	return fulfillment.LoadOrder(ctx, a.DB, caller(ctx).Merchant, found)
}

// noteOrder names in the log what is to be settled, if it has the form of an id: somebody may have typed an address.
func noteOrder(ctx context.Context, id string) {
	if idForm.MatchString(id) {
		logs.Note(ctx, "order", id)
	}
}

var idForm = regexp.MustCompile(`^(cs|pi|ch|py|re|pyr|dp|du)_[A-Za-z0-9_]+$`)

// orderID is order without what it holds.
func (a *API) orderID(ctx context.Context, id string) (string, error) {
	if strings.Contains(id, "@") {
		return "", fulfillment.ErrNoOrder
	}
	ids, err := fulfillment.OrderIDs(ctx, a.DB, caller(ctx).Merchant, id, 2)
	switch {
	case err != nil:
		return "", err
	case len(ids) == 0:
		return "", fulfillment.ErrNoOrder
	case len(ids) > 1:
		return "", fulfillment.ErrAmbiguous
	}
	logs.Note(ctx, "order", ids[0])
	return ids[0], nil
}

func (a *API) getHistory(ctx context.Context, in *OrderInput) (*Output[fulfillment.History], error) {
	order, err := a.orderID(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	history, err := fulfillment.LoadHistory(ctx, a.DB, caller(ctx).Merchant, order)
	if err != nil {
		return nil, err
	}
	for i := range history.Deliveries {
		history.Deliveries[i].Recipient = caller(ctx).Role.Address(history.Deliveries[i].Recipient)
	}
	return &Output[fulfillment.History]{history}, nil
}

func (a *API) settleOrder(ctx context.Context, in *OrderInput) (*Output[fulfillment.Order], error) {
	noteOrder(ctx, in.ID)
	order, err := a.Service.Settle(ctx, caller(ctx).Merchant, in.ID)
	if err != nil {
		return nil, err
	}
	return answerOrder(ctx, order), nil
}

func (a *API) retryOrder(ctx context.Context, in *ReasonInput) (*Output[fulfillment.Order], error) {
	noteOrder(ctx, in.ID)
	order, err := a.Service.Retry(ctx, caller(ctx).Merchant, in.ID, who(ctx, given(in.Body).Reason))
	if err != nil {
		return nil, err
	}
	return answerOrder(ctx, order), nil
}

func (a *API) resendOrder(ctx context.Context, in *ResendInput) (*Output[Noted], error) {
	body := given(in.Body)
	if body.To != "" && caller(ctx).Role == access.Storefront {
		return nil, fmt.Errorf("%w: a storefront sends keys to the order's own address alone", errInvalid)
	}
	order, err := a.orderID(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	if err := a.Service.Resend(ctx, caller(ctx).Merchant, order, body.To, who(ctx, body.Reason.Reason)); err != nil {
		return nil, err
	}
	return &Output[Noted]{Noted{order}}, nil
}

func (a *API) sendAgain(ctx context.Context, in *DeliveryInput) (*Output[Noted], error) {
	order, err := a.Service.SendAgain(ctx, caller(ctx).Merchant, in.ID, who(ctx, given(in.Body).Reason))
	if err != nil {
		return nil, err
	}
	return &Output[Noted]{Noted{order}}, nil
}

func (a *API) attributeRefund(ctx context.Context, in *AttributionInput) (*Output[Noted], error) {
	order, err := a.Service.AttributeRefund(ctx, caller(ctx).Merchant, in.ID, in.Body.Lines, who(ctx, in.Body.Reason))
	if err != nil {
		return nil, err
	}
	return &Output[Noted]{Noted{order}}, nil
}
