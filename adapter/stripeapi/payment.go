package stripeapi

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/stripe/stripe-go/v76"
	"golang.org/x/sync/errgroup"

	"github.com/keytill/keytill/fulfillment"
)

// reading is one reading of a payment.
type reading struct {
	*Client
	ctx     context.Context
	account string
}

// Payment reads the payment that ref belongs to; see fulfillment.Stripe.
func (c *Client) Payment(ctx context.Context, merchant, ref string) (fulfillment.Payment, error) {
	account, err := c.account(ctx, merchant)
	if err != nil {
		return fulfillment.Payment{}, err
	}
	r := reading{Client: c, ctx: ctx, account: account}
	if strings.HasPrefix(ref, "cs_") {
		return r.session(ref)
	}
	intent, err := r.intentOf(ref)
	if err != nil {
		return fulfillment.Payment{}, err
	}
	session, err := r.sessionOf(intent)
	if err != nil {
		return fulfillment.Payment{}, err
	}
	if session == "" {
		return r.intent(intent)
	}
	payment, err := r.session(session)
	if errors.Is(err, fulfillment.ErrNotFound) {
		err = contradiction("Stripe lists %s for %s, and does not have it", session, intent)
	}
	return payment, err
}

func (r reading) params() stripe.Params {
	p := stripe.Params{Context: r.ctx}
	if r.account != "" {
		p.StripeAccount = stripe.String(r.account)
	}
	return p
}

// list completes the parameters of a page.
func (r reading) list(p stripe.ListParams) stripe.ListParams {
	p.Context = r.ctx
	if r.account != "" {
		p.StripeAccount = stripe.String(r.account)
	}
	return p
}

// intentOf finds the PaymentIntent that an id belongs to. An object that belongs to none is not a sale of ours.
func (r reading) intentOf(ref string) (string, error) {
	var (
		intent *stripe.PaymentIntent
		charge *stripe.Charge
		err    error
	)
	prefix, _, _ := strings.Cut(ref, "_")
	switch prefix {
	case "pi":
		return ref, nil
	case "ch", "py":
		var c *stripe.Charge
		if c, err = r.api.Charges.Get(ref, &stripe.ChargeParams{Params: r.params()}); err == nil {
			intent, err = c.PaymentIntent, asked(ref, c.ID)
		}
	case "re", "pyr":
		var refund *stripe.Refund
		if refund, err = r.api.Refunds.Get(ref, &stripe.RefundParams{Params: r.params()}); err == nil {
			intent, charge, err = refund.PaymentIntent, refund.Charge, asked(ref, refund.ID)
		}
	case "dp", "du":
		var dispute *stripe.Dispute
		if dispute, err = r.api.Disputes.Get(ref, &stripe.DisputeParams{Params: r.params()}); err == nil {
			intent, charge, err = dispute.PaymentIntent, dispute.Charge, asked(ref, dispute.ID)
		}
	case "issfr":
		var warning *stripe.RadarEarlyFraudWarning
		if warning, err = r.api.RadarEarlyFraudWarnings.Get(ref, &stripe.RadarEarlyFraudWarningParams{Params: r.params()}); err == nil {
			intent, charge, err = warning.PaymentIntent, warning.Charge, asked(ref, warning.ID)
		}
	case "prv":
		var review *stripe.Review
		if review, err = r.api.Reviews.Get(ref, &stripe.ReviewParams{Params: r.params()}); err == nil {
			intent, charge, err = review.PaymentIntent, review.Charge, asked(ref, review.ID)
		}
	default:
		return "", fmt.Errorf("%s is no id of a payment: %w", ref, fulfillment.ErrNotOurs)
	}
	switch {
	case err != nil:
		return "", translate(err, ref)
	case intent != nil && intent.ID != "":
		return intent.ID, nil
	case charge != nil && charge.ID != "":
		return r.intentOf(charge.ID)
	default:
		return "", fmt.Errorf("%s belongs to no PaymentIntent: %w", ref, fulfillment.ErrNotOurs)
	}
}

