// Package webhooks is the only door in for Stripe's events: it limits, verifies, records and answers, and does
// nothing else.
//
//	Stripe ──POST──▶ limit ──▶ verify ──▶ decode ──▶ Inbox.Record ──▶ 200
//	                   │         │          │             │
//	                  413       400        400           503, Stripe sends it again
//
// An event is never believed for its content. Stripe delivers at least once, in any order, and the object inside is as
// old as the event, so all that is taken from it is an [Event]: a pointer that says "look at this payment again". Who
// records it reads the payment's truth from Stripe later.
//
// The answer 200 is a promise that the event is durable; Stripe forgets an event once it has got one. Everything that
// takes time happens after it. The same event may be recorded any number of times, and that is for the [Inbox] to bear.
//
// The endpoint may be on any API version, since no struct of a library takes part in the decoding: stripe-go checks the
// signature, and a tolerant reader of our own finds the few fields that matter.
package webhooks
