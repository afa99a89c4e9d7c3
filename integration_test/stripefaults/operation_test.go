package stripefaults_test

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/integration_test/shoptest"
	"github.com/keytill/keytill/internal/stripefake"
	"github.com/keytill/keytill/inventory"
	"github.com/keytill/keytill/reconcile"
)

// A try is an operation on objects of its own.
type try struct {
	*shoptest.Shop
	n     int
	event string // the one that was told, if one was
	told  string // what the sweep's report says of what it could not do
}

// A state is what there is in the end, by what it is about.
type state map[string]string

// An operation is something that keytill does with Stripe.
type operation struct {
	name    string
	prepare func(*try) // what is at Stripe, and what keytill did with it in better times
	do      func(*try) error
	state   func(*try) state
	truth   state
	keys    int              // that it takes; eight at most unless set
	own     func(route) bool // the routes that are its, and not another's; all unless set

	// hidden is the part of the state that a route is about; the rest must come right whatever is wrong with that route.
	// Without it, all of the state is.
	hidden map[route]string
}

func (t *try) session() string { return fmt.Sprintf("cs_%d", t.n) }
func (t *try) intent() string  { return fmt.Sprintf("pi_%d", t.n) }
func (t *try) id(kind string) string {
	return fmt.Sprintf("%s_%d", kind, t.n)
}

const unitAmount = 1000

// sell makes a paid session of so many units in one line.
func (t *try) sell(session string, units int64, f stripefake.Fields) {
	t.T.Helper()
	t.Must(t.Stripe.Session(session, []stripefake.Item{{Price: "price_game", Quantity: units, Amount: unitAmount}}, f))
}

func (t *try) refund(id, intent string, units int, status string) {
	t.T.Helper()
	t.Must(t.Stripe.Refund(id, intent, stripefake.Fields{"amount": fmt.Sprint(units * unitAmount), "status": status}))
}

// hear delivers an event that keytill must take, and works it as a job does. When it was told before, it is only worked.
func hear(kind string, about func(*try) string) func(*try) error {
	return func(t *try) error {
		if t.event == "" {
			event, err := t.Stripe.Event(kind, about(t), stripefake.EventOptions{})
			t.Must(err)
			status, _, err := t.Stripe.Deliver(t.T.Context(), t.Webhook.URL, event)
			t.Must(err)
			if status != http.StatusOK {
				t.T.Fatalf("event %s was answered %d", kind, status)
			}
			t.event = event.ID
		}
		return t.Service.SettleEvent(t.T.Context(), inventory.DefaultMerchant, t.event)
	}
}

// ask settles by an id, as a thank-you page or an operator does.
func ask(kind string) func(*try) error {
	return func(t *try) error {
		_, err := t.Service.Settle(t.T.Context(), inventory.DefaultMerchant, t.id(kind))
		return err
	}
}

// about tells of an order: its units, the keys it has, and what a person is asked to look at.
func (t *try) about(order string) state {
	t.T.Helper()
	var findings string
	t.Must(t.DB.QueryRow(t.T.Context(), `
SELECT coalesce(string_agg(kind, ' ' ORDER BY kind), '') FROM keytill.findings WHERE order_id = $1 AND closed_at IS NULL`, order).Scan(&findings))
	return state{"order": fmt.Sprintf("%+v %s", t.UnitsOf(order), findings)}
}

func units(u shoptest.Units, findings ...string) state {
	return state{"order": fmt.Sprintf("%+v %s", u, strings.Join(findings, " "))}
}

func ofSession(t *try) state { return t.about(t.session()) }
func ofIntent(t *try) state  { return t.about(t.intent()) }

