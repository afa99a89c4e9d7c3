package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keytill/keytill/fulfillment"
)

// Index: events_received.
const readLastEvent = `
SELECT max(received_at) FROM keytill.events WHERE merchant_id = $1 AND NOT swept`

// silence watches whether payments happen at Stripe and no event tells of them: then the endpoint is broken, whatever it
// says.
type silence struct {
	since    time.Time // the last event, or the beginning
	payments int       // made since
	last     time.Time // the newest of them
}

// silenceSlack is how long an event may take for its payment not to count as one that nobody told of.
const silenceSlack = time.Minute

// see looks at each object that is walked.
func (s *silence) see(kind Kind, o Object) {
	paid := kind == Intents && o.Status == "succeeded" ||
		kind == Sessions && o.Intent == "" && o.Mode == "payment" && o.Status == "complete" && paidSession(o)
	if !paid || !o.Created.After(s.since.Add(silenceSlack)) {
		return
	}
	s.payments++
	if o.Created.After(s.last) {
		s.last = o.Created
	}
}

func (s *Sweeper) readSilence(ctx context.Context, r *run) error {
	var last *time.Time
	if err := s.db.QueryRow(ctx, readLastEvent, r.merchant).Scan(&last); err != nil {
		return fmt.Errorf("look for the last event: %w", err)
	}
	r.silence.since = r.begin
	if last != nil {
		r.silence.since = *last
	}
	return nil
}

// silenceSubject is what the finding is about: there is one a merchant.
const silenceSubject = "webhook"

// checkSilence opens or closes the finding.
func (s *Sweeper) checkSilence(ctx context.Context, r *run) error {
	quiet := r.silence
	if s.silenceAfter < 0 || quiet.payments == 0 || r.started.Sub(quiet.since) < s.silenceAfter {
		if r.dry {
			return nil
		}
		return fulfillment.CloseFinding(ctx, s.db, r.merchant, fulfillment.Silence, silenceSubject, r.started)
	}
	endpoints, err := s.stripe.Endpoints(ctx)
	switch {
	case errors.Is(err, ErrForbidden):
		endpoints = "The API key may not read the webhook endpoints; look at them in the Stripe dashboard, Developers → Webhooks."
	case err != nil:
		endpoints = "How the endpoint is set up could not be read: " + err.Error()
	}
	r.report.Silence = fmt.Sprintf("no event has come from Stripe since %s UTC, and %d payments were made since, the last at %s UTC: "+
		"the endpoint is broken, and orders wait for the sweep. %s", quiet.since.UTC().Format(time.DateTime), quiet.payments,
		quiet.last.UTC().Format(time.DateTime), endpoints)
	if r.dry {
		return nil
	}
	s.log.WarnContext(ctx, "no event comes from Stripe, though payments are made", "merchant", r.merchant, "since", quiet.since,
		"payments", quiet.payments)
	return fulfillment.OpenFinding(ctx, s.db, r.merchant, fulfillment.Question{Kind: fulfillment.Silence, Subject: silenceSubject,
		Detail: r.report.Silence}, r.started)
}