// sessionOf finds the Checkout Session that made a PaymentIntent, or none.
func (r reading) sessionOf(intent string) (string, error) {
	params := &stripe.CheckoutSessionListParams{ListParams: r.list(stripe.ListParams{Limit: stripe.Int64(1), Single: true}),
		PaymentIntent: stripe.String(intent)}
	iter := r.api.CheckoutSessions.List(params)
	if err := iter.Err(); err != nil {
		return "", translate(err, intent)
	}
	found := iter.CheckoutSessionList()
	switch {
	case found.Data == nil:
		return "", fmt.Errorf("session of %s: %w", intent, errNoList)
	case len(found.Data) == 0 && found.HasMore:
		return "", fmt.Errorf("session of %s: %w", intent, errEmptyPage)
	case len(found.Data) == 0:
		return "", nil
	}
	s := found.Data[0]
	if s.ID == "" {
		return "", fmt.Errorf("session of %s: %w", intent, errNoList)
	}
	return s.ID, belongs(s.ID, s.PaymentIntent, intent)
}

func (r reading) session(id string) (fulfillment.Payment, error) {
	session, err := r.api.CheckoutSessions.Get(id, &stripe.CheckoutSessionParams{Params: r.params(),
		Expand: stripe.StringSlice([]string{"line_items", "payment_intent.latest_charge", "payment_intent.review"})})
	if err != nil {
		return fulfillment.Payment{}, translate(err, id)
	}
	if err := asked(id, session.ID); err != nil {
		return fulfillment.Payment{}, err
	}
	payment := fulfillment.Payment{Session: sessionFrom(session)}
	if !payment.Ours() {
		return payment, nil
	}
	var group errgroup.Group
	group.Go(func() (err error) {
		payment.Lines, err = r.lines(session)
		return err
	})
	pi := session.PaymentIntent
	if pi == nil || pi.ID == "" {
		return payment, group.Wait()
	}
	r.readIntent(&payment, pi, &group)
	if err := group.Wait(); err != nil {
		return payment, err
	}
	return payment, agree(pi.LatestCharge, payment)
}

func (r reading) intent(id string) (fulfillment.Payment, error) {
	pi, err := r.api.PaymentIntents.Get(id, &stripe.PaymentIntentParams{Params: r.params(),
		Expand: stripe.StringSlice([]string{"latest_charge", "review"})})
	if err != nil {
		return fulfillment.Payment{}, translate(err, id)
	}
	if err := asked(id, pi.ID); err != nil {
		return fulfillment.Payment{}, err
	}
	var (
		payment fulfillment.Payment
		group   errgroup.Group
	)
	if intent := intentFrom(pi); intent.Lines == "" {
		payment.Intent = intent
		return payment, nil // not ours: nothing else of it is read
	}
	r.readIntent(&payment, pi, &group)
	if err := group.Wait(); err != nil {
		return payment, err
	}
	return payment, agree(pi.LatestCharge, payment)
}

// readIntent takes a PaymentIntent and starts reading what came of its money. Without a charge nothing can have.
func (r reading) readIntent(payment *fulfillment.Payment, pi *stripe.PaymentIntent, group *errgroup.Group) {
	payment.Intent = intentFrom(pi)
	if pi.Review != nil && pi.Review.ID != "" {
		payment.Reviews = append(payment.Reviews, fulfillment.Review{ID: pi.Review.ID, Open: pi.Review.Open})
	}
	if payment.Intent.Charge == "" {
		return
	}
	group.Go(func() (err error) {
		payment.Refunds, err = r.refunds(pi.ID)
		return err
	})
	group.Go(func() (err error) {
		payment.Disputes, err = r.disputes(pi.ID)
		return err
	})
	group.Go(func() (err error) {
		payment.Warnings, err = r.warnings(pi.ID)
		return err
	})
}

// lines are a session's line items. The ten that come with a session are enough for most; else all pages are read. Where
// they do not make the session's amount, a list that ended too early is the likely reason, so they are read once more. What
// Stripe then says again is believed, unless it still looks as if a page were missing.
func (r reading) lines(session *stripe.CheckoutSession) ([]fulfillment.Line, error) {
	var items []*stripe.LineItem
	if first := session.LineItems; first != nil && first.Data != nil && !first.HasMore {
		items = first.Data
	} else {
		var err error
		if items, err = r.allLines(session.ID); err != nil {
			return nil, err
		}
	}
	if short(session, items) {
		again, err := r.allLines(session.ID)
		if err != nil {
			return nil, err
		}
		if len(again) > len(items) {
			items = again
		}
	}
	switch {
	case len(items) == 0:
		return nil, contradiction("%s sells nothing", session.ID)
	case short(session, items) && len(items)%pageSize == 0:
		return nil, contradiction("the lines of %s do not make its amount, and end with a full page", session.ID)
	}
	lines := make([]fulfillment.Line, len(items))
	for i, item := range items {
		lines[i] = lineFrom(item)
	}
	return lines, nil
}