// operations are everything that keytill asks Stripe for. Each reads a payment that has more to it than that it was paid:
// who reads a part of it only would hand out too much.
var operations = []operation{
	{
		name: "an event about a session of which a part is refunded",
		prepare: func(t *try) {
			t.sell(t.session(), 3, nil)
			t.refund(t.id("re"), t.intent(), 1, "succeeded")
		},
		do: hear("checkout.session.completed", (*try).session), state: ofSession, truth: units(shoptest.Units{Fulfilled: 2, Revoked: 1}),
		own: func(r route) bool {
			return !strings.Contains(string(r), "disputes") && !strings.Contains(string(r), "early_fraud_warnings")
		},
	},
	{
		name: "an event about a disputed session",
		prepare: func(t *try) {
			t.sell(t.session(), 2, nil)
			t.Must(t.Stripe.Dispute(t.id("dp"), t.intent(), nil))
		},
		do: hear("checkout.session.completed", (*try).session), state: ofSession, truth: units(shoptest.Units{Suspended: 2}),
		own: func(r route) bool { return strings.Contains(string(r), "disputes") },
	},
	{
		name: "an event about a session that the card's issuer warns of",
		prepare: func(t *try) {
			t.sell(t.session(), 1, nil)
			t.Must(t.Stripe.Warning(t.id("issfr"), t.intent(), nil))
		},
		do: hear("checkout.session.completed", (*try).session), state: ofSession, truth: units(shoptest.Units{Fulfilled: 1}, "fraud_warning"),
		own: func(r route) bool { return strings.Contains(string(r), "early_fraud_warnings") },
	},
	{
		name: "an event about a session of many lines", keys: manyLines,
		prepare: func(t *try) {
			items := make([]stripefake.Item, manyLines)
			for i := range items {
				items[i] = stripefake.Item{Price: "price_game", Quantity: 1, Amount: unitAmount}
			}
			t.Must(t.Stripe.Session(t.session(), items, nil))
		},
		do: hear("checkout.session.completed", (*try).session), state: ofSession, truth: units(shoptest.Units{Fulfilled: manyLines}),
	},
	{
		name: "an event about the PaymentIntent of a session",
		prepare: func(t *try) {
			t.sell(t.session(), 3, nil)
			t.refund(t.id("re"), t.intent(), 1, "succeeded")
		},
		do: hear("payment_intent.succeeded", (*try).intent), state: ofSession, truth: units(shoptest.Units{Fulfilled: 2, Revoked: 1}),
	},
	{
		name: "an event about a PaymentIntent without a session",
		prepare: func(t *try) {
			t.Must(t.Stripe.Intent(t.intent(), stripefake.Fields{"amount": fmt.Sprint(2 * unitAmount), "metadata.keytill_lines": "price_game:2"}))
			t.refund(t.id("re"), t.intent(), 1, "succeeded")
		},
		do: hear("payment_intent.succeeded", (*try).intent), state: ofIntent, truth: units(shoptest.Units{Fulfilled: 1, Revoked: 1}),
	},
	{
		name:    "a settle by the charge",
		prepare: func(t *try) { t.sell(t.session(), 1, nil) },
		do:      ask("ch"), state: ofSession, truth: units(shoptest.Units{Fulfilled: 1}),
	},
	{
		name: "a settle by the refund",
		prepare: func(t *try) {
			t.sell(t.session(), 2, nil)
			t.refund(t.id("re"), t.intent(), 1, "succeeded")
		},
		do: ask("re"), state: ofSession, truth: units(shoptest.Units{Fulfilled: 1, Revoked: 1}),
	},
	{
		name: "a settle by the dispute",
		prepare: func(t *try) {
			t.sell(t.session(), 1, nil)
			t.Must(t.Stripe.Dispute(t.id("dp"), t.intent(), nil))
		},
		do: ask("dp"), state: ofSession, truth: units(shoptest.Units{Suspended: 1}),
	},
	{
		name: "a settle by the warning",
		prepare: func(t *try) {
			t.sell(t.session(), 1, nil)
			t.Must(t.Stripe.Warning(t.id("issfr"), t.intent(), nil))
		},
		do: ask("issfr"), state: ofSession, truth: units(shoptest.Units{Fulfilled: 1}, "fraud_warning"),
	},
	{
		name: "a settle by the review",
		prepare: func(t *try) {
			t.sell(t.session(), 1, nil)
			t.Must(t.Stripe.Review(t.id("prv"), t.intent(), stripefake.Fields{"open": "false"}))
		},
		do: ask("prv"), state: ofSession, truth: units(shoptest.Units{Fulfilled: 1}),
	},
	sweepOfLists,
	sweepOfWhatIsOpen,
	{
		name: "the check of the endpoints",
		prepare: func(t *try) {
			t.Must(t.Stripe.WebhookEndpoint(t.id("we"), stripefake.Fields{"url": "https://shop.example"}))
		},
		do: func(t *try) error {
			t.told = ""
			found, err := t.Client.ListEndpoints(t.T.Context())
			for _, e := range found {
				if e.ID == t.id("we") {
					t.told = e.URL
				}
			}
			return err
		},
		state: func(t *try) state { return state{"endpoint": t.told} }, truth: state{"endpoint": "https://shop.example"},
	},
}

// manyLines is one more than a page holds.
const manyLines = 101

