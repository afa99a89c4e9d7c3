package stripefake

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stripe/stripe-go/v76"
)

// raw makes a call without Stripe's library and returns the error in the
// answer.
func raw(t *testing.T, s *Server, method, path string, header map[string]string) (*http.Response, map[string]any) {
	t.Helper()
	req, err := http.NewRequest(method, s.URL()+path, nil)
	must(t, err)
	req.Header.Set("Authorization", "Bearer "+s.APIKey())
	for k, v := range header {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	must(t, err)
	var m struct {
		Error map[string]any `json:"error"`
	}
	if err := json.Unmarshal(body, &m); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return resp, m.Error
}

func TestStrictness(t *testing.T) {
	t.Parallel()
	s, _ := start(t, Config{})
	must(t, s.Session("cs_1", mustItems(t, "price_game*1"), nil))
	must(t, s.Session("cs_live", mustItems(t, "price_game*1"), Fields{"livemode": "true"}))
	for _, tc := range []struct {
		call   string
		header map[string]string
		status int
		code   string
		param  string
		msg    string
	}{
		{"GET /v1/checkout/sessions/cs_0", nil, 404, "resource_missing", "session", "No such checkout.session: 'cs_0'"},
		{"GET /v1/checkout/sessions/pi_1", nil, 404, "resource_missing", "session", "No such checkout.session: 'pi_1'"},
		{"GET /v1/checkout/sessions/cs_0/line_items", nil, 404, "resource_missing", "session", "No such checkout.session"},
		{"GET /v1/checkout/sessions/cs_live", nil, 404, "resource_missing", "session", "; a similar object exists in live mode, but a test mode key was used to make this request."},
		{"GET /v1/payment_intents/cs_1", nil, 404, "resource_missing", "intent", "No such payment_intent: 'cs_1'"},
		{"GET /v1/charges/ch_0", nil, 404, "resource_missing", "id", "No such charge: 'ch_0'"},
		{"GET /v1/refunds?payment_intent=pi_0", nil, 400, "resource_missing", "payment_intent", "No such payment_intent: 'pi_0'"},
		{"GET /v1/charges?starting_after=ch_0", nil, 400, "resource_missing", "starting_after", "No such charge: 'ch_0'"},
		{"GET /v1/charges?starting_after=ch_1&ending_before=ch_1", nil, 400, "", "ending_before", ""},
		{"GET /v1/charges?foo=1", nil, 400, "parameter_unknown", "foo", "Received unknown parameter: foo"},
		{"GET /v1/charges?foo=1&bar=2", nil, 400, "parameter_unknown", "bar", "Received unknown parameters: bar, foo"},
		{"GET /v1/payment_intents?payment_intent=pi_1", nil, 400, "parameter_unknown", "payment_intent", ""},
		{"GET /v1/charges?created[since]=1", nil, 400, "parameter_unknown", "created[since]", ""},
		{"GET /v1/charges?created=yesterday", nil, 400, "parameter_invalid_integer", "created", "Invalid integer: yesterday"},
		{"GET /v1/charges?limit=101", nil, 400, "parameter_invalid_integer", "limit", "(it currently is '101')"},
		{"GET /v1/charges?limit=0", nil, 400, "parameter_invalid_integer", "limit", "greater than or equal to 1"},
		{"GET /v1/checkout/sessions?status=paid", nil, 400, "", "status", ""},
		{"GET /v1/charges?expand[]=customer", nil, 400, "", "expand", "This property cannot be expanded (customer). You may want to try expanding 'data.customer' instead."},
		{"GET /v1/refunds?expand[]=data.nothing", nil, 400, "", "expand", "This property cannot be expanded (data.nothing)."},
		{"GET /v1/checkout/sessions/cs_1?expand[]=payment_intent.charges", nil, 400, "", "expand", "(payment_intent.charges)"},
		{"GET /v1/checkout/sessions/cs_1?expand[]=status", nil, 400, "", "expand", "(status)"},
		{"GET /v1/checkout/sessions?expand[]=data.payment_intent.latest_charge.refunds.data", nil, 400, "", "expand", "more than 4 levels"},
		{"GET /v1/events?type=a&types[]=b", nil, 400, "", "types", ""},
		{"GET /v1/foo", nil, 404, "", "", "Unrecognized request URL (GET: /v1/foo)."},
		{"DELETE /v1/charges/ch_1", nil, 404, "", "", "Unrecognized request URL (DELETE: /v1/charges/ch_1)."},
		{"GET /v1/charges", map[string]string{"Authorization": ""}, 401, "", "", "You did not provide an API key."},
		{"GET /v1/charges", map[string]string{"Authorization": "Bearer sk_test_somebodyelse"}, 401, "", "", "Invalid API Key provided: sk_test_********else"},
		{"GET /v1/charges", map[string]string{"Stripe-Version": "latest"}, 400, "", "", "Invalid Stripe API version: latest"},
		{"GET /v1/charges", map[string]string{"Stripe-Account": "acct_0"}, 403, "account_invalid", "", "does not have access to account 'acct_0'"},
		{"POST /v1/refunds", nil, 400, "parameter_missing", "", "payment_intent or charge"},
	} {
		method, path, _ := strings.Cut(tc.call, " ")
		resp, e := raw(t, s, method, path, tc.header)
		code, _ := e["code"].(string)
		param, _ := e["param"].(string)
		msg, _ := e["message"].(string)
		if resp.StatusCode != tc.status || code != tc.code || param != tc.param || !strings.Contains(msg, tc.msg) {
			t.Errorf("%s %v:\n got %d %q %q %s\nwant %d %q %q %s", tc.call, tc.header, resp.StatusCode, code, param, msg, tc.status, tc.code, tc.param, tc.msg)
		}
		if id := resp.Header.Get("Request-Id"); id == "" || !strings.Contains(e["request_log_url"].(string), id) || e["type"] != "invalid_request_error" {
			t.Errorf("%s: got request %q and %v", tc.call, id, e)
		}
	}
}

func TestVersionIsAnsweredAsAsked(t *testing.T) {
	t.Parallel()
	s, _ := start(t, Config{})
	for asked, want := range map[string]string{"": stripe.APIVersion, "2025-09-30.clover": "2025-09-30.clover"} {
		h := map[string]string{}
		if asked != "" {
			h["Stripe-Version"] = asked
		}
		if resp, _ := raw(t, s, "GET", "/v1/account", h); resp.Header.Get("Stripe-Version") != want || resp.StatusCode != 200 {
			t.Errorf("%q: got %d %q", asked, resp.StatusCode, resp.Header.Get("Stripe-Version"))
		}
	}
}

func TestAccountsSeeOnlyTheirOwn(t *testing.T) {
	t.Parallel()
	s, api := start(t, Config{})
	must(t, s.Session("cs_1", mustItems(t, "price_game*1"), Fields{"account": "acct_1"}))
	must(t, s.Session("cs_2", mustItems(t, "price_game*1"), nil))
	must(t, s.Account("acct_2", Fields{"country": "SE"}))
	as := func(acct string) *stripe.CheckoutSessionParams {
		p := &stripe.CheckoutSessionParams{}
		p.SetStripeAccount(acct)
		return p
	}
	if _, err := api.CheckoutSessions.Get("cs_1", as("acct_1")); err != nil {
		t.Error(err)
	}
	_, err := api.CheckoutSessions.Get("cs_1", as("acct_2"))
	refused(t, err, 404, stripe.ErrorCodeResourceMissing)
	_, err = api.CheckoutSessions.Get("cs_1", nil)
	refused(t, err, 404, stripe.ErrorCodeResourceMissing)
	_, err = api.CheckoutSessions.Get("cs_2", as("acct_1"))
	refused(t, err, 404, stripe.ErrorCodeResourceMissing)
	_, err = api.CheckoutSessions.Get("cs_1", as("acct_3"))
	refused(t, err, 403, stripe.ErrorCodeAccountInvalid)

	p := &stripe.RefundListParams{PaymentIntent: stripe.String("pi_1")}
	refused(t, api.Refunds.List(p).Err(), 400, stripe.ErrorCodeResourceMissing)
	p.SetStripeAccount("acct_1")
	must(t, api.Refunds.List(p).Err())

	if _, err := api.CheckoutSessions.Get("cs_2", as("acct_keytill")); err != nil {
		t.Errorf("the platform under its own id: %v", err)
	}
	if got, err := api.Accounts.GetByID("acct_2", nil); err != nil || got.Country != "SE" {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err := api.Accounts.Get(); err != nil || got.ID != "acct_keytill" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestLivemodeIsTheModeOfKeyAndObjects(t *testing.T) {
	t.Parallel()
	s, api := start(t, Config{Livemode: true})
	must(t, s.Session("cs_1", mustItems(t, "price_game*1"), nil))
	if cs, err := api.CheckoutSessions.Get("cs_1", nil); err != nil || !cs.Livemode || s.APIKey() != "sk_live_keytill" {
		t.Errorf("got %+v, %v with %s", cs, err, s.APIKey())
	}
	ev, err := s.Event("checkout.session.completed", "cs_1", EventOptions{})
	must(t, err)
	if m, _ := decodeObject(ev.Payload); m["livemode"] != true {
		t.Errorf("got %s", ev.Payload)
	}
}

func TestModesSeeOnlyTheirOwn(t *testing.T) {
	t.Parallel()
	s, test := start(t, Config{APIKeys: []string{"sk_test_a", "sk_live_a"}})
	live := clientOf(s, "sk_live_a")
	must(t, s.Session("cs_t", mustItems(t, "price_game*1"), nil))
	must(t, s.Session("cs_l", mustItems(t, "price_game*1"), Fields{"livemode": "true"}))
	if cs, err := live.CheckoutSessions.Get("cs_l", nil); err != nil || !cs.Livemode {
		t.Errorf("got %+v, %v", cs, err)
	}
	if pr, err := live.Prices.Get("price_game", nil); err != nil || !pr.Livemode {
		t.Errorf("got %+v, %v", pr, err)
	}
	if pr, err := test.Prices.Get("price_game", nil); err != nil || pr.Livemode {
		t.Errorf("got %+v, %v", pr, err)
	}
	_, err := live.PaymentIntents.Get("pi_t", nil)
	if e := refused(t, err, 404, stripe.ErrorCodeResourceMissing); !strings.Contains(e.Msg, "exists in test mode, but a live mode key") {
		t.Error(e.Msg)
	}
	it := test.Charges.List(nil)
	for it.Next() {
		if it.Charge().ID != "ch_t" {
			t.Errorf("test mode lists %s", it.Charge().ID)
		}
	}
	must(t, it.Err())
}
