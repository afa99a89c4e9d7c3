package stripefake

import (
	"strings"
)

// expand turns the ids that the expand[] parameters name into objects, in an
// answer that is this call's own.
func (c *call) expand(v map[string]any) *apiError {
	for _, path := range c.values("expand") {
		steps := strings.Split(path, ".")
		if len(steps) > 4 {
			return invalid("expand", "", "You cannot expand more than 4 levels of a property (%s).", path)
		}
		if !expandable(v, c, steps) {
			e := invalid("expand", "", "This property cannot be expanded (%s).", path)
			if v["object"] == "list" && expandable(v, c, append([]string{"data"}, steps...)) {
				e.msg += " You may want to try expanding 'data." + path + "' instead."
			}
			return e
		}
		c.inflate(v, steps)
	}
	return nil
}

// expandable checks a path against what the kinds have, not against this
// answer: an empty list refuses a wrong path too.
func expandable(v map[string]any, c *call, steps []string) bool {
	name, _ := v["object"].(string)
	if name == "list" {
		if steps[0] != "data" || len(steps) == 1 {
			return false
		}
		return canExpand(kindOfURL(v["url"].(string)), steps[1:])
	}
	return canExpand(kindsByName[name], steps)
}

func kindOfURL(url string) *kind {
	for _, k := range kindsByName {
		if k.url != "" && k.url == url {
			return k
		}
	}
	return itemKind // the one list whose address holds an id
}

func canExpand(k *kind, steps []string) bool {
	if k == nil {
		return true // of a kind that is not kept here, nothing is known
	}
	to, ok := k.expand[steps[0]]
	if !ok {
		return false
	}
	steps = steps[1:]
	if element, isList := strings.CutPrefix(to, "list:"); isList && len(steps) > 0 {
		if steps[0] != "data" {
			return false
		}
		to, steps = element, steps[1:]
	}
	if len(steps) == 0 {
		return true
	}
	return canExpand(kindsByName[to], steps)
}

// inflate expands along a path that was found good.
func (c *call) inflate(v map[string]any, steps []string) {
	if v["object"] == "list" {
		data, _ := v["data"].([]any)
		for _, e := range data {
			if m, ok := e.(map[string]any); ok && len(steps) > 1 {
				c.inflate(m, steps[1:])
			}
		}
		return
	}
	name, _ := v["object"].(string)
	k := kindsByName[name]
	if k == nil {
		return
	}
	field := steps[0]
	switch inner := v[field].(type) {
	case string:
		v[field] = c.reference(k.expand[field], inner)
	case nil:
		if id, _ := v["id"].(string); strings.HasPrefix(k.expand[field], "list:") {
			v[field] = c.within(k.expand[field], id)
		}
	}
	if m, ok := v[field].(map[string]any); ok && len(steps) > 1 {
		c.inflate(m, steps[1:])
	}
}

// reference is the object with the id. Of a kind that is not kept here it is
// no more than its id.
func (c *call) reference(kind, id string) any {
	if kind == "account" {
		if o := c.s.store.byID[id]; o != nil {
			return c.s.show(o)
		}
	}
	if o := c.s.store.in(c.realm, id); o != nil {
		return c.s.show(o)
	}
	return map[string]any{"id": id, "object": kind}
}

// within is the first page of a list that is part of an object.
func (c *call) within(list, id string) map[string]any {
	var all []*object
	url := linesURL(id)
	switch list {
	case "list:item":
		all = c.s.store.in(c.realm, id).lines
	case "list:refund":
		url = chargeKind.url + "/" + id + "/refunds"
		for _, o := range c.s.store.with(refundKind, "charge", id) {
			all = append([]*object{o}, all...)
		}
	}
	first := all[:min(len(all), 10)]
	return listOf(url, c.s.showAll(first), len(all) > len(first))
}
