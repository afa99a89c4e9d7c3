package stripefaults_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/keytill/keytill/internal/stripefake"
)

// patience is how long an answer may take to begin where it is the fault that none comes.
const patience = time.Second

// An outcome is what one try under a fault may come to.
type outcome int

const (
	// refused: the try fails, says why, and has changed nothing.
	refused outcome = iota
	// right: the try does all there is to do, as without the fault.
	right
	// either: it depends on the call which of the two it is.
	either
	// believed: keytill cannot notice the lie. It may do less than it should, never more, and what it left undone is made
	// good by what mends it.
	believed
)

// A fault is a way in which a call goes wrong.
type fault struct {
	name string
	make func(r route) func() *stripefake.Fault // called for each try; what it returns, for each call
	want func(r route) outcome
	says string // stands in the error of a try that is refused
	on   func(r route) bool

	waits bool // for the end of keytill's patience
}

func always(o outcome) func(route) outcome { return func(route) outcome { return o } }

// every has each call go wrong in the same way.
func every(f stripefake.Fault) func(route) func() *stripefake.Fault {
	return func(route) func() *stripefake.Fault { return func() *stripefake.Fault { return &f } }
}

// once has the first call go wrong.
func once(f stripefake.Fault) func(route) func() *stripefake.Fault {
	return func(route) func() *stripefake.Fault {
		var done atomic.Bool
		return func() *stripefake.Fault {
			if done.Swap(true) {
				return nil
			}
			return &f
		}
	}
}

// rewrite has each answer's body be another.
func rewrite(body func([]byte) []byte) func(route) func() *stripefake.Fault {
	return every(stripefake.Fault{Rewrite: body})
}

func text(body string) func(route) func() *stripefake.Fault {
	return rewrite(func([]byte) []byte { return []byte(body) })
}

// edit rewrites an answer as JSON.
func edit(change func(answer map[string]any)) func(route) func() *stripefake.Fault {
	return rewrite(func(body []byte) []byte {
		var answer map[string]any
		decoder := json.NewDecoder(bytes.NewReader(body))
		decoder.UseNumber()
		if decoder.Decode(&answer) != nil {
			return body
		}
		change(answer)
		changed, err := json.Marshal(answer)
		if err != nil {
			panic(err) // it was JSON
		}
		return changed
	})
}

// objects are the objects of an answer: those of a list, or the one that it is, with what is expanded in it.
func objects(answer map[string]any) []map[string]any {
	data, list := answer["data"].([]any)
	if !list {
		data = []any{answer}
		for _, part := range answer {
			if inner, ok := part.(map[string]any); ok && inner["object"] != "list" && inner["id"] != nil {
				data = append(data, inner)
			}
		}
	}
	var found []map[string]any
	for _, d := range data {
		if o, ok := d.(map[string]any); ok {
			found = append(found, o)
		}
	}
	return found
}

const page = "<html><body><h1>Bad gateway</h1></body></html>"

// tooMuch is blanks, which JSON may end with.
var tooMuch = bytes.Repeat([]byte(" "), 17<<20)

var html = http.Header{"Content-Type": {"text/html"}}

func status(code int, says string) fault {
	return fault{name: fmt.Sprint("answers ", code), make: every(stripefake.Fault{Status: code}), says: fmt.Sprint(says, code)}
}

