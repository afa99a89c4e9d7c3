package integration_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/keytill/keytill/internal/stripefake"
)

// Whatever comes in over the wire, signed by Stripe: it is recorded or refused, and what is recorded comes to an end by
// itself, without an effect, and without being tried for ever.
func TestMalformedEventsComeToAnEnd(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	l := w.run()
	w.stock(l.shop, "game", 9, 1, "price_game")
	w.sell("cs_real", "price_game*1")
	w.must(w.stripe.Refund("re_real", "pi_real", stripefake.Fields{"amount": "1"}))
	w.must(w.stripe.Intent("pi_other", stripefake.Fields{"amount": "100"}))

	for i, c := range malformed {
		id := fmt.Sprintf("evt_%d", i)
		status, answer := w.post(l, strings.ReplaceAll(c.body, "EVT", id))
		if status != c.status {
			t.Errorf("%s: answered %d %s, want %d", c.name, status, answer, c.status)
		}
	}
	w.must(w.settle(w.ctx))
	for i, c := range malformed {
		if c.status != http.StatusOK {
			continue
		}
		var state, note string
		var attempts int
		err := w.db.QueryRow(w.ctx, `SELECT state, note, attempts FROM keytill.events WHERE event_id = $1`, fmt.Sprintf("evt_%d", i)).
			Scan(&state, &note, &attempts)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if state != c.state || !strings.Contains(note, c.note) || attempts != 0 {
			t.Errorf("%s: it is %s (%s) after %d failed tries, want %s (%s)", c.name, state, note, attempts, c.state, c.note)
		}
	}
	w.comesToRest()
	// And the door is still open.
	w.must(w.tell(l, "checkout.session.completed", "cs_real"))
	w.must(w.settle(w.ctx))
	order, err := l.shop.Settle(w.ctx, "cs_real")
	w.must(err)
	if len(order.KeyIDs("fulfilled")) != 1 {
		t.Errorf("the real order has %v", order.Units())
	}
	w.hold()
}

// comesToRest checks that no job is kept to try any of it again, and that no event but those about real payments had an
// effect.
func (w *town) comesToRest() {
	w.t.Helper()
	left, err := w.lines(w.ctx, `
SELECT format('job %s %s is %s', kind, args, state) FROM keytill.river_job
 WHERE kind IN ('settle', 'spread') AND state NOT IN ('completed')
UNION ALL
SELECT format('event %s is pending', event_id) FROM keytill.events WHERE state = 'pending'`)
	w.must(err)
	for _, l := range left {
		w.t.Error(l)
	}
	orders, err := w.lines(w.ctx, `SELECT order_id FROM keytill.orders WHERE order_id <> 'cs_real'`)
	w.must(err)
	if len(orders) > 0 {
		w.t.Errorf("orders were made of nothing: %v", orders)
	}
}

// post sends a body signed well, whatever it is.
func (w *town) post(l *life, body string) (int, []byte) {
	w.t.Helper()
	signature, err := w.stripe.Sign([]byte(body), 1, 0)
	w.must(err)
	req, err := http.NewRequestWithContext(w.ctx, http.MethodPost, l.url+webhookPath, strings.NewReader(body))
	w.must(err)
	req.Header.Set("Stripe-Signature", signature)
	resp, err := http.DefaultClient.Do(req)
	w.must(err)
	defer func() { _ = resp.Body.Close() }() // what is wanted of it was read
	var answer bytes.Buffer
	_, err = answer.ReadFrom(resp.Body)
	w.must(err)
	return resp.StatusCode, answer.Bytes()
}

// about is an event of a type about an object.
func about(kind, object string) string {
	return fmt.Sprintf(`{"id":"EVT","object":"event","type":%q,"livemode":false,"created":1700000000,"data":{"object":%s}}`, kind, object)
}

const (
	notAbout = "not about a payment"
	gone     = "gone at Stripe"
	notOurs  = "not an order of keys"
)

