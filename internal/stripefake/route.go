package stripefake

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A route is one operation of the API.
type route struct {
	method  string
	pattern []string // {id} stands for any one segment
	params  []string // the parameters it takes, by what stands before a bracket
	do      func(*call) (map[string]any, *apiError)
}

const paging = " limit starting_after ending_before"

// routes is every operation that the fake knows.
var routes = func() []route {
	rs := []route{
		get("/v1/account", "", (*call).account),
		get("/v1/accounts/{id}", "", (*call).accountByID),
		get("/v1/checkout/sessions/{id}/line_items", paging, (*call).lineItems),
		post("/v1/refunds", "amount charge currency instructions_email metadata origin payment_intent reason "+
			"refund_application_fee reverse_transfer", (*call).createRefund),
		post("/v1/payment_intents/{id}/capture", "amount_to_capture application_fee_amount final_capture metadata "+
			"statement_descriptor statement_descriptor_suffix transfer_data", (*call).capture),
		post("/v1/checkout/sessions", "after_expiration allow_promotion_codes automatic_tax billing_address_collection "+
			"cancel_url client_reference_id consent_collection currency custom_fields custom_text customer "+
			"customer_creation customer_email customer_update discounts expires_at invoice_creation line_items locale "+
			"metadata mode payment_intent_data payment_method_collection payment_method_configuration "+
			"payment_method_options payment_method_types phone_number_collection redirect_on_completion return_url "+
			"setup_intent_data shipping_address_collection shipping_options submit_type subscription_data success_url "+
			"tax_id_collection ui_mode", (*call).createSession),
		post("/v1/checkout/sessions/{id}/expire", "", (*call).expire),
	}
	for k, filters := range map[*kind]string{
		sessionKind:  "created customer customer_details payment_intent payment_link status subscription",
		intentKind:   "created customer",
		chargeKind:   "created customer payment_intent transfer_group",
		refundKind:   "created charge payment_intent",
		disputeKind:  "created charge payment_intent",
		warningKind:  "created charge payment_intent",
		reviewKind:   "created",
		eventKind:    "created delivery_success type types",
		priceKind:    "created active currency lookup_keys product recurring type",
		productKind:  "created active ids shippable url",
		endpointKind: "",
	} {
		rs = append(rs,
			get(k.url, filters+paging, func(c *call) (map[string]any, *apiError) { return c.list(k) }),
			get(k.url+"/{id}", retrieveParams(k), func(c *call) (map[string]any, *apiError) { return c.retrieve(k) }))
	}
	return rs
}()

func retrieveParams(k *kind) string {
	if k == intentKind {
		return "client_secret"
	}
	return ""
}

func get(pattern, params string, do func(*call) (map[string]any, *apiError)) route {
	return route{http.MethodGet, split(pattern), strings.Fields(params), do}
}

func post(pattern, params string, do func(*call) (map[string]any, *apiError)) route {
	return route{http.MethodPost, split(pattern), strings.Fields(params), do}
}

func split(path string) []string {
	return strings.Split(strings.Trim(path, "/"), "/")
}

// match returns the id in the path.
func (rt *route) match(method string, path []string) (id string, ok bool) {
	if method != rt.method || len(path) != len(rt.pattern) {
		return "", false
	}
	for i, p := range rt.pattern {
		switch {
		case p == "{id}":
			id = path[i]
		case p != path[i]:
			return "", false
		}
	}
	return id, true
}

// answer finds who asks and what for.
func (c *call) answer(r *http.Request, body []byte) answer {
	rt, e := c.admit(r, body)
	if e != nil {
		return answer{status: e.status, value: e.body(c.request, c.realm.live)}
	}
	if c.method == http.MethodPost && c.idem != "" {
		return c.once(rt)
	}
	return c.run(rt)
}

func (c *call) run(rt *route) answer {
	v, e := rt.do(c)
	if e == nil {
		e = c.expand(v)
	}
	if e != nil {
		return answer{status: e.status, value: e.body(c.request, c.realm.live)}
	}
	return answer{status: http.StatusOK, value: v}
}