// faults are all of them. Unless it says otherwise, a fault is refused, on every route.
var faults = []fault{
	status(400, "answered "),
	{name: "answers 401", make: every(stripefake.Fault{Status: 401}), says: "make a new one in the Stripe dashboard"},
	{name: "answers 403", make: every(stripefake.Fault{Status: 403}), says: "a restricted key needs read access"},
	status(404, "answered "),
	status(409, "answered "),
	{name: "answers 429", make: every(stripefake.Fault{Status: 429}), says: "calls are limited"},
	{name: "answers 429 once and says when to come again", make: once(stripefake.Fault{Status: 429, Header: http.Header{"Retry-After": {"1"}}}),
		want: always(right)},
	{name: "answers 500", make: every(stripefake.Fault{Status: 500}), says: "status.stripe.com"},
	{name: "answers 500 once", make: once(stripefake.Fault{Status: 500}), want: always(right)},
	{name: "answers 500 and says that no retry helps", make: every(stripefake.Fault{Status: 500,
		Header: http.Header{"Stripe-Should-Retry": {"false"}}}), says: "status.stripe.com"},
	{name: "answers 502 with a page for people", make: every(stripefake.Fault{Status: 502, Header: html,
		Rewrite: func([]byte) []byte { return []byte(page) }}), says: "Stripe answered 502"},
	{name: "answers 503 with nothing", make: every(stripefake.Fault{Status: 503, Rewrite: func([]byte) []byte { return nil }}),
		says: "Stripe answered 503"},
	{name: "says that it is not there", make: every(stripefake.Fault{Status: 404, Rewrite: func([]byte) []byte {
		return []byte(`{"error": {"type": "invalid_request_error", "code": "resource_missing", "message": "No such thing"}}`)
	}}), want: func(r route) outcome {
		if r.list() && !strings.Contains(string(r), "checkout/sessions?payment_intent") {
			return refused // its payment was found
		}
		return believed
	}},

	{name: "hangs", waits: true, make: every(stripefake.Fault{Hang: true}), says: "try again by themselves"},
	{name: "hangs once", waits: true, make: once(stripefake.Fault{Hang: true}), want: always(right)},
	{name: "stalls in the middle", waits: true, make: every(stripefake.Fault{Stall: true}), says: "try again by themselves"},
	{name: "is slow", make: every(stripefake.Fault{Delay: 50 * time.Millisecond}), want: always(right)},
	{name: "is cut before it begins", make: every(stripefake.Fault{Reset: true}), says: "try again by themselves"},
	{name: "is cut before it begins, once", make: once(stripefake.Fault{Reset: true}), want: always(right)},
	{name: "is cut in the middle", make: every(stripefake.Fault{Cut: true}), says: "broke off"},
	{name: "is cut in the middle, once", make: once(stripefake.Fault{Cut: true}), want: always(right)},

	{name: "is half an object of the right length", make: rewrite(func(body []byte) []byte { return body[:len(body)/2] }), says: "is not Stripe's"},
	{name: "is empty", make: text(""), says: "is not Stripe's"},
	{name: "is a page for people", make: every(stripefake.Fault{Header: html, Rewrite: func([]byte) []byte { return []byte(page) }}),
		says: "a proxy"},
	{name: "is null", make: text("null"), says: "is not Stripe's"},
	{name: "is an array", make: text("[]"), says: "is not Stripe's"},
	{name: "is an object of nothing", make: text("{}")},
	{name: "is an error that says 200", make: text(`{"error": {"type": "api_error", "message": "no"}}`)},
	{name: "is far too large", make: rewrite(func(body []byte) []byte { return slices.Concat(body, tooMuch) }),
		says: "larger than any of Stripe's"},
	{name: "is large", make: edit(func(answer map[string]any) { answer["padding"] = strings.Repeat("x", 1<<20) }), want: always(right)},
	{name: "has another content type", make: every(stripefake.Fault{Header: http.Header{"Content-Type": {"text/plain"}}}), want: always(right)},
	{name: "has fields that nobody knows", make: edit(func(answer map[string]any) {
		for _, o := range append(objects(answer), answer) {
			o["brand_new"] = map[string]any{"id": 7, "object": []any{"of", "a", "later", "version"}}
		}
	}), want: always(right)},
	{name: unknownStates, make: edit(func(answer map[string]any) {
		for _, o := range objects(answer) {
			for _, field := range []string{"status", "payment_status", "reason", "type"} {
				if _, ok := o[field].(string); ok {
					o[field] = "brand_new"
				}
			}
		}
	}), want: always(believed)},

	{name: "is another object", on: func(r route) bool { return !r.list() }, make: edit(func(answer map[string]any) {
		answer["id"] = fmt.Sprint(answer["id"]) + "other"
	}), says: "contradict"},
	{name: "is of another payment", on: func(r route) bool { return r.ofPayment() && !strings.Contains(string(r), "line_items") },
		make: edit(func(answer map[string]any) {
			for _, o := range objects(answer) {
				o["payment_intent"] = "pi_of_another"
			}
		}), says: "contradict"},

	{name: "says that there is more, with an empty page", on: route.list, make: edit(func(answer map[string]any) {
		answer["data"], answer["has_more"] = []any{}, true
	}), says: "empty"},
	{name: "says that there is more, for ever", on: route.list, make: every(stripefake.Fault{LieHasMore: true}), want: always(either)},
	{name: "says that there is more, with the same page for ever", on: route.list,
		make: every(stripefake.Fault{LieHasMore: true, RepeatPage: true}), want: always(either)},
	{name: "says that there is more, with ever new objects", on: func(r route) bool { return r.list() && !r.swept() }, make: endless, want: always(either)},
	{name: "goes round in pages", on: route.list, make: round, want: always(either)},
	{name: "ends too early", on: route.list, make: edit(func(answer map[string]any) { answer["has_more"] = false }),
		want: func(r route) outcome {
			if strings.Contains(string(r), "line_items") {
				return refused // the session's amount says that there is more
			}
			return right // of what else is listed here, there is one page
		}},
	{name: emptyList, on: route.list, make: edit(func(answer map[string]any) {
		answer["data"], answer["has_more"] = []any{}, false
	}), want: func(r route) outcome {
		for _, known := range []string{"line_items", "refunds?payment_intent", "disputes?payment_intent"} {
			if strings.Contains(string(r), known) {
				return refused // the session, or the charge, knows better
			}
		}
		return believed
	}},
	{name: "repeats its page", on: route.list, make: every(stripefake.Fault{RepeatPage: true}), want: always(either)},
	{name: "has its objects twice", on: route.list, make: edit(func(answer map[string]any) {
		if data, ok := answer["data"].([]any); ok {
			answer["data"] = append(data, data...)
		}
	}), want: always(either)},
	{name: "has another order", on: route.list, make: edit(func(answer map[string]any) {
		if data, ok := answer["data"].([]any); ok {
			for i, j := 0, len(data)-1; i < j; i, j = i+1, j-1 {
				data[i], data[j] = data[j], data[i]
			}
		}
	}), want: always(either)},
}

// endless makes a list whose pages go on and on with objects that were not there before.
func endless(route) func() *stripefake.Fault {
	var n atomic.Int64
	return edit(func(answer map[string]any) {
		for _, o := range objects(answer) {
			o["id"] = fmt.Sprintf("%v_%d", o["id"], n.Add(1))
		}
		answer["has_more"] = true
	})("")
}

// round makes a list of two pages that follow each other for ever, whatever is asked for.
func round(route) func() *stripefake.Fault {
	var n atomic.Int64
	return func() *stripefake.Fault {
		odd := n.Add(1)%2 == 1
		return edit(func(answer map[string]any) {
			for _, o := range objects(answer) {
				if odd {
					o["id"] = fmt.Sprintf("%v_odd", o["id"])
				}
			}
			answer["has_more"] = true
		})("")()
	}
}
