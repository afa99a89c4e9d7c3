package api_test

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// rules walks a document by the rules of OpenAPI 3.1.0 (https://spec.openapis.org/oas/v3.1.0) for the objects that
// keytill's has, and by those of JSON Schema 2020-12 for its schemas. A field that is of no such object is a fault, too.
type rules struct {
	whole  fields
	faults []string
	ids    map[string]bool
}

func (r *rules) fault(at, format string, args ...any) {
	r.faults = append(r.faults, at+": "+fmt.Sprintf(format, args...))
}

// object checks which fields an object has: all of those that it needs, and no other than it may have.
func (r *rules) object(at string, value any, needs, may string) fields {
	object, ok := value.(fields)
	if !ok {
		r.fault(at, "is %T and no object", value)
		return fields{}
	}
	for _, name := range strings.Fields(needs) {
		if _, ok := object[name]; !ok {
			r.fault(at, "lacks %s", name)
		}
	}
	for name := range object {
		if !slices.Contains(strings.Fields(needs+" "+may), name) && !strings.HasPrefix(name, "x-") {
			r.fault(at, "has %s, which no such object has", name)
		}
	}
	return object
}

func (r *rules) document() {
	d := r.object("#", r.whole, "openapi info paths", "jsonSchemaDialect servers webhooks components security tags externalDocs")
	if version, _ := d["openapi"].(string); !regexp.MustCompile(`^3\.1\.\d+$`).MatchString(version) {
		r.fault("#/openapi", "is %q", version)
	}
	r.object("#/info", d["info"], "title version", "summary description termsOfService contact license")
	paths, _ := d["paths"].(fields)
	templates := map[string]string{}
	for path, item := range paths {
		at := "#/paths/" + path
		if !strings.HasPrefix(path, "/") {
			r.fault(at, "does not begin with /")
		}
		same := regexp.MustCompile(`\{[^}]*\}`).ReplaceAllString(path, "{}")
		if other, twice := templates[same]; twice {
			r.fault(at, "is the same as %s", other)
		}
		templates[same] = path
		for method, op := range r.object(at, item, "", "get put post delete options head patch trace summary description servers parameters") {
			r.operation(at+"/"+method, path, op)
		}
	}
	components := r.object("#/components", d["components"], "", "schemas responses parameters examples requestBodies headers securitySchemes links callbacks pathItems")
	for kind, all := range components {
		named, _ := all.(fields)
		for name, value := range named {
			if !regexp.MustCompile(`^[a-zA-Z0-9._-]+$`).MatchString(name) {
				r.fault("#/components/"+kind, "has the name %q", name)
			}
			switch at := "#/components/" + kind + "/" + name; kind {
			case "schemas":
				r.schema(at, value)
			case "securitySchemes":
				r.object(at, value, "type scheme", "description bearerFormat")
			default:
				r.fault(at, "is of a kind that the test does not know")
			}
		}
	}
}

func (r *rules) operation(at, path string, value any) {
	op := r.object(at, value, "operationId responses", "tags summary description externalDocs parameters requestBody callbacks deprecated security servers")
	id, _ := op["operationId"].(string)
	if id == "" || r.ids[id] {
		r.fault(at, "the operationId %q is none, or there twice", id)
	}
	r.ids[id] = true
	inPath, seen := []string{}, map[string]bool{}
	parameters, _ := op["parameters"].([]any)
	for i, value := range parameters {
		at := fmt.Sprintf("%s/parameters/%d", at, i)
		p := r.object(at, value, "name in schema", "description required deprecated allowEmptyValue style explode allowReserved example examples")
		name, where := fmt.Sprint(p["name"]), fmt.Sprint(p["in"])
		if !slices.Contains([]string{"query", "header", "path", "cookie"}, where) || seen[where+" "+name] {
			r.fault(at, "in %s, or there twice", where)
		}
		seen[where+" "+name] = true
		if where == "path" {
			inPath = append(inPath, "{"+name+"}")
			if p["required"] != true {
				r.fault(at, "a parameter of a path is required")
			}
		}
		r.schema(at+"/schema", p["schema"])
	}
	inTemplate := regexp.MustCompile(`\{[^}]*\}`).FindAllString(path, -1)
	slices.Sort(inPath)
	slices.Sort(inTemplate)
	if !slices.Equal(inPath, inTemplate) {
		r.fault(at, "the path has %v, its parameters are %v", inTemplate, inPath)
	}
	if body, ok := op["requestBody"]; ok {
		r.content(at+"/requestBody", r.object(at+"/requestBody", body, "content", "description required")["content"])
	}
	responses, _ := op["responses"].(fields)
	if len(responses) == 0 {
		r.fault(at, "has no response")
	}
	for status, value := range responses {
		at := at + "/responses/" + status
		n, err := strconv.Atoi(status)
		if status != "default" && (err != nil || http.StatusText(n) == "") {
			r.fault(at, "is no status")
		}
		resp := r.object(at, value, "description", "headers content links")
		if resp["content"] != nil {
			r.content(at, resp["content"])
		}
	}
	schemes, _ := r.whole["components"].(fields)["securitySchemes"].(fields)
	security, _ := op["security"].([]any)
	for _, one := range security {
		for name := range one.(fields) {
			if schemes[name] == nil {
				r.fault(at, "the security scheme %s is not there", name)
			}
		}
	}
}

