package webhooks

import (
	"encoding/json"
	"slices"
)

// check tells whether a body is JSON. encoding/json gives up at a depth of 10,000, and so does this.
func check(body []byte) error {
	if json.Valid(body) {
		return nil
	}
	var all json.RawMessage
	return json.Unmarshal(body, &all) // which says what is wrong, and where
}

// members finds the members of these names in a JSON object; nil for any other value. raw is JSON, or empty.
//
// It walks over the object once and makes nothing of what nobody asked for: an event is some thousand bytes of which a
// handful of strings is kept, and a map of all of it costs more than everything else that happens to an event here.
func members(raw []byte, names ...string) map[string]json.RawMessage {
	i := space(raw, 0)
	if i == len(raw) || raw[i] != '{' {
		return nil
	}
	found := make(map[string]json.RawMessage, len(names))
	i = space(raw, i+1)
	for raw[i] != '}' {
		end := value(raw, i)
		name := raw[i:end]
		i = space(raw, space(raw, end)+1) // over the colon
		end = value(raw, i)
		if wanted := slices.IndexFunc(names, func(n string) bool { return is(name, n) }); wanted >= 0 {
			found[names[wanted]] = raw[i:end]
		}
		if i = space(raw, end); raw[i] == ',' {
			i = space(raw, i+1)
		}
	}
	return found
}

// is tells whether a JSON string says name.
func is(quoted []byte, name string) bool {
	if slices.Contains(quoted, '\\') {
		s, err := unquote(quoted)
		return err == nil && s == name
	}
	return string(quoted[1:len(quoted)-1]) == name
}

// unquote reads a JSON string. What is not UTF-8 in it, and half a surrogate pair, become U+FFFD.
func unquote(quoted []byte) (s string, err error) {
	plain := func(c byte) bool { return c >= ' ' && c < 0x7f && c != '\\' }
	for _, c := range quoted {
		if !plain(c) {
			err = json.Unmarshal(quoted, &s)
			return s, err
		}
	}
	return string(quoted[1 : len(quoted)-1]), nil
}

// space is the index of what follows the white space at i.
func space(raw []byte, i int) int {
	for i < len(raw) && (raw[i] == ' ' || raw[i] == '\n' || raw[i] == '\t' || raw[i] == '\r') {
		i++
	}
	return i
}

// value is the index behind the value that begins at i.
func value(raw []byte, i int) int {
	switch raw[i] {
	case '"':
		return text(raw, i)
	case '{', '[':
	default: // a number, true, false, null
		for i < len(raw) && raw[i] != ',' && raw[i] != '}' && raw[i] != ']' && raw[i] > ' ' {
			i++
		}
		return i
	}
	for depth := 0; ; {
		switch raw[i] {
		case '"':
			i = text(raw, i)
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		if i++; depth == 0 {
			return i
		}
	}
}

// text is the index behind the string that begins at i.
func text(raw []byte, i int) int {
	for i++; raw[i] != '"'; i++ {
		if raw[i] == '\\' {
			i++
		}
	}
	return i + 1
}
