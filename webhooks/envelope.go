package webhooks

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ErrUnreadable says that a body is not a Stripe event. It comes wrapped with what is wrong, never with the body.
var ErrUnreadable = errors.New("webhooks: not a Stripe event")

// maxID is the length in bytes that Stripe promises for the ids it makes (docs.stripe.com/upgrades, "object IDs").
const maxID = 255

// Event is what is kept of a Stripe event. Its strings are UTF-8 without NUL and at most 255 bytes long, so that
// PostgreSQL takes them as text.
type Event struct {
	ID         string    // evt_…
	Type       string    // for example payment_intent.succeeded
	Account    string    // acct_… of the connected account; "" is the platform's own
	APIVersion string    // the version that the object was rendered with; "" if unsaid
	Livemode   bool      // false if unsaid
	Created    time.Time // UTC; zero if unsaid
	ObjectID   string    // id of the object the event is about; "" if it has none
	Object     string    // kind of that object, for example charge or checkout.session; "" if unsaid

	// Payment points to the payment to look at: the object's payment_intent, else its charge, else ObjectID. It is the
	// id of whatever was found there, so a consumer must expect any kind, also of things that are no payment, and "".
	Payment string
}

// Decode reads the envelope of an event, in the form of any API version and in that of a thin (v2) event.
//
// Only what makes it an event must be right: a JSON object with an id (evt_…) and a type. The other fields are hints: one
// that is missing, null or of a wrong type is as if it were absent, because an event that is refused is sent again for
// three days and would be refused each time. A kept string that the database could not hold is an error all the same.
// Keys match exactly; of duplicate keys the last one counts. The error is an [ErrUnreadable].
func Decode(body []byte) (Event, error) {
	if err := check(body); err != nil {
		return Event{}, unreadable("the body is not JSON: %v", err)
	}
	envelope := members(body, "id", "type", "account", "api_version", "livemode", "created", "data", "related_object", "context")
	if envelope == nil {
		return Event{}, unreadable("the body is not a JSON object")
	}

	r := reader{}
	ev := Event{
		ID:         r.text(envelope, "id"),
		Type:       r.text(envelope, "type"),
		Account:    r.text(envelope, "account"),
		APIVersion: r.text(envelope, "api_version"),
		Livemode:   string(envelope["livemode"]) == "true",
		Created:    created(envelope["created"]),
	}
	switch {
	case r.err != nil:
		return Event{}, r.err
	case ev.ID == "":
		return Event{}, unreadable("id is missing or no string")
	case !strings.HasPrefix(ev.ID, "evt_") || ev.ID == "evt_":
		return Event{}, unreadable("id is not that of an event")
	case ev.Type == "":
		return Event{}, unreadable("type is missing or no string")
	}

	data := members(envelope["data"], "object")
	if object := members(data["object"], "id", "object", "payment_intent", "charge"); object != nil {
		r.object(&ev, object)
	} else if related := members(envelope["related_object"], "id", "type"); related != nil {
		r.related(&ev, envelope, related)
	}
	if r.err != nil {
		return Event{}, r.err
	}
	return ev, nil
}

// reader takes strings out of objects and keeps the first thing that was wrong with one.
type reader struct{ err error }

// object fills in what a snapshot event says about its object.
func (r *reader) object(ev *Event, object map[string]json.RawMessage) {
	ev.ObjectID = r.chosenID(object)
	ev.Object = r.text(object, "object")
	for _, key := range []string{"payment_intent", "charge"} {
		// The endpoint's settings decide nothing here: the same field holds an id, or the whole object, or null.
		ev.Payment = r.text(object, key)
		if ev.Payment == "" {
			ev.Payment = r.text(members(object[key], "id"), "id")
		}
		if ev.Payment != "" {
			return
		}
	}
	ev.Payment = ev.ObjectID
}

// related fills in what a thin event says: it has no object, only the reference to one, and its account is called
// context, which can also be a path of several ids that names no single account.
func (r *reader) related(ev *Event, envelope, related map[string]json.RawMessage) {
	ev.ObjectID = r.text(related, "id")
	ev.Object = r.text(related, "type")
	ev.Payment = ev.ObjectID
	if c := r.text(envelope, "context"); ev.Account == "" && strings.HasPrefix(c, "acct_") && !strings.Contains(c, "/") {
		ev.Account = c
	}
}

// chosenID reads an object's id. Ids of coupons, products and plans can be chosen by the merchant and be longer than
// Stripe's own; no payment has such an id, so it is left out rather than the event refused.
func (r *reader) chosenID(object map[string]json.RawMessage) string {
	before := r.err
	id := r.text(object, "id")
	if errors.Is(r.err, errTooLong) {
		r.err = before
	}
	return id
}

var errTooLong = errors.New("longer than 255 bytes")

// text reads a string; "" if it is missing or something else.
func (r *reader) text(object map[string]json.RawMessage, key string) string {
	raw := object[key]
	if len(raw) == 0 || raw[0] != '"' {
		return ""
	}
	s, err := unquote(raw)
	if err != nil {
		r.fail(key, err)
		return ""
	}
	switch {
	case strings.ContainsRune(s, 0):
		r.fail(key, errors.New("holds a NUL byte"))
	case strings.ContainsRune(s, '\uFFFD'):
		// What encoding/json puts in place of broken UTF-8 and of half a surrogate pair. Kept, it would make one id of
		// many.
		r.fail(key, errors.New("is not valid UTF-8"))
	case len(s) > maxID:
		r.fail(key, errTooLong)
	default:
		return s
	}
	return ""
}

func (r *reader) fail(key string, err error) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s: %w", ErrUnreadable, key, err)
	}
}

func unreadable(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrUnreadable, fmt.Sprintf(format, args...))
}

// created reads Unix seconds or, in a thin event, RFC 3339; the zero time for anything else, and for years that no
// event is from and that PostgreSQL may not know.
func created(raw json.RawMessage) time.Time {
	var t time.Time
	if seconds, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		t = time.Unix(seconds, 0)
	} else if s, err := strconv.Unquote(string(raw)); err == nil {
		t, _ = time.Parse(time.RFC3339, s)
	}
	if t = t.UTC(); t.Before(time.Unix(0, 0)) || t.Year() > 9999 {
		return time.Time{}
	}
	return t
}
