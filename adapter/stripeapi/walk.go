package stripeapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/stripe/stripe-go/v76"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/reconcile"
)

// WantedEvents are the types of events that keytill lives by: an endpoint should send them, and a sweep looks for those
// that never came. A list of Stripe's takes at most 20.
var WantedEvents = []string{
	"checkout.session.completed", "checkout.session.async_payment_succeeded", "checkout.session.async_payment_failed",
	"checkout.session.expired", "payment_intent.succeeded", "payment_intent.canceled", "charge.captured", "charge.refunded",
	"charge.refund.updated", "refund.created", "refund.updated", "refund.failed", "charge.dispute.created",
	"charge.dispute.updated", "charge.dispute.closed", "radar.early_fraud_warning.created", "review.opened", "review.closed",
}

// Page reads a page of a list by creation; see reconcile.Stripe.
func (c *Client) Page(ctx context.Context, merchant string, kind reconcile.Kind, in reconcile.Span, after string) (reconcile.Page, error) {
	account, err := c.account(ctx, merchant)
	if err != nil {
		return reconcile.Page{}, err
	}
	r := reading{Client: c, ctx: ctx, account: account}
	list := r.list(stripe.ListParams{Limit: stripe.Int64(pageSize), Single: true})
	if after != "" {
		list.StartingAfter = stripe.String(after)
	}
	created := &stripe.RangeQueryParams{GreaterThanOrEqual: in.From.Unix(), LesserThan: in.To.Unix()}
	page, err := r.page(kind, list, created)
	if err != nil {
		return reconcile.Page{}, fmt.Errorf("list %s: %w", kind, classify(ctx, err))
	}
	return page, nil
}

func (r reading) page(kind reconcile.Kind, list stripe.ListParams, created *stripe.RangeQueryParams) (reconcile.Page, error) {
	switch kind {
	case reconcile.Sessions:
		iter := r.api.CheckoutSessions.List(&stripe.CheckoutSessionListParams{ListParams: list, CreatedRange: created})
		return pageOf(iter.Err(), iter.CheckoutSessionList, func(l *stripe.CheckoutSessionList) ([]*stripe.CheckoutSession, bool) {
			return l.Data, l.HasMore
		}, sessionObject)
	case reconcile.Intents:
		iter := r.api.PaymentIntents.List(&stripe.PaymentIntentListParams{ListParams: list, CreatedRange: created})
		return pageOf(iter.Err(), iter.PaymentIntentList, func(l *stripe.PaymentIntentList) ([]*stripe.PaymentIntent, bool) {
			return l.Data, l.HasMore
		}, intentObject)
	case reconcile.Refunds:
		iter := r.api.Refunds.List(&stripe.RefundListParams{ListParams: list, CreatedRange: created})
		return pageOf(iter.Err(), iter.RefundList, func(l *stripe.RefundList) ([]*stripe.Refund, bool) {
			return l.Data, l.HasMore
		}, refundObject)
	case reconcile.Disputes:
		iter := r.api.Disputes.List(&stripe.DisputeListParams{ListParams: list, CreatedRange: created})
		return pageOf(iter.Err(), iter.DisputeList, func(l *stripe.DisputeList) ([]*stripe.Dispute, bool) {
			return l.Data, l.HasMore
		}, disputeObject)
	case reconcile.Warnings:
		iter := r.api.RadarEarlyFraudWarnings.List(&stripe.RadarEarlyFraudWarningListParams{ListParams: list, CreatedRange: created})
		return pageOf(iter.Err(), iter.RadarEarlyFraudWarningList,
			func(l *stripe.RadarEarlyFraudWarningList) ([]*stripe.RadarEarlyFraudWarning, bool) {
				return l.Data, l.HasMore
			},
			warningObject)
	case reconcile.Events:
		iter := r.api.Events.List(&stripe.EventListParams{ListParams: list, CreatedRange: created, Types: stripe.StringSlice(WantedEvents)})
		return pageOf(iter.Err(), iter.EventList, func(l *stripe.EventList) ([]*stripe.Event, bool) {
			return l.Data, l.HasMore
		}, eventObject)
	default:
		return reconcile.Page{}, fmt.Errorf("%q is no kind that Stripe lists", kind)
	}
}

// pageOf turns an answer of stripe-go's into a page.
func pageOf[L, T any](err error, answer func() *L, split func(*L) ([]*T, bool), object func(*T) reconcile.Object) (reconcile.Page, error) {
	if err != nil {
		return reconcile.Page{}, translate(err, "a list")
	}
	data, more := split(answer())
	if data == nil {
		return reconcile.Page{}, errNoList
	}
	page := reconcile.Page{Objects: make([]reconcile.Object, len(data)), More: more}
	for i, d := range data {
		page.Objects[i] = object(d)
	}
	return page, nil
}

// Object reads one object; see reconcile.Stripe.
func (c *Client) Object(ctx context.Context, merchant, id string) (reconcile.Object, error) {
	account, err := c.account(ctx, merchant)
	if err != nil {
		return reconcile.Object{}, err
	}
	r := reading{Client: c, ctx: ctx, account: account}
	object, err := r.object(id)
	if err == nil {
		err = asked(id, object.ID)
	} else {
		err = translate(err, id)
	}
	if err != nil {
		return reconcile.Object{}, classify(ctx, err)
	}
	return object, nil
}

func (r reading) object(id string) (reconcile.Object, error) {
	prefix, rest, _ := strings.Cut(id, "_")
	if rest == "" {
		prefix = "" // stripe-go would ask for the list
	}
	switch prefix {
	case "cs":
		s, err := r.api.CheckoutSessions.Get(id, &stripe.CheckoutSessionParams{Params: r.params()})
		return objectOf(s, err, sessionObject)
	case "pi":
		pi, err := r.api.PaymentIntents.Get(id, &stripe.PaymentIntentParams{Params: r.params()})
		return objectOf(pi, err, intentObject)
	case "re", "pyr":
		refund, err := r.api.Refunds.Get(id, &stripe.RefundParams{Params: r.params()})
		return objectOf(refund, err, refundObject)
	case "dp", "du":
		dispute, err := r.api.Disputes.Get(id, &stripe.DisputeParams{Params: r.params()})
		return objectOf(dispute, err, disputeObject)
	}
	return reconcile.Object{}, fmt.Errorf("%q: %w", id, fulfillment.ErrNotFound)
}

func objectOf[T any](value *T, err error, object func(*T) reconcile.Object) (reconcile.Object, error) {
	if err != nil {
		return reconcile.Object{}, err
	}
	return object(value), nil
}

// classify says which errors are about more than what was asked for.
func classify(ctx context.Context, err error) error {
	var answer *Error
	switch {
	case err == nil, ctx.Err() != nil, errors.Is(err, fulfillment.ErrNotFound):
		return err
	case !errors.As(err, &answer):
		return fmt.Errorf("%w: %w", reconcile.ErrUnavailable, err) // nothing came back, or nothing that can be read
	case answer.Status == http.StatusForbidden:
		return fmt.Errorf("%w: %w", reconcile.ErrForbidden, err)
	case answer.Status == http.StatusUnauthorized, answer.Status == http.StatusTooManyRequests:
		return fmt.Errorf("%w: %w", reconcile.ErrUnavailable, err)
	}
	return err
}
