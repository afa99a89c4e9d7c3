package adapter

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/keytill/keytill/adapter/stripeapi"
	"github.com/keytill/keytill/internal/stripefake"
)

func TestEndpointProblems(t *testing.T) {
	t.Parallel()
	const ours, other = "https://shop.example.com/webhooks/stripe", "https://crm.example.com/stripe"
	right := stripeapi.Endpoint{ID: "we_1", URL: ours, Enabled: true, Events: []string{"*"}}
	with := func(change func(*stripeapi.Endpoint)) stripeapi.Endpoint {
		e := right
		change(&e)
		return e
	}
	for name, tt := range map[string]struct {
		endpoints []stripeapi.Endpoint
		want      []string // a word of each problem
		notes     int
	}{
		"none":                        {nil, []string{"no webhook endpoint"}, 0},
		"right":                       {[]stripeapi.Endpoint{right}, nil, 1},
		"each event named":            {[]stripeapi.Endpoint{with(func(e *stripeapi.Endpoint) { e.Events = stripeapi.WantedEvents })}, nil, 1},
		"another API version is fine": {[]stripeapi.Endpoint{with(func(e *stripeapi.Endpoint) { e.APIVersion = "2026-01-28.dahlia" })}, nil, 1},
		"disabled":                    {[]stripeapi.Endpoint{with(func(e *stripeapi.Endpoint) { e.Enabled = false })}, []string{"is disabled"}, 0},
		"of the other mode":           {[]stripeapi.Endpoint{with(func(e *stripeapi.Endpoint) { e.Livemode = true })}, []string{"live mode"}, 0},
		"an event is missing": {[]stripeapi.Endpoint{with(func(e *stripeapi.Endpoint) { e.Events = stripeapi.WantedEvents[1:] })},
			[]string{"checkout.session.completed"}, 0},
		"another application's is not our business": {[]stripeapi.Endpoint{right, {ID: "we_2", URL: other}}, nil, 1},
		"one of two URLs that are not ours is right": {[]stripeapi.Endpoint{{ID: "we_2", URL: other},
			with(func(e *stripeapi.Endpoint) { e.URL = other })}, nil, 1},
		"none of two URLs that are not ours is right": {[]stripeapi.Endpoint{{ID: "we_2", URL: other, Events: []string{"*"}}},
			[]string{"is disabled"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := judgeEndpoints(tt.endpoints, false)
			if len(report.Problems) != len(tt.want) || len(report.Notes) != tt.notes {
				t.Fatalf("%+v", report)
			}
			for i, word := range tt.want {
				if p := report.Problems[i]; !strings.Contains(p.What, word) || p.Do == "" || !strings.Contains(p.String(), p.Do) {
					t.Errorf("%+v", p)
				}
			}
		})
	}
}

func TestAKeyThatMayNotReadEndpointsIsNoProblem(t *testing.T) {
	t.Parallel()
	fake := stripefake.Start(stripefake.Config{})
	defer fake.Close()
	client, err := stripeapi.New(stripeapi.Config{Key: fake.APIKey(), URL: fake.URL(),
		Account: func(context.Context, string) (string, error) { return "", nil }})
	if err != nil {
		t.Fatal(err)
	}
	if err := fake.WebhookEndpoint("we_1", stripefake.Fields{"status": "disabled"}); err != nil {
		t.Fatal(err)
	}
	report, err := CheckEndpoint(t.Context(), client, false)
	if err != nil || len(report.Problems) != 1 {
		t.Errorf("%+v, error %v", report, err)
	}
	fake.Fail(1, stripefake.Fault{Path: "/v1/webhook_endpoints", Status: 403})
	report, err = CheckEndpoint(t.Context(), client, false)
	if err != nil || len(report.Problems) != 0 || !slices.ContainsFunc(report.Notes, func(n string) bool { return strings.Contains(n, "may not read") }) {
		t.Errorf("%+v, error %v", report, err)
	}
}