func (r reading) allLines(session string) ([]*stripe.LineItem, error) {
	items, err := all(func(list stripe.ListParams) page[*stripe.LineItem] {
		iter := r.api.CheckoutSessions.ListLineItems(&stripe.CheckoutSessionListLineItemsParams{ListParams: r.list(list),
			Session: stripe.String(session)})
		if err := iter.Err(); err != nil {
			return page[*stripe.LineItem]{err: translate(err, session)}
		}
		got := iter.LineItemList()
		return page[*stripe.LineItem]{data: got.Data, more: got.HasMore}
	}, func(item *stripe.LineItem) string { return item.ID })
	if err != nil {
		return nil, part("line items", session, err)
	}
	return items, nil
}

func (r reading) refunds(intent string) ([]fulfillment.Refund, error) {
	refunds, err := all(func(list stripe.ListParams) page[*stripe.Refund] {
		iter := r.api.Refunds.List(&stripe.RefundListParams{ListParams: r.list(list), PaymentIntent: stripe.String(intent)})
		if err := iter.Err(); err != nil {
			return page[*stripe.Refund]{err: translate(err, intent)}
		}
		got := iter.RefundList()
		return page[*stripe.Refund]{data: got.Data, more: got.HasMore}
	}, func(refund *stripe.Refund) string { return refund.ID })
	if err != nil {
		return nil, part("refunds", intent, err)
	}
	list := make([]fulfillment.Refund, len(refunds))
	for i, refund := range refunds {
		if err := belongs(refund.ID, refund.PaymentIntent, intent); err != nil {
			return nil, err
		}
		list[i] = refundFrom(refund)
	}
	return list, nil
}

func (r reading) disputes(intent string) ([]fulfillment.Dispute, error) {
	disputes, err := all(func(list stripe.ListParams) page[*stripe.Dispute] {
		iter := r.api.Disputes.List(&stripe.DisputeListParams{ListParams: r.list(list), PaymentIntent: stripe.String(intent)})
		if err := iter.Err(); err != nil {
			return page[*stripe.Dispute]{err: translate(err, intent)}
		}
		got := iter.DisputeList()
		return page[*stripe.Dispute]{data: got.Data, more: got.HasMore}
	}, func(dispute *stripe.Dispute) string { return dispute.ID })
	if err != nil {
		return nil, part("disputes", intent, err)
	}
	list := make([]fulfillment.Dispute, len(disputes))
	for i, dispute := range disputes {
		if err := belongs(dispute.ID, dispute.PaymentIntent, intent); err != nil {
			return nil, err
		}
		list[i] = disputeFrom(dispute)
	}
	return list, nil
}

func (r reading) warnings(intent string) ([]fulfillment.Warning, error) {
	warnings, err := all(func(list stripe.ListParams) page[*stripe.RadarEarlyFraudWarning] {
		iter := r.api.RadarEarlyFraudWarnings.List(&stripe.RadarEarlyFraudWarningListParams{ListParams: r.list(list),
			PaymentIntent: stripe.String(intent)})
		if err := iter.Err(); err != nil {
			return page[*stripe.RadarEarlyFraudWarning]{err: translate(err, intent)}
		}
		got := iter.RadarEarlyFraudWarningList()
		return page[*stripe.RadarEarlyFraudWarning]{data: got.Data, more: got.HasMore}
	}, func(warning *stripe.RadarEarlyFraudWarning) string { return warning.ID })
	if err != nil {
		return nil, part("early fraud warnings", intent, err)
	}
	list := make([]fulfillment.Warning, len(warnings))
	for i, warning := range warnings {
		if err := belongs(warning.ID, warning.PaymentIntent, intent); err != nil {
			return nil, err
		}
		list[i] = fulfillment.Warning{ID: warning.ID}
	}
	return list, nil
}
