package reconcile

import (
	"context"
	"errors"
	"time"

	"github.com/keytill/keytill/fulfillment"
)

// Kind is a kind of Stripe's objects that a sweep walks.
type Kind string

const (
	Sessions Kind = "sessions"
	Intents  Kind = "payment_intents"
	Refunds  Kind = "refunds"
	Disputes Kind = "disputes"
	Warnings Kind = "early_fraud_warnings"
	Events   Kind = "events"

	// Open is what keytill itself has open, older than what the walks over the other kinds cover.
	Open Kind = "open"
)

// Kinds are all of them, in the order in which a sweep walks them.
var Kinds = []Kind{Sessions, Intents, Refunds, Disputes, Warnings, Open, Events}

// An Object is what a list of Stripe's says about one object, as far as a sweep compares it.
type Object struct {
	ID      string
	Created time.Time
	Status  string // a warning and an event have none
	Intent  string // the PaymentIntent it belongs to; of a PaymentIntent, itself; or empty
	Charge  string // the charge it is about; or empty
	Amount  int64  // what a PaymentIntent received, what a refund or dispute is about

	PaymentStatus string // of a session: paid, unpaid, no_payment_required
	Mode          string // of a session: payment, subscription, setup
	Sells         bool   // a PaymentIntent's metadata says that keys are sold without a session
	Actionable    bool   // of a warning: neither refunded nor disputed yet
	Event         *Event // of an event
}

// An Event is what an inbox keeps of one.
type Event struct {
	Type       string
	Object     string    // the id of what it is about
	Created    time.Time // when that was created; zero if the event does not say
	Payment    string    // the object's PaymentIntent, else its charge, else itself
	Account    string
	Livemode   bool
	APIVersion string
}

// A Page is a page of a list, newest first.
type Page struct {
	Objects []Object
	More    bool
}

// A Span is a stretch of creation times, in whole seconds: From is in it, To is not.
type Span struct{ From, To time.Time }

// Stripe lists what a sweep walks. The package that talks to Stripe implements it.
type Stripe interface {
	// Page reads the page of a kind's objects, created in the span, that follows the object named after; the newest for
	// an empty name. Its errors are about this page, unless they are ErrUnavailable or ErrForbidden.
	Page(ctx context.Context, merchant string, kind Kind, in Span, after string) (Page, error)

	// Object reads one session, PaymentIntent, refund or dispute. It returns fulfillment.ErrNotFound for an id that
	// Stripe does not know.
	Object(ctx context.Context, merchant, id string) (Object, error)

	// Endpoints says in a sentence or two how the webhook endpoints are set up.
	Endpoints(ctx context.Context) (string, error)
}

// Errors of Stripe's side that are about more than one page.
var (
	// ErrUnavailable says that Stripe cannot be reached, or refuses everything for now. A sweep that hears so
	// of two kinds in a row ends.
	ErrUnavailable = errors.New("Stripe does not answer")

	// ErrForbidden says that the API key may not read this kind. The sweep goes on with the next.
	ErrForbidden = errors.New("the API key may not read this")
)

// Settler is what repairs: fulfillment.Service.
type Settler interface {
	// Settle brings one payment's order to what Stripe says now.
	Settle(ctx context.Context, merchant, ref string) (fulfillment.Order, error)

	// PickUp gives new jobs to recorded events whose jobs were lost.
	PickUp(ctx context.Context) (int, error)
}