// sweepOfLists finds something of every kind that no event told of, and that no other list tells of.
var sweepOfLists = operation{
	name: "a sweep of what nobody told of", keys: 12,
	prepare: func(t *try) {
		t.GoTo(t.Now().Add(40 * 24 * time.Hour)) // all that was before is out of sight
		t.Must(doSweep(t))                       // the first one looks at no events
		for _, kind := range []string{"refunded", "disputed", "warned", "reviewed"} {
			t.sell("cs_"+t.id(kind), 2, nil)
			t.Deliver("checkout.session.completed", "cs_"+t.id(kind))
		}
		t.sell("cs_"+t.id("free"), 1, stripefake.Fields{"payment_status": "no_payment_required", "amount_total": "0"})
		t.Must(t.Stripe.Intent(t.id("pi_alone"), stripefake.Fields{"amount": "1000", "metadata.keytill_lines": "price_game"}))
		t.refund(t.id("re"), "pi_"+t.id("refunded"), 1, "succeeded")
		t.Must(t.Stripe.Dispute(t.id("dp"), "pi_"+t.id("disputed"), nil))
		t.Must(t.Stripe.Warning(t.id("issfr"), "pi_"+t.id("warned"), nil))
		t.Must(t.Stripe.Review(t.id("prv"), "pi_"+t.id("reviewed"), nil))
		event, err := t.Stripe.Happened("review.opened", t.id("prv"))
		t.Must(err)
		t.event = event
		t.GoTo(t.Now().Add(2 * shoptest.Grace))
	},
	do: doSweep,
	state: func(t *try) state {
		var recorded string
		t.Must(t.DB.QueryRow(t.T.Context(), `SELECT count(*)::text FROM keytill.events WHERE event_id = $1 AND state <> 'pending'`, t.event).Scan(&recorded))
		return state{
			"sessions": t.about("cs_" + t.id("free"))["order"], "intents": t.about(t.id("pi_alone"))["order"],
			"refunds": t.about("cs_" + t.id("refunded"))["order"], "disputes": t.about("cs_" + t.id("disputed"))["order"],
			"warnings": t.about("cs_" + t.id("warned"))["order"], "events": recorded,
		}
	},
	truth: state{
		"sessions": units(shoptest.Units{Fulfilled: 1})["order"], "intents": units(shoptest.Units{Fulfilled: 1})["order"],
		"refunds": units(shoptest.Units{Fulfilled: 1, Revoked: 1})["order"], "disputes": units(shoptest.Units{Suspended: 2})["order"],
		"warnings": units(shoptest.Units{Fulfilled: 2}, "fraud_warning")["order"], "events": "1",
	},
	own: route.swept,
	hidden: map[route]string{
		"GET /v1/checkout/sessions?created": "sessions", "GET /v1/payment_intents?created": "intents", "GET /v1/refunds?created": "refunds",
		"GET /v1/disputes?created": "disputes", "GET /v1/radar/early_fraud_warnings?created": "warnings", "GET /v1/events?created": "events",
	},
}

// sweepOfWhatIsOpen finds what is open for longer than the lists reach back, which is read one by one.
var sweepOfWhatIsOpen = operation{
	name: "a sweep of what is open for long",
	prepare: func(t *try) {
		t.sell("cs_"+t.id("debit"), 1, stripefake.Fields{"payment_status": "unpaid"})
		t.sell("cs_"+t.id("slow"), 2, nil)
		t.refund(t.id("re"), "pi_"+t.id("slow"), 1, "pending")
		t.sell("cs_"+t.id("fought"), 1, nil)
		t.Must(t.Stripe.Dispute(t.id("dp"), "pi_"+t.id("fought"), nil))
		for _, kind := range []string{"debit", "slow", "fought"} {
			t.Deliver("checkout.session.completed", "cs_"+t.id(kind))
		}
		t.GoTo(t.Now().Add(40 * 24 * time.Hour))
		t.Must(doSweep(t)) // the next begins here, and what it looks back over begins after all of that
		t.Must(t.Stripe.Set("pi_"+t.id("debit"), stripefake.Fields{"status": "succeeded"}))
		t.Must(t.Stripe.Set("cs_"+t.id("debit"), stripefake.Fields{"payment_status": "paid"}))
		t.Must(t.Stripe.Set(t.id("re"), stripefake.Fields{"status": "succeeded"}))
		t.Must(t.Stripe.Set(t.id("dp"), stripefake.Fields{"status": "lost"}))
		t.GoTo(t.Now().Add(2 * shoptest.Grace))
	},
	do: doSweep,
	state: func(t *try) state {
		return state{"debit": t.about("cs_" + t.id("debit"))["order"], "refund": t.about("cs_" + t.id("slow"))["order"],
			"dispute": t.about("cs_" + t.id("fought"))["order"]}
	},
	truth: state{"debit": units(shoptest.Units{Fulfilled: 1})["order"], "refund": units(shoptest.Units{Fulfilled: 1, Revoked: 1})["order"],
		"dispute": units(shoptest.Units{Revoked: 1})["order"]},
	own: func(r route) bool { return !r.list() && !strings.Contains(string(r), "expand") },
	hidden: map[route]string{
		"GET /v1/payment_intents/{id}": "debit", "GET /v1/refunds/{id}": "refund", "GET /v1/disputes/{id}": "dispute",
	},
}

// doSweep sweeps. What the report says is left undone is an error here.
func doSweep(t *try) error {
	report, err := t.Sweeper.Sweep(t.T.Context(), inventory.DefaultMerchant, reconcile.Options{})
	if err == nil && !report.OK() {
		var told []string
		for _, p := range report.Payments {
			told = append(told, p.Error)
		}
		err = fmt.Errorf("the sweep left something undone: %s", strings.Join(told, "; "))
	}
	return err
}

// eventState is what the inbox says of the event that was told.
func (t *try) eventState() (state, note string) {
	t.T.Helper()
	err := t.DB.QueryRow(t.T.Context(), `SELECT state, note FROM keytill.events WHERE event_id = $1`, t.event).Scan(&state, &note)
	if err == pgx.ErrNoRows {
		return "", ""
	}
	t.Must(err)
	return state, note
}
