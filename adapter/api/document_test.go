package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/keytill/keytill/adapter/access"
	"github.com/keytill/keytill/internal/stripefake"
)

// An example is one good request of an operation. They are made in this order.
type example struct {
	operation string
	role      access.Role
	params    map[string]string // of the path
	query     string
	body      any
	before    func(*shop)
	holdsKeys bool
}

var order = map[string]string{"id": "cs_1"}
var unit = map[string]string{"id": "cs_1", "line": "li_cs_1_1", "unit": "1"}

var examples = []example{
	{operation: "create-pool", role: access.Admin, body: fields{"sku": "game", "name": "The Game", "low_keys": 1}},
	{operation: "change-pool", role: access.Admin, params: map[string]string{"sku": "game"}, body: fields{"name": "The Game", "low_keys": 2}},
	{operation: "set-mapping", role: access.Admin, params: map[string]string{"item": "price_game"}, body: fields{"sku": "game", "per_unit": 1}},
	{operation: "import-keys", role: access.Admin, params: map[string]string{"sku": "game"}, query: "supplier=Keys+Ltd", body: keys("GAME", 9)},
	{operation: "list-pools", role: access.Viewer},
	{operation: "list-mappings", role: access.Viewer, query: "limit=1"},
	{operation: "reserve", role: access.Storefront, body: fields{"ref": "cart-1", "lines": []fields{{"sku": "game", "quantity": 2}}, "seconds": 60}},
	{operation: "get-stock", role: access.Storefront},
	{operation: "release-reservation", role: access.Storefront, params: map[string]string{"ref": "cart-1"}},
	{operation: "settle-order", role: access.Storefront, params: order, before: func(s *shop) {
		items, err := stripefake.ParseItems("price_game*2@500#li_cs_1_1")
		s.must(err)
		s.must(s.stripe.Session("cs_1", items, stripefake.Fields{"customer_details.email": "buyer@example.com"}))
	}},
	{operation: "get-order", role: access.Viewer, params: order},
	{operation: "list-orders", role: access.Viewer, query: "ref=pi_1&payment=paid"},
	{operation: "search-orders", role: access.Viewer, body: fields{"key": "GAME-A"}},
	{operation: "get-order-keys", role: access.Storefront, params: order, holdsKeys: true},
	{operation: "reveal-keys", role: access.Support, params: order, body: fields{"reason": "ticket 12"}, holdsKeys: true},
	{operation: "create-link", role: access.Storefront, params: order},
	{operation: "end-links", role: access.Support, params: order, body: fields{"reason": "sent to the wrong one"}},
	{operation: "replace-key", role: access.Support, params: unit, body: fields{"reason": "used already"}},
	{operation: "revoke-key", role: access.Support, params: unit, body: fields{"reason": "ticket 13"}},
	{operation: "resend-order", role: access.Support, params: order, body: fields{"to": "right@example.com"}},
	{operation: "retry-order", role: access.Support, params: order, body: fields{"reason": "again"}},
	{operation: "attribute-refund", role: access.Support, params: map[string]string{"id": "re_1"}, body: fields{"lines": "none"}, before: func(s *shop) {
		s.must(s.stripe.Refund("re_1", "pi_1", stripefake.Fields{"amount": "100"}))
		s.want(http.StatusOK, access.Storefront, "POST", "/v1/orders/cs_1/settle", nil)
	}},
	{operation: "send-again", role: access.Support, params: map[string]string{"id": "900"}, body: fields{"reason": "its endpoint is back"}, before: func(s *shop) {
		_, err := s.db.Exec(s.t.Context(), `INSERT INTO keytill.deliveries (merchant_id, delivery_id, order_id, channel, type, state, send_after, created_at, done_at)
			OVERRIDING SYSTEM VALUE VALUES ('default', 900, 'cs_1', 'hook', 'fulfillment.completed', 'failed', now(), now(), now())`)
		s.must(err)
	}},
	{operation: "get-history", role: access.Viewer, params: order},
	{operation: "list-batches", role: access.Viewer, params: map[string]string{"sku": "game"}},
	{operation: "set-batch-state", role: access.Admin, params: map[string]string{"sku": "game", "batch": "1"}, body: fields{"state": "quarantined", "reason": "leaked"}},
	{operation: "list-findings", role: access.Viewer},
	{operation: "list-audit", role: access.Viewer},
	{operation: "start-sweep", role: access.Admin, body: fields{"hours": 72}},
	{operation: "list-sweeps", role: access.Viewer, before: func(s *shop) {
		_, err := s.db.Exec(s.t.Context(), `INSERT INTO keytill.sweeps (merchant_id, started_at, ended_at, report)
			VALUES ('default', now(), now(), '{"merchant": "default", "repaired": 2, "by_kind": {"refunds": {"repaired": 2}}}')`)
		s.must(err)
	}},
	{operation: "verify-key", role: access.Verify, body: fields{"key": "GAME-B"}},
	{operation: "list-key-changes", role: access.Verify},
}

// document is the OpenAPI document as far as the test reads it.
type document struct {
	OpenAPI    string
	Paths      map[string]map[string]described
	Components struct{ Schemas map[string]fields }
}

