package stripefake

import (
	"maps"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// show is the whole object as the API shows it; the map is the caller's, what
// is in it is not.
func (s *Server) show(o *object) map[string]any {
	m := make(map[string]any, len(o.kind.template)+len(o.own))
	maps.Copy(m, o.kind.template)
	maps.Copy(m, o.own)
	switch o.kind {
	case itemKind:
		if p := s.store.in(o.realm, o.str("price")); p != nil {
			m["price"] = s.show(p)
		}
	case eventKind:
		data := o.data
		if about, ok := data.(*object); ok {
			data = s.show(about)
		}
		m["data"] = map[string]any{"object": data}
	}
	return m
}

func listOf(url string, data []any, more bool) map[string]any {
	return map[string]any{"object": "list", "url": url, "data": data, "has_more": more}
}

// list answers with a page of objects, newest first.
func (c *call) list(k *kind) (map[string]any, *apiError) {
	objects, keep, e := c.filter(k)
	if e != nil {
		return nil, e
	}
	// The store has the oldest first. All positions below are in that order;
	// the page is walked from the newest.
	cursor := func(id string) (next, prev int, ok bool) {
		o := c.s.store.in(c.realm, id)
		if o == nil || o.kind != k {
			return 0, 0, false
		}
		i := sort.Search(len(objects), func(i int) bool { return older(objects[i], o) >= 0 })
		next, prev = len(objects)-i, len(objects)-1-i
		if i < len(objects) && objects[i] == o { // else it is filtered out, between the two
			prev--
		}
		return next, prev, true
	}
	page, more, e := paginate(c, k, len(objects), cursor, func(i int) *object {
		if o := objects[len(objects)-1-i]; keep(o) {
			return o
		}
		return nil
	})
	if e != nil {
		return nil, e
	}
	return listOf(k.url, c.s.showAll(page), more), nil
}

func (s *Server) showAll(page []*object) []any {
	data := make([]any, len(page))
	for i, o := range page {
		data[i] = s.show(o)
	}
	return data
}

// lineItems answers with a page of a session's lines, in their order.
func (c *call) lineItems() (map[string]any, *apiError) {
	o := c.s.store.in(c.realm, c.id)
	if o == nil || o.kind != sessionKind {
		return nil, c.missing(sessionKind, c.id, "session", true)
	}
	cursor := func(id string) (next, prev int, ok bool) {
		li := c.s.store.in(c.realm, id)
		if li == nil || li.of != o {
			return 0, 0, false
		}
		return li.line + 1, li.line - 1, true
	}
	page, more, e := paginate(c, itemKind, len(o.lines), cursor, func(i int) *object { return o.lines[i] })
	if e != nil {
		return nil, e
	}
	return listOf(linesURL(c.id), c.s.showAll(page), more), nil
}

func linesURL(session string) string { return sessionKind.url + "/" + session + "/line_items" }

// paginate walks n places in the order of the answer. The cursor returns the
// places next to the object of an id, place returns nil for what the filters
// leave out.
func paginate(c *call, k *kind, n int, cursor func(id string) (next, prev int, ok bool), place func(int) *object) (page []*object, more bool, e *apiError) {
	limit, e := c.limit()
	if e != nil {
		return nil, false, e
	}
	after, before := c.params.Get("starting_after"), c.params.Get("ending_before")
	if after != "" && before != "" {
		return nil, false, invalid("ending_before", "", "You cannot parameterize both `starting_after` and `ending_before`.")
	}
	if c.fault.RepeatPage {
		after, before = "", ""
	}
	step, from := 1, 0
	if id := after + before; id != "" {
		next, prev, ok := cursor(id)
		if !ok {
			param := "starting_after"
			if before != "" {
				param = "ending_before"
			}
			return nil, false, c.missing(k, id, param, false)
		}
		if from = next; before != "" {
			step, from = -1, prev
		}
	}
	for i := from; i >= 0 && i < n; i += step {
		o := place(i)
		if o == nil {
			continue
		}
		if len(page) == limit {
			more = true
			break
		}
		page = append(page, o)
	}
	if step < 0 {
		slices.Reverse(page)
	}
	return page, more || c.fault.LieHasMore, nil
}

func (c *call) limit() (int, *apiError) {
	if !c.params.Has("limit") {
		return 10, nil
	}
	text := c.params.Get("limit")
	n, err := strconv.Atoi(text)
	switch {
	case err != nil:
		return 0, invalid("limit", "parameter_invalid_integer", "Invalid integer: %s", text)
	case n < 1:
		return 0, invalid("limit", "parameter_invalid_integer", "This value must be greater than or equal to 1.")
	case n > 100:
		return 0, invalid("limit", "parameter_invalid_integer", "This value must be less than or equal to 100 (it currently is '%d').", n)
	}
	return n, nil
}

// filter narrows the objects of a kind as far as an index goes, and returns
// what is left to test on each.
func (c *call) filter(k *kind) ([]*object, func(*object) bool, *apiError) {
	objects := c.s.store.byKind[listKey{k, c.realm}]
	var tests []func(*object) bool
	for _, field := range k.index {
		id := c.params.Get(field)
		if !c.params.Has(field) {
			continue
		}
		if ref := kindsByName[k.expand[field]]; ref != nil {
			if o := c.s.store.in(c.realm, id); o == nil || o.kind != ref {
				return nil, nil, c.missing(ref, id, field, false)
			}
		}
		if found := c.s.store.with(k, field, id); len(found) < len(objects) {
			objects = found
		}
		tests = append(tests, func(o *object) bool { return o.str(field) == id && o.realm == c.realm })
	}
	objects, e := c.filterCreated(objects)
	if e != nil {
		return nil, nil, e
	}
	more, e := c.filterValues(k)
	if e != nil {
		return nil, nil, e
	}
	tests = append(tests, more...)
	if k == eventKind {
		first := sort.Search(len(objects), func(i int) bool { return !c.tooOld(objects[i]) })
		objects = objects[first:]
	}
	return objects, func(o *object) bool {
		for _, ok := range tests {
			if !ok(o) {
				return false
			}
		}
		return true
	}, nil
}

// filterCreated cuts the objects to those of the created parameters.
func (c *call) filterCreated(objects []*object) ([]*object, *apiError) {
	for name, vs := range c.params {
		op, ok := strings.CutPrefix(name, "created")
		if !ok {
			continue
		}
		t, err := strconv.ParseInt(vs[0], 10, 64)
		if err != nil {
			return nil, invalid(name, "parameter_invalid_integer", "Invalid integer: %s", vs[0])
		}
		from := func(t int64) int {
			return sort.Search(len(objects), func(i int) bool { return objects[i].created() >= t })
		}
		switch op {
		case "":
			objects = objects[from(t):from(t+1)]
		case "[gte]":
			objects = objects[from(t):]
		case "[gt]":
			objects = objects[from(t+1):]
		case "[lte]":
			objects = objects[:from(t+1)]
		case "[lt]":
			objects = objects[:from(t)]
		default:
			return nil, invalid(name, "parameter_unknown", "Received unknown parameter: %s", name)
		}
	}
	return objects, nil
}

var bracketed = regexp.MustCompile(`^[a-z_]+(\[\d*\])?$`)

// filterValues makes tests of the parameters that are not indexed.
func (c *call) filterValues(k *kind) (tests []func(*object) bool, e *apiError) {
	equal := func(field string, v any) {
		tests = append(tests, func(o *object) bool { return o.get(field) == v })
	}
	for name, vs := range c.params {
		base, sub, _ := strings.Cut(name, "[")
		switch base {
		case "status":
			if !slices.Contains([]string{"open", "complete", "expired"}, vs[0]) {
				return nil, invalid("status", "", "Invalid status: must be one of open, complete, or expired")
			}
			equal("status", vs[0])
		case "type", "url", "currency":
			equal(base, vs[0])
		case "active", "shippable":
			equal(base, vs[0] == "true")
		case "customer_details":
			if sub != "email]" {
				return nil, invalid(name, "parameter_unknown", "Received unknown parameter: %s", name)
			}
			tests = append(tests, func(o *object) bool {
				d, _ := o.get("customer_details").(map[string]any)
				return d["email"] == vs[0]
			})
		case "delivery_success":
			tests = append(tests, func(o *object) bool { return (o.num("pending_webhooks") == 0) == (vs[0] == "true") })
		case "types", "ids", "lookup_keys":
			if !bracketed.MatchString(name) {
				return nil, invalid(name, "parameter_unknown", "Received unknown parameter: %s", name)
			}
		}
	}
	for param, field := range map[string]string{"types": "type", "ids": "id", "lookup_keys": "lookup_key"} {
		if wanted := c.values(param); wanted != nil {
			tests = append(tests, func(o *object) bool { return slices.Contains(wanted, o.str(field)) })
		}
	}
	if k == eventKind && c.params.Has("type") && c.values("types") != nil {
		return nil, invalid("types", "", "You may pass either `type` or `types`, but not both.")
	}
	return tests, nil
}

// values is a list parameter, written name[] or name[0], name[1] …
func (c *call) values(param string) []string {
	var names []string
	for name := range c.params {
		if base, _, ok := strings.Cut(name, "["); ok && base == param {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var vs []string
	for _, name := range names {
		vs = append(vs, c.params[name]...)
	}
	return vs
}
