package integration_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keytill/keytill/adapter"
)

// A schema is a JSON Schema of those words that keytill's own uses. One with another word does not load, so that nothing
// is passed over.
type schema struct {
	Schema, Title, Description, Ref string
	Type, Format                    string
	Enum, Required                  []string
	Properties                      map[string]schema
	Items                           *schema
	Defs                            map[string]schema
	Additional                      *bool
}

// UnmarshalJSON reads a schema by the names of the standard.
func (s *schema) UnmarshalJSON(text []byte) error {
	var words map[string]json.RawMessage
	if err := json.Unmarshal(text, &words); err != nil {
		return err
	}
	known := map[string]any{"$schema": &s.Schema, "title": &s.Title, "description": &s.Description, "$ref": &s.Ref, "type": &s.Type,
		"format": &s.Format, "enum": &s.Enum, "required": &s.Required, "properties": &s.Properties, "items": &s.Items,
		"$defs": &s.Defs, "additionalProperties": &s.Additional}
	for word, value := range words {
		if known[word] == nil {
			return fmt.Errorf("the schema has the word %q, which this check does not know", word)
		}
		if err := json.Unmarshal(value, known[word]); err != nil {
			return fmt.Errorf("%s: %w", word, err)
		}
	}
	return nil
}

func readSchema(text []byte) schema {
	var s schema
	if err := json.Unmarshal(text, &s); err != nil {
		panic(err) // the file is keytill's own
	}
	return s
}

// check holds a document against the schema.
func (s schema) check(text []byte) error {
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		return err
	}
	return s.holds(s, value, "")
}

func (s schema) holds(root schema, value any, at string) error {
	if name, ok := strings.CutPrefix(s.Ref, "#/$defs/"); ok {
		def, ok := root.Defs[name]
		if !ok {
			return fmt.Errorf("%s: the schema has no %s", at, s.Ref)
		}
		return def.holds(root, value, at)
	}
	switch value := value.(type) {
	case map[string]any:
		return s.holdsObject(root, value, at)
	case []any:
		for i, item := range value {
			if err := s.Items.holds(root, item, fmt.Sprintf("%s[%d]", at, i)); err != nil {
				return err
			}
		}
		return s.is("array", at)
	case string:
		if len(s.Enum) > 0 && !slices.Contains(s.Enum, value) {
			return fmt.Errorf("%s: %q is none of %q", at, value, s.Enum)
		}
		if _, err := time.Parse(time.RFC3339, value); s.Format == "date-time" && err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
		return s.is("string", at)
	case float64:
		return s.is("integer", at)
	default:
		return fmt.Errorf("%s: %v is of no type that the schema has", at, value)
	}
}

func (s schema) holdsObject(root schema, value map[string]any, at string) error {
	for _, name := range s.Required {
		if _, ok := value[name]; !ok {
			return fmt.Errorf("%s: %s is missing", at, name)
		}
	}
	for name, field := range value {
		property, ok := s.Properties[name]
		if !ok {
			return fmt.Errorf("%s: %s is not in the schema", at, name)
		}
		if err := property.holds(root, field, at+"."+name); err != nil {
			return err
		}
	}
	return s.is("object", at)
}

func (s schema) is(kind, at string) error {
	if s.Type != kind {
		return fmt.Errorf("%s: it is of type %s, and should be %s", at, kind, s.Type)
	}
	return nil
}

func TestTheSchemaOfHooksRefuses(t *testing.T) {
	t.Parallel()
	s := readSchema(adapter.NoticeSchema())
	const good = `{"type":"stock.low","timestamp":"2026-01-02T15:04:05Z","data":{"id":"msg_1","type":"stock.low","at":"2026-01-02T15:04:05Z","stock":{"sku":"a","available":3}}}`
	if err := s.check([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for _, change := range [][2]string{{`"stock.low","timestamp"`, `"stock.gone","timestamp"`}, {`"available":3`, `"available":"3"`},
		{`"sku":"a",`, ``}, {`"id":"msg_1"`, `"id":"msg_1","email":"a@example.com"`}, {`2026-01-02T15:04:05Z","data"`, `yesterday","data"`}} {
		if err := s.check([]byte(strings.Replace(good, change[0], change[1], 1))); err == nil {
			t.Errorf("%s instead of %s is taken", change[1], change[0])
		}
	}
}