type described struct {
	OperationID string
	Summary     string
	Security    []fields
	Responses   map[string]struct {
		Content map[string]struct{ Schema fields }
	}
}

func (s *shop) document() document {
	s.t.Helper()
	doc := read[document](s, s.want(http.StatusOK, "", "GET", "/v1/openapi.json", nil))
	if doc.OpenAPI != "3.1.0" || len(doc.Paths) == 0 {
		s.t.Fatalf("OpenAPI %q with %d paths", doc.OpenAPI, len(doc.Paths))
	}
	return doc
}

func TestEveryOperationOfTheDocumentAnswersAsItSays(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	doc := s.document()
	type route struct {
		method, path string
		described
	}
	routes := make(map[string]route)
	for path, methods := range doc.Paths {
		for method, op := range methods {
			routes[op.OperationID] = route{strings.ToUpper(method), path, op}
			if op.Summary == "" || len(op.Security) == 0 || op.Responses["401"].Content["application/problem+json"].Schema == nil {
				t.Errorf("%s lacks a summary, its security, or what a failure looks like", op.OperationID)
			}
			if !slices.ContainsFunc(examples, func(e example) bool { return e.operation == op.OperationID }) {
				t.Errorf("there is no example of %s", op.OperationID)
			}
		}
	}
	for _, e := range examples {
		r, ok := routes[e.operation]
		if !ok {
			t.Errorf("the document has no operation %s", e.operation)
			continue
		}
		if e.before != nil {
			e.before(s)
		}
		path := r.path
		for name, value := range e.params {
			path = strings.ReplaceAll(path, "{"+name+"}", value)
		}
		if e.query != "" {
			path += "?" + e.query
		}
		a := s.call(e.role, r.method, path, e.body)
		kind := a.header.Get("Content-Type")
		said, ok := r.Responses[fmt.Sprint(a.status)].Content[kind]
		if a.status >= 300 || !ok {
			t.Errorf("%s: %d, %s: %s", e.operation, a.status, kind, a.body)
			continue
		}
		for _, problem := range doc.check(said.Schema, a.body) {
			t.Errorf("%s: %s\n%s", e.operation, problem, a.body)
		}
		if strings.Contains(a.body, "GAME-") != e.holdsKeys {
			t.Errorf("%s: keys in its answer: %s", e.operation, a.body)
		}
		if a.header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s may be cached", e.operation)
		}
	}
	if text := s.log.String(); strings.Contains(text, "GAME-") || strings.Contains(text, "buyer@") || strings.Contains(text, "keytill_admin_") {
		t.Errorf("the log holds a key, an address or a token:\n%s", text)
	}
}

// check holds a JSON text against a schema: types, required and unknown properties, enumerations.
func (d document) check(schema fields, text string) []string {
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		return []string{err.Error()}
	}
	return d.checkValue("answer", schema, value)
}

func (d document) checkValue(at string, schema fields, value any) []string {
	if ref, ok := schema["$ref"].(string); ok {
		schema = d.Components.Schemas[strings.TrimPrefix(ref, "#/components/schemas/")]
		if schema == nil {
			return []string{at + ": no schema " + ref}
		}
	}
	if !isOfType(schema["type"], value) {
		return []string{fmt.Sprintf("%s is %T, the document says %v", at, value, schema["type"])}
	}
	if enum, ok := schema["enum"].([]any); ok && !slices.Contains(enum, value) {
		return []string{fmt.Sprintf("%s is %v, which is none of %v", at, value, enum)}
	}
	switch v := value.(type) {
	case map[string]any:
		return d.checkObject(at, schema, v)
	case []any:
		items, _ := schema["items"].(map[string]any)
		var problems []string
		for i, item := range v {
			problems = append(problems, d.checkValue(fmt.Sprintf("%s[%d]", at, i), items, item)...)
		}
		return problems
	}
	return nil
}

func (d document) checkObject(at string, schema fields, object map[string]any) []string {
	var problems []string
	required, _ := schema["required"].([]any)
	for _, name := range required {
		if _, ok := object[name.(string)]; !ok {
			problems = append(problems, fmt.Sprintf("%s lacks %s", at, name))
		}
	}
	properties, _ := schema["properties"].(map[string]any)
	rest, open := schema["additionalProperties"].(map[string]any)
	for name, value := range object {
		property, known := properties[name].(map[string]any)
		switch {
		case known:
			problems = append(problems, d.checkValue(at+"."+name, property, value)...)
		case open:
			problems = append(problems, d.checkValue(at+"."+name, rest, value)...)
		case schema["additionalProperties"] == false:
			problems = append(problems, fmt.Sprintf("%s has %s, which the document does not know", at, name))
		}
	}
	return problems
}

func isOfType(want, value any) bool {
	switch w := want.(type) {
	case nil:
		return true
	case []any:
		return slices.ContainsFunc(w, func(one any) bool { return isOfType(one, value) })
	}
	switch value := value.(type) {
	case nil:
		return want == "null"
	case bool:
		return want == "boolean"
	case string:
		return want == "string"
	case float64:
		return want == "number" || want == "integer" && value == float64(int64(value))
	case []any:
		return want == "array"
	default:
		return want == "object"
	}
}
