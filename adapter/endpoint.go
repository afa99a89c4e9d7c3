package adapter

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/keytill/keytill/adapter/stripeapi"
	"github.com/keytill/keytill/reconcile"
)

// An EndpointReport says how the webhook endpoint at Stripe is set up.
type EndpointReport struct {
	Problems []EndpointProblem `json:"problems"`
	Notes    []string          `json:"notes"` // what is as it should be, or could not be seen
}

// An EndpointProblem is something that keeps events from coming, and what to do about it.
type EndpointProblem struct {
	Endpoint string `json:"endpoint,omitempty"` // we_…; empty: there is none
	What     string `json:"what"`
	Do       string `json:"do"`
}

func (p EndpointProblem) String() string {
	return strings.TrimSpace(p.Endpoint+" "+p.What) + ": " + p.Do
}

// webhookPath is where a Shop takes events.
const webhookPath = "/webhooks/stripe"

const whereEndpoints = "in the Stripe dashboard, Developers → Webhooks"

// CheckEndpoint reads the webhook endpoints that Stripe has for the key's account and says what is wrong with them. What
// the key may not read is a note and no problem. An error says that Stripe could not be asked.
func CheckEndpoint(ctx context.Context, stripe *stripeapi.Client, livemode bool) (EndpointReport, error) {
	endpoints, err := stripe.ListEndpoints(ctx)
	if errors.Is(err, reconcile.ErrForbidden) {
		return EndpointReport{Problems: []EndpointProblem{}, Notes: []string{
			"the API key may not read the webhook endpoints, so they were not checked: give the restricted key read access to them, or look " + whereEndpoints}}, nil
	}
	if err != nil {
		return EndpointReport{}, fmt.Errorf("read the webhook endpoints: %w", err)
	}
	return judgeEndpoints(endpoints, livemode), nil
}

// judgeEndpoints looks at those whose URL ends as keytill's does. Where none does, any may be it, and it is enough that
// one of them is right: the others are other applications'.
func judgeEndpoints(endpoints []stripeapi.Endpoint, livemode bool) EndpointReport {
	report := EndpointReport{Problems: []EndpointProblem{}, Notes: []string{}}
	if len(endpoints) == 0 {
		report.Problems = append(report.Problems, EndpointProblem{What: "Stripe has no webhook endpoint",
			Do: "add one " + whereEndpoints + ", with the URL https://…" + webhookPath + " and these events: " + strings.Join(stripeapi.WantedEvents, ", ")})
		return report
	}
	ours := make([]stripeapi.Endpoint, 0, len(endpoints))
	for _, e := range endpoints {
		if strings.HasSuffix(strings.TrimSuffix(e.URL, "/"), webhookPath) {
			ours = append(ours, e)
		}
	}
	one := len(ours) == 0
	if one {
		ours = endpoints
	}
	for _, e := range ours {
		problems := judgeEndpoint(e, livemode)
		if len(problems) == 0 {
			version := e.APIVersion
			if version == "" {
				version = "the account's default"
			}
			report.Notes = append(report.Notes, fmt.Sprintf("%s (%s) is enabled and sends every event that is wanted; API version: %s, any will do",
				e.ID, e.URL, version))
			if one {
				report.Problems = report.Problems[:0]
				return report
			}
		}
		report.Problems = append(report.Problems, problems...)
	}
	return report
}

func judgeEndpoint(e stripeapi.Endpoint, livemode bool) []EndpointProblem {
	var problems []EndpointProblem
	add := func(what, do string) {
		problems = append(problems, EndpointProblem{Endpoint: e.ID, What: "(" + e.URL + ") " + what, Do: do})
	}
	if !e.Enabled {
		add("is disabled", "enable it "+whereEndpoints+"; `keytill reconcile` finds what was missed")
	}
	if e.Livemode != livemode {
		add(fmt.Sprintf("is of %s mode, and the API key is of %s mode", mode(e.Livemode), mode(livemode)),
			"use the key and the endpoint of one mode")
	}
	if missing := e.Missing(); len(missing) > 0 {
		add("does not send "+strings.Join(missing, ", "), "add these events to it "+whereEndpoints)
	}
	return problems
}

func mode(live bool) string {
	if live {
		return "live"
	}
	return "test"
}

// CheckEndpoint checks the endpoint of this shop.
func (s *Shop) CheckEndpoint(ctx context.Context) (EndpointReport, error) {
	return CheckEndpoint(ctx, s.stripe, s.livemode)
}

// WarnOfEndpoint logs what is wrong with the endpoint. It is meant for the start, in the background: it asks Stripe.
func (s *Shop) WarnOfEndpoint(ctx context.Context) {
	report, err := s.CheckEndpoint(ctx)
	if err != nil {
		if ctx.Err() == nil {
			s.config.Logger.WarnContext(ctx, "could not check the webhook endpoint at Stripe", "error", err)
		}
		return
	}
	for _, p := range report.Problems {
		s.config.Logger.WarnContext(ctx, "the webhook endpoint at Stripe is not set up right", "endpoint", p.Endpoint, "problem", p.What, "do", p.Do)
	}
	for _, note := range report.Notes {
		s.config.Logger.DebugContext(ctx, "webhook endpoint", "note", note)
	}
}
