package stripeapi

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/stripe/stripe-go/v76"
)

// An Endpoint is a webhook endpoint as Stripe has it.
type Endpoint struct {
	ID         string
	URL        string
	Enabled    bool
	Livemode   bool
	APIVersion string   // empty: the account's default
	Events     []string // the types it sends; "*" is all
}

// ListEndpoints reads the webhook endpoints of the platform's account.
func (c *Client) ListEndpoints(ctx context.Context) ([]Endpoint, error) {
	r := reading{Client: c, ctx: ctx}
	found, err := all(func(list stripe.ListParams) page[*stripe.WebhookEndpoint] {
		iter := r.api.WebhookEndpoints.List(&stripe.WebhookEndpointListParams{ListParams: r.list(list)})
		if err := iter.Err(); err != nil {
			return page[*stripe.WebhookEndpoint]{err: classify(ctx, translate(err, "the webhook endpoints"))}
		}
		got := iter.WebhookEndpointList()
		return page[*stripe.WebhookEndpoint]{data: got.Data, more: got.HasMore}
	}, func(e *stripe.WebhookEndpoint) string { return e.ID })
	if err != nil {
		return nil, err
	}
	endpoints := make([]Endpoint, len(found))
	for i, e := range found {
		endpoints[i] = Endpoint{ID: e.ID, URL: e.URL, Enabled: e.Status == "enabled", Livemode: e.Livemode, APIVersion: e.APIVersion,
			Events: e.EnabledEvents}
	}
	return endpoints, nil
}

// Missing are the wanted types that an endpoint does not send.
func (e Endpoint) Missing() []string {
	var missing []string
	for _, wanted := range WantedEvents {
		if !slices.Contains(e.Events, "*") && !slices.Contains(e.Events, wanted) {
			missing = append(missing, wanted)
		}
	}
	return missing
}

// Endpoints tells how the endpoints are set up; see reconcile.Stripe.
func (c *Client) Endpoints(ctx context.Context) (string, error) {
	endpoints, err := c.ListEndpoints(ctx)
	if err != nil {
		return "", err
	}
	if len(endpoints) == 0 {
		return "Stripe has no webhook endpoint: add one in the dashboard, Developers → Webhooks.", nil
	}
	told := make([]string, len(endpoints))
	for i, e := range endpoints {
		state := "enabled"
		if !e.Enabled {
			state = "DISABLED: enable it in the dashboard"
		}
		told[i] = fmt.Sprintf("%s (%s) is %s", e.ID, e.URL, state)
		if missing := e.Missing(); len(missing) > 0 {
			told[i] += " and does not send " + strings.Join(missing, ", ")
		}
	}
	return "At Stripe, " + strings.Join(told, "; ") + ". If it is enabled and sends everything, its URL does not lead here, or its secret is not configured.", nil
}