var malformed = []struct {
	name, body  string
	status      int
	state, note string
}{
	{"no data", `{"id":"EVT","type":"charge.refunded"}`, 200, "ignored", notAbout},
	{"data is null", `{"id":"EVT","type":"charge.refunded","data":null}`, 200, "ignored", notAbout},
	{"data is a list", `{"id":"EVT","type":"charge.refunded","data":[]}`, 200, "ignored", notAbout},
	{"the object is null", about("charge.refunded", `null`), 200, "ignored", notAbout},
	{"the object is a string", about("charge.refunded", `"ch_real"`), 200, "ignored", notAbout},
	{"the object has no id", about("charge.refunded", `{}`), 200, "ignored", notAbout},
	{"the object's id is a number", about("charge.refunded", `{"id":7}`), 200, "ignored", notAbout},
	{"everything is of a wrong type", `{"id":"EVT","type":"charge.refunded","livemode":"no","created":{},"account":[],"api_version":1,"data":7}`,
		200, "ignored", notAbout},
	{"the payment is an object without an id", about("charge.refunded", `{"id":"ch_gone","payment_intent":{"id":null}}`), 200, "done", gone},

	{"the type is missing", `{"id":"EVT"}`, 400, "", ""},
	{"the id is missing", `{"type":"charge.refunded"}`, 400, "", ""},
	{"the id is another object's", `{"id":"cs_real","type":"charge.refunded"}`, 400, "", ""},
	{"a list", `[]`, 400, "", ""},
	{"nothing", ``, 400, "", ""},
	{"no JSON", `{"id":"EVT",`, 400, "", ""},
	{"two values", about("charge.refunded", `{"id":"ch_real"}`) + `{}`, 400, "", ""},
	{"1 MiB of nested lists", `{"id":"EVT","type":"charge.refunded","data":` + strings.Repeat("[", 1<<19) + strings.Repeat("]", 1<<19-100) + `}`,
		400, "", ""},
	{"1 MiB of nested objects", `{"id":"EVT","type":"x","data":` + strings.Repeat(`{"a":`, 1<<17) + `1` + strings.Repeat("}", 1<<17) + `}`,
		400, "", ""},
	{"nesting as deep as a decoder goes", about("charge.refunded", `{"id":"ch_gone","x":`+strings.Repeat("[", 9000)+strings.Repeat("]", 9000)+`}`),
		200, "done", gone},
	{"more than 1 MiB", about("charge.refunded", `{"id":"ch_real","x":"`+strings.Repeat("x", 1<<20)+`"}`), 413, "", ""},

	{"invalid UTF-8 in the type", "{\"id\":\"EVT\",\"type\":\"charge.\xff\"}", 400, "", ""},
	{"invalid UTF-8 in the object's id", about("charge.refunded", "{\"id\":\"ch_\xff\"}"), 400, "", ""},
	{"invalid UTF-8 elsewhere", about("charge.refunded", "{\"id\":\"ch_gone\",\"description\":\"\xff\xfe\"}"), 200, "done", gone},
	{"a NUL in the id", about("charge.refunded", `{"id":"ch_\u0000"}`), 400, "", ""},

	{"duplicate ids, of which the last counts", about("charge.refunded", `{"id":"ch_real","id":"ch_gone"}`), 200, "done", gone},
	{"duplicate data, of which the last counts", strings.Replace(about("charge.refunded", `{"id":"ch_real"}`), `"data"`, `"data":{"object":{"id":"ch_real"}},"data":null,"x"`, 1),
		200, "ignored", notAbout},
	{"keys in another case", `{"id":"EVT","type":"charge.refunded","DATA":{"object":{"id":"ch_real"}},"Data":{"object":{"id":"ch_real"}}}`,
		200, "ignored", notAbout},

	{"a customer where a charge should be", about("charge.refunded", `{"id":"cus_1"}`), 200, "ignored", notAbout},
	{"a product as the payment", about("charge.refunded", `{"id":"ch_gone","payment_intent":"prod_game"}`), 200, "ignored", notAbout},
	{"a refund's id behind a session's prefix", about("checkout.session.completed", `{"id":"cs_re_real"}`), 200, "done", gone},
	{"a PaymentIntent of another application", about("payment_intent.succeeded", `{"id":"pi_other"}`), 200, "ignored", notOurs},
	{"a session that is gone", about("checkout.session.completed", `{"id":"cs_gone","payment_intent":"pi_gone"}`), 200, "done", gone},
	{"a PaymentIntent that is gone", about("payment_intent.succeeded", `{"id":"pi_gone"}`), 200, "done", gone},
	{"a refund that is gone", about("refund.updated", `{"id":"re_gone"}`), 200, "done", gone},
	{"a dispute that is gone", about("charge.dispute.created", `{"id":"dp_gone"}`), 200, "done", gone},
	{"a warning that is gone", about("radar.early_fraud_warning.created", `{"id":"issfr_gone"}`), 200, "done", gone},
	{"a review that is gone", about("review.opened", `{"id":"prv_gone"}`), 200, "done", gone},

	{"a prefix alone", about("charge.refunded", `{"id":"ch_"}`), 200, "done", gone},
	{"an id that would be another path", about("payment_intent.succeeded", `{"id":"pi_x/../../charges/ch_real"}`), 200, "done", gone},
	{"an id that would be a query", about("checkout.session.completed", `{"id":"cs_real?expand[]=x"}`), 200, "done", gone},
	{"an id with a line break", about("charge.refunded", `{"id":"ch_\r\nHost: x"}`), 200, "done", gone},
	{"an id as long as can be", about("charge.refunded", `{"id":"ch_`+strings.Repeat("x", 252)+`"}`), 200, "done", gone},
	{"an id that is too long", about("charge.refunded", `{"id":"ch_`+strings.Repeat("x", 300)+`"}`), 200, "ignored", notAbout},
	{"a thin event about a thing that is gone", `{"id":"EVT","object":"v2.core.event","type":"v1.charge.refunded","created":"2026-01-01T00:00:00Z","related_object":{"id":"ch_gone","type":"charge"}}`,
		200, "done", gone},
}
