package stripefake

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/stripe/stripe-go/v76/webhook"
)

// WrongSecret signs with a secret that no endpoint has.
const WrongSecret = -1

// Null and None are values of EventOptions that the empty string cannot say.
const (
	NullVersion = "null" // APIVersion: the event carries none
	NoAccount   = "none" // Account: none, though the object is in one
)

// EventOptions says how an event differs from the ordinary one.
type EventOptions struct {
	ID         string          // a new one unless set; one that exists is sent again as it was
	Snapshot   json.RawMessage // the object as it was, in place of how it is now
	Secret     int             // which webhook secret signs, from 1; zero is the first, WrongSecret none of them
	Age        time.Duration   // signed so long ago; negative is in the future
	APIVersion string          // 2023-10-16 unless set; NullVersion for none
	Account    string          // the object's own unless set; NoAccount for none
	Livemode   *bool           // the object's own unless set
}

// An Event is one that is ready to be delivered.
type Event struct {
	ID      string
	Type    string
	Payload []byte // the body, to the byte
	Header  string // Stripe-Signature of the moment it was built

	secret int
	age    time.Duration
}

// Event builds the signed event of a type about an object as it is now, or as
// a snapshot says it was; with a snapshot the id may be empty. The event is
// from then on in GET /v1/events, with its webhook pending until it is
// delivered.
func (s *Server) Event(typ, id string, o EventOptions) (Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ev, err := s.event(typ, id, o)
	if err != nil {
		return Event{}, fmt.Errorf("event %s: %w", typ, err)
	}
	payload, err := encode(s.show(ev), true)
	if err != nil {
		return Event{}, err
	}
	out := Event{ID: ev.id(), Type: typ, Payload: payload, secret: o.Secret, age: o.Age}
	out.Header, err = s.sign(payload, o.Secret, o.Age)
	return out, err
}

// Happened records an event and delivers it to nobody: a webhook that was
// lost. It returns the event's id.
func (s *Server) Happened(typ, id string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ev, err := s.event(typ, id, EventOptions{})
	if err != nil {
		return "", fmt.Errorf("event %s: %w", typ, err)
	}
	return ev.id(), nil
}

// event records an event, or finds the one that has this id already.
func (s *Server) event(typ, id string, o EventOptions) (*object, error) {
	var data any
	if o.Snapshot != nil {
		m, err := decodeObject(o.Snapshot)
		if err != nil {
			return nil, fmt.Errorf("snapshot: %w", err)
		}
		data = m
		if id == "" {
			id, _ = m["id"].(string)
		}
	}
	about, err := s.store.find(id)
	if err != nil && data == nil {
		return nil, err
	}
	r := realm{live: s.cfg.Livemode}
	if about != nil {
		r = about.realm
		if data == nil {
			data = about.frozen()
		}
	}
	switch o.Account {
	case "":
	case NoAccount, s.cfg.Account:
		r.account = ""
	default:
		r.account = o.Account
	}
	if o.Livemode != nil {
		r.live = *o.Livemode
	}
	if old := s.store.byID[o.ID]; old != nil && o.ID != "" {
		if old.kind != eventKind || old.str("type") != typ {
			return nil, fmt.Errorf("%s is another event already", o.ID)
		}
		return old, nil
	}
	if o.ID == "" {
		o.ID = s.newID("evt_1Fake")
	}
	ev := s.make(eventKind, r, o.ID)
	ev.own["type"] = typ
	ev.data = data
	if r.account != "" {
		ev.own["account"] = r.account
	}
	switch o.APIVersion {
	case "":
	case NullVersion:
		ev.own["api_version"] = nil
	default:
		ev.own["api_version"] = o.APIVersion
	}
	return ev, s.store.add(ev)
}

// Sign is the Stripe-Signature of a body, made so long ago. The secret counts
// from 1 as in EventOptions. It fails on a secret that there is not.
func (s *Server) Sign(payload []byte, secret int, age time.Duration) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sign(payload, secret, age)
}

func (s *Server) sign(payload []byte, secret int, age time.Duration) (string, error) {
	key := "whsec_wrong_0123456789abcdef0123456789abcdef"
	if secret != WrongSecret {
		secret = max(secret, 1)
		if secret > len(s.cfg.WebhookSecrets) {
			return "", fmt.Errorf("there is no webhook secret %d", secret)
		}
		key = s.cfg.WebhookSecrets[secret-1]
	}
	return webhook.GenerateTestSignedPayload(&webhook.UnsignedPayload{
		Payload: payload, Secret: key, Timestamp: s.now().Add(-age),
	}).Header, nil
}

// Deliver posts an event to an endpoint, signed anew as each attempt of
// Stripe's is, and returns what the endpoint answered. Answered 2xx, its
// webhook is no longer pending.
func (s *Server) Deliver(ctx context.Context, url string, ev Event) (status int, body []byte, err error) {
	sig, err := s.Sign(ev.Payload, ev.secret, ev.age)
	if err != nil {
		return 0, nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(ev.Payload))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	req.Header.Set("User-Agent", "Stripe/1.0 (+https://stripe.com/docs/webhooks)")
	req.Header.Set("Stripe-Signature", sig)
	resp, err := s.client.Do(req)
	if err != nil {
		return 0, nil, fmt.Errorf("deliver %s: %w", ev.ID, err)
	}
	defer func() { _ = resp.Body.Close() }() // it was read, or is not wanted
	if body, err = io.ReadAll(io.LimitReader(resp.Body, maxBody)); err != nil {
		return resp.StatusCode, body, fmt.Errorf("deliver %s: %w", ev.ID, err)
	}
	if resp.StatusCode/100 == 2 {
		s.mu.Lock()
		defer s.mu.Unlock()
		if o := s.store.byID[ev.ID]; o != nil && o.kind == eventKind {
			o.own["pending_webhooks"] = int64(0)
		}
	}
	return resp.StatusCode, body, nil
}

// newID is an id that no object has.
func (s *Server) newID(prefix string) string {
	for {
		s.ids++
		id := fmt.Sprintf("%s%08d", prefix, s.ids)
		if s.store.byID[id] == nil {
			return id
		}
	}
}