// admit checks the key, the version, the account, the route and the names of
// the parameters, in the order Stripe does.
func (c *call) admit(r *http.Request, body []byte) (*route, *apiError) {
	var e *apiError
	if c.key, e = c.s.authenticate(r); e != nil {
		return nil, e
	}
	c.realm.live = liveKey(c.key)
	if c.version = r.Header.Get("Stripe-Version"); c.version == "" {
		c.version = apiVersion
	} else if !versions.MatchString(c.version) {
		e := invalid("", "", "Invalid Stripe API version: %s", c.version)
		c.version = ""
		return nil, e
	}
	if acct := r.Header.Get("Stripe-Account"); acct != "" && acct != c.s.cfg.Account {
		if o := c.s.store.byID[acct]; o == nil || o.kind != accountKind {
			return nil, &apiError{status: http.StatusForbidden, code: "account_invalid", msg: fmt.Sprintf(
				"The provided key '%s' does not have access to account '%s' (or that account does not exist). "+
					"Application access may have been revoked.", masked(c.key), acct)}
		}
		c.realm.account = acct
	}
	c.idem = r.Header.Get("Idempotency-Key")
	path := split(c.path)
	i := slices.IndexFunc(routes, func(rt route) bool { _, ok := rt.match(c.method, path); return ok })
	if i < 0 {
		return nil, &apiError{status: http.StatusNotFound, msg: fmt.Sprintf(
			"Unrecognized request URL (%s: %s). Please see https://stripe.com/docs or we can help at https://support.stripe.com/.",
			c.method, c.path)}
	}
	rt := &routes[i]
	c.id, _ = rt.match(c.method, path)
	return rt, c.readParams(rt, r, body)
}

var versions = regexp.MustCompile(`^20\d\d-\d\d-\d\d(\.[a-z]+)?$`)

func (s *Server) authenticate(r *http.Request) (string, *apiError) {
	key, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !bearer {
		key, _, _ = r.BasicAuth()
	}
	key = strings.TrimSpace(key)
	if key == "" {
		return "", &apiError{status: http.StatusUnauthorized, msg: "You did not provide an API key. You need to provide " +
			"your API key in the Authorization header, using Bearer auth (e.g. 'Authorization: Bearer YOUR_SECRET_KEY'). " +
			"See https://stripe.com/docs/api#authentication for details, or we can help at https://support.stripe.com/."}
	}
	if !slices.Contains(s.cfg.APIKeys, key) {
		return "", &apiError{status: http.StatusUnauthorized, msg: "Invalid API Key provided: " + masked(key)}
	}
	return key, nil
}

// masked shows what Stripe shows of a key.
func masked(key string) string {
	if len(key) < 12 {
		return strings.Repeat("*", len(key))
	}
	return key[:8] + strings.Repeat("*", len(key)-12) + key[len(key)-4:]
}

// readParams reads the parameters and refuses those the route does not take.
func (c *call) readParams(rt *route, r *http.Request, body []byte) *apiError {
	var err error
	if c.params, err = url.ParseQuery(r.URL.RawQuery); err == nil && c.method == http.MethodPost {
		if t := r.Header.Get("Content-Type"); len(body) > 0 && !strings.HasPrefix(t, "application/x-www-form-urlencoded") {
			return invalid("", "", "Invalid request (check that your POST content type is application/x-www-form-urlencoded). "+
				"If you have any questions, we can help at https://support.stripe.com/.")
		}
		var form url.Values
		if form, err = url.ParseQuery(string(body)); err == nil {
			for k, v := range form {
				c.params[k] = append(c.params[k], v...)
			}
		}
	}
	if err != nil {
		return invalid("", "", "Invalid request: the parameters cannot be read")
	}
	var unknown []string
	for name := range c.params {
		if base, _, _ := strings.Cut(name, "["); base != "expand" && !slices.Contains(rt.params, base) {
			unknown = append(unknown, base)
		}
	}
	slices.Sort(unknown)
	switch unknown = slices.Compact(unknown); len(unknown) {
	case 0:
		return nil
	case 1:
		return invalid(unknown[0], "parameter_unknown", "Received unknown parameter: %s", unknown[0])
	default:
		return invalid(unknown[0], "parameter_unknown", "Received unknown parameters: %s", strings.Join(unknown, ", "))
	}
}

// retrieve answers with one object.
func (c *call) retrieve(k *kind) (map[string]any, *apiError) {
	o := c.s.store.in(c.realm, c.id)
	if o == nil || o.kind != k || (k == eventKind && c.tooOld(o)) {
		param := "id"
		switch k {
		case intentKind:
			param = "intent"
		case sessionKind:
			param = "session"
		case priceKind:
			param = "price"
		}
		return nil, c.missing(k, c.id, param, true)
	}
	return c.s.show(o), nil
}

// tooOld says whether an event is older than the API reaches back.
func (c *call) tooOld(o *object) bool {
	return o.created() < c.s.now().Add(-30*24*time.Hour).Unix()
}

func (c *call) account() (map[string]any, *apiError) {
	id := c.realm.account
	if id == "" {
		id = c.s.cfg.Account
	}
	return c.s.show(c.s.store.byID[id]), nil
}

func (c *call) accountByID() (map[string]any, *apiError) {
	o := c.s.store.byID[c.id]
	if o == nil || o.kind != accountKind {
		return nil, &apiError{status: http.StatusForbidden, code: "account_invalid", msg: fmt.Sprintf(
			"The provided key '%s' does not have access to account '%s' (or that account does not exist). "+
				"Application access may have been revoked.", masked(c.key), c.id)}
	}
	return c.s.show(o), nil
}
