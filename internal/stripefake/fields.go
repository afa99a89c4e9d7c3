package stripefake

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Fields sets fields of an object, by their dotted path: "status",
// "metadata.note", "customer_details.email". Values are text: a whole number
// where the field holds one, true, false and null where it holds no string,
// comma-separated where it holds a list. An empty value is null, and in
// metadata takes the key away, where everything else is a string as it stands.
//
// Two names stand for where the object is and not for a field of it: "account"
// for the connected account, "livemode" for the mode.
type Fields map[string]string

// take removes a name and returns its value.
func (f Fields) take(name string) (string, bool) {
	v, ok := f[name]
	delete(f, name)
	return v, ok
}

// under removes the names that begin with the prefix and returns them without.
func (f Fields) under(prefix string) Fields {
	sub := Fields{}
	for k, v := range f {
		if rest, ok := strings.CutPrefix(k, prefix); ok {
			sub[rest] = v
			delete(f, k)
		}
	}
	return sub
}

// change sets the fields of an object of the store: all of them, or on an error
// none.
func (st *store) change(o *object, f Fields) error {
	c := o.frozen()
	if err := c.apply(f); err != nil {
		return err
	}
	for path := range f {
		field, _, _ := strings.Cut(path, ".")
		st.put(o, field, c.own[field])
	}
	return nil
}

// apply sets the fields of an object that is in no list yet.
func (o *object) apply(f Fields) error {
	for _, path := range slices.Sorted(maps.Keys(f)) {
		steps := strings.Split(path, ".")
		switch steps[0] {
		case "id", "object", "livemode", "account":
			return fmt.Errorf("%s: %s cannot be changed", o.id(), steps[0])
		}
		v, err := value(o, steps, f[path])
		if err != nil {
			return fmt.Errorf("%s: %s=%s: %w", o.id(), path, f[path], err)
		}
		if len(steps) > 1 {
			if v, err = graft(o.get(steps[0]), steps[1:], v); err != nil {
				return fmt.Errorf("%s: %s: %w", o.id(), path, err)
			}
		}
		o.own[steps[0]] = v
	}
	return nil
}

// gone is the value of a metadata key that is taken away.
type gone struct{}

// value reads text as the field at that path wants it.
func value(o *object, steps []string, text string) (any, error) {
	if steps[0] == "metadata" && len(steps) > 1 {
		if text == "" {
			return gone{}, nil
		}
		return text, nil
	}
	like := at(o.kind.template, steps)
	if like == nil {
		like = at(o.own, steps)
	}
	last := steps[len(steps)-1]
	switch like.(type) {
	case map[string]any:
		if text != "" && text != "null" {
			return nil, fmt.Errorf("is an object: set what is inside it")
		}
		return nil, nil
	case []any:
		if text == "" {
			return []any{}, nil
		}
		var list []any
		for _, e := range strings.Split(text, ",") {
			list = append(list, e)
		}
		return list, nil
	case bool:
		return strconv.ParseBool(text)
	case int64:
		if text == "" || text == "null" {
			return nil, nil
		}
		return strconv.ParseInt(text, 10, 64)
	}
	switch {
	case text == "" || text == "null":
		return nil, nil
	case text == "true":
		return true, nil
	case text == "false":
		return false, nil
	case strings.HasPrefix(last, "amount") || strings.HasSuffix(last, "_at") || last == "due_by" || last == "quantity":
		return strconv.ParseInt(text, 10, 64)
	}
	return text, nil
}

func at(m map[string]any, steps []string) any {
	v, ok := m[steps[0]]
	if !ok || len(steps) == 1 {
		return v
	}
	inner, _ := v.(map[string]any)
	return at(inner, steps[1:])
}

// graft is a copy of the object at the path with one value in it replaced.
func graft(into any, steps []string, v any) (any, error) {
	old, ok := into.(map[string]any)
	if !ok && into != nil {
		return nil, fmt.Errorf("there is no object to hold %q", steps[0])
	}
	m := make(map[string]any, len(old)+1)
	maps.Copy(m, old)
	if len(steps) > 1 {
		inner, err := graft(m[steps[0]], steps[1:], v)
		if err != nil {
			return nil, err
		}
		v = inner
	}
	if _, ok := v.(gone); ok {
		delete(m, steps[0])
		return m, nil
	}
	m[steps[0]] = v
	return m, nil
}