func (r *rules) content(at string, value any) {
	types, _ := value.(fields)
	if len(types) == 0 {
		r.fault(at, "has no media type")
	}
	for kind, media := range types {
		if _, _, err := mime.ParseMediaType(kind); err != nil {
			r.fault(at, "%q: %v", kind, err)
		}
		r.schema(at+"/"+kind, r.object(at+"/"+kind, media, "", "schema example examples encoding")["schema"])
	}
}

var keywords = strings.Join([]string{"$ref type enum const format title description default examples example deprecated readOnly writeOnly",
	"properties required additionalProperties patternProperties propertyNames minProperties maxProperties items minItems maxItems uniqueItems",
	"minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minLength maxLength pattern contentEncoding contentMediaType oneOf anyOf allOf not"}, " ")

func (r *rules) schema(at string, value any) {
	if value == nil || value == true || value == false {
		return
	}
	s := r.object(at, value, "", keywords)
	if ref, ok := s["$ref"].(string); ok {
		named, inside := strings.CutPrefix(ref, "#/components/schemas/")
		schemas, _ := r.whole["components"].(fields)["schemas"].(fields)
		if !inside || schemas[named] == nil {
			r.fault(at, "%s leads nowhere", ref)
		}
	}
	types, many := s["type"].([]any)
	if one, ok := s["type"].(string); ok {
		types, many = []any{one}, true
	}
	if s["type"] != nil && !many {
		r.fault(at, "the type is %v", s["type"])
	}
	for _, one := range types {
		if !slices.Contains([]any{"null", "boolean", "object", "array", "number", "integer", "string"}, one) {
			r.fault(at, "there is no type %v", one)
		}
	}
	properties, _ := s["properties"].(fields)
	required, _ := s["required"].([]any)
	for _, name := range required {
		if properties[fmt.Sprint(name)] == nil {
			r.fault(at, "requires %v, which it does not describe", name)
		}
	}
	if enum, ok := s["enum"].([]any); ok && (len(enum) == 0 || s["default"] != nil && !slices.Contains(enum, s["default"])) {
		r.fault(at, "the default %v is none of %v", s["default"], enum)
	}
	if pattern, ok := s["pattern"].(string); ok {
		if _, err := regexp.Compile(pattern); err != nil {
			r.fault(at, "%v", err)
		}
	}
	for _, bounds := range [][2]string{{"minimum", "maximum"}, {"minLength", "maxLength"}, {"minItems", "maxItems"}} {
		least, hasLeast := s[bounds[0]].(float64)
		most, hasMost := s[bounds[1]].(float64)
		if hasLeast && hasMost && least > most {
			r.fault(at, "from %v to %v is nothing", least, most)
		}
	}
	for name, property := range properties {
		r.schema(at+"/properties/"+name, property)
	}
	for _, name := range []string{"items", "additionalProperties", "propertyNames", "not"} {
		r.schema(at+"/"+name, s[name])
	}
	for _, name := range []string{"oneOf", "anyOf", "allOf"} {
		some, _ := s[name].([]any)
		for i, one := range some {
			r.schema(fmt.Sprintf("%s/%s/%d", at, name, i), one)
		}
	}
}

func faultsOf(t *testing.T, text string) []string {
	t.Helper()
	r := &rules{ids: map[string]bool{}}
	if err := json.Unmarshal([]byte(text), &r.whole); err != nil {
		t.Fatal(err)
	}
	r.document()
	return r.faults
}

func TestTheDocumentIsAsOpenAPIWantsIt(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	text := s.want(http.StatusOK, "", "GET", "/v1/openapi.json", nil).body
	for _, fault := range faultsOf(t, text) {
		t.Error(fault)
	}
	// The rules notice what is wrong.
	for name, change := range map[string][2]string{
		"an unknown version": {`"openapi":"3.1.0"`, `"openapi":"3.2"`}, "a reference that leads nowhere": {`#/components/schemas/ErrorModel`, `#/components/schemas/Nothing`},
		"an operation twice": {`"operationId":"list-audit"`, `"operationId":"list-orders"`}, "another parameter": {`/v1/pools/{sku}/batches`, `/v1/pools/{pool}/batches`},
		"a type that is none": {`"type":"integer"`, `"type":"int"`}, "a field that is none": {`"summary":`, `"sumary":`}, "no such scheme": {`"security":[{"token"`, `"security":[{"key"`},
		"a path parameter that may be left out": {`"required":true,"schema"`, `"required":false,"schema"`},
	} {
		broken := strings.ReplaceAll(text, change[0], change[1])
		if broken == text {
			t.Errorf("%s: the document has no %s", name, change[0])
		} else if len(faultsOf(t, broken)) == 0 {
			t.Errorf("%s is not noticed", name)
		}
	}
}
