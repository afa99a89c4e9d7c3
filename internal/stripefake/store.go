package stripefake

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sort"
)

// A realm is one account in one mode. Nothing is visible from one to another.
type realm struct {
	account string // empty for the platform's own
	live    bool
}

// An object is one Stripe object. Values inside own are never changed in
// place, only replaced, so that a shallow copy taken under the lock can be
// written out without it.
type object struct {
	kind  *kind
	realm realm
	own   map[string]any // what differs from the kind's template
	seq   int64          // order of making, decides between equal created times

	lines []*object // of a session, in its order
	line  int       // of a line: its place in them
	of    *object   // of a line: its session
	data  any       // of an event: what it is about, an *object as it was or raw JSON
	next  *object   // the object of the same id in another realm
}

func (o *object) get(field string) any {
	if v, ok := o.own[field]; ok {
		return v
	}
	return o.kind.template[field]
}

func (o *object) str(field string) string { s, _ := o.get(field).(string); return s }
func (o *object) num(field string) int64  { n, _ := o.get(field).(int64); return n }
func (o *object) is(field string) bool    { b, _ := o.get(field).(bool); return b }
func (o *object) id() string              { return o.str("id") }
func (o *object) created() int64          { return o.num("created") }

// frozen is the object as it is now, untouched by what comes later.
func (o *object) frozen() *object {
	c := *o
	c.own = maps.Clone(o.own)
	return &c
}

// older orders objects by created, then by making.
func older(a, b *object) int {
	return cmp.Or(cmp.Compare(a.created(), b.created()), cmp.Compare(a.seq, b.seq))
}

type listKey struct {
	kind  *kind
	realm realm
}

type indexKey struct {
	kind  *kind
	field string
	value string
}

// A store keeps every object by id, by kind and by the fields that lists are
// filtered on; the slices are ordered oldest first.
type store struct {
	byID    map[string]*object
	byKind  map[listKey][]*object
	byField map[indexKey][]*object
	seq     int64
}

func newStore() *store {
	return &store{
		byID:    map[string]*object{},
		byKind:  map[listKey][]*object{},
		byField: map[indexKey][]*object{},
	}
}

// add takes a new object in. Its own fields hold at least the id.
func (st *store) add(o *object) error {
	id := o.id()
	for other := st.byID[id]; other != nil; other = other.next {
		if other.realm == o.realm || !o.kind.local || other.kind != o.kind {
			return fmt.Errorf("%s exists already", id)
		}
	}
	st.seq++
	o.seq = st.seq
	o.next = st.byID[id]
	st.byID[id] = o
	st.enlist(o)
	return nil
}

// in finds an object in a realm.
func (st *store) in(r realm, id string) *object {
	for o := st.byID[id]; o != nil; o = o.next {
		if o.realm == r {
			return o
		}
	}
	return nil
}

// find finds an object wherever it is.
func (st *store) find(id string) (*object, error) {
	o := st.byID[id]
	if o == nil {
		return nil, fmt.Errorf("no object %q", id)
	}
	if o.next != nil {
		return nil, fmt.Errorf("%s exists in several accounts or modes: say account= or livemode=", id)
	}
	return o, nil
}

// findKind finds an object wherever it is, and fails if it is of another kind.
func (st *store) findKind(k *kind, id string) (*object, error) {
	o, err := st.find(id)
	if err != nil {
		return nil, err
	}
	if o.kind != k {
		return nil, fmt.Errorf("%s is a %s, not a %s", id, o.kind.name, k.name)
	}
	return o, nil
}

// put sets a field and keeps the lists right.
func (st *store) put(o *object, field string, v any) {
	if field != "created" && !slices.Contains(o.kind.index, field) {
		o.own[field] = v
		return
	}
	st.delist(o)
	o.own[field] = v
	st.enlist(o)
}

// with lists the objects of a kind whose field holds the id.
func (st *store) with(k *kind, field, id string) []*object {
	return st.byField[indexKey{k, field, id}]
}

func (st *store) enlist(o *object) {
	if o.of != nil {
		return
	}
	k := listKey{o.kind, o.realm}
	st.byKind[k] = insert(st.byKind[k], o)
	for _, f := range o.kind.index {
		if v := o.str(f); v != "" {
			k := indexKey{o.kind, f, v}
			st.byField[k] = insert(st.byField[k], o)
		}
	}
}

func (st *store) delist(o *object) {
	if o.of != nil {
		return
	}
	k := listKey{o.kind, o.realm}
	st.byKind[k] = remove(st.byKind[k], o)
	for _, f := range o.kind.index {
		if v := o.str(f); v != "" {
			k := indexKey{o.kind, f, v}
			st.byField[k] = remove(st.byField[k], o)
		}
	}
}

// insert is an append for everything that is made now, which is nearly all.
func insert(list []*object, o *object) []*object {
	if n := len(list); n == 0 || older(list[n-1], o) < 0 {
		return append(list, o)
	}
	i := sort.Search(len(list), func(i int) bool { return older(list[i], o) > 0 })
	return slices.Insert(list, i, o)
}

func remove(list []*object, o *object) []*object {
	i := sort.Search(len(list), func(i int) bool { return older(list[i], o) >= 0 })
	return slices.Delete(list, i, i+1)
}
