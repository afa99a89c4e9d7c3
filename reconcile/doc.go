// Package reconcile is the sweep: it walks what Stripe has, compares it with what keytill has, and settles the payments
// that differ. Webhooks get lost, for an hour or for a month; what was paid must not stay without its key for that, and
// what was refunded must not keep it.
//
//	Stripe's lists by creation            keytill's own tables
//	  sessions, PaymentIntents,             orders that wait for money, refunds on
//	  refunds, disputes, warnings           their way, disputes: older than the lists
//	        │ a page                              │ one by one
//	        ▼                                     ▼
//	    compare with the orders, one statement a page ──▶ sweep_todo, and how far the walk is, in one transaction
//	                                                           │ the oldest payment first
//	Stripe's events that never arrived ──▶ inbox ──────────────┤
//	                                                           ▼
//	                                          fulfillment.Settle, as for a webhook
//
// Nothing is repaired on another path than Settle, and nothing that is settled again changes: a sweep may be killed at
// any moment, run twice, or beside the webhook.
//
// # How far it has come
//
// For each merchant and kind there is a cursor. Its horizon is the time up to which all that was created has been walked,
// except for what the spans behind it hold: stretches of creation times that are still to be walked. A walk begins by
// moving the horizon and writing the spans; each page makes its span shorter; a span that is done is deleted. So a sweep
// that was killed goes on at its page. A page that cannot be read has its span halved, again and again, until it is one
// second long: that second stays behind, is tried by each sweep, and hides nothing else.
//
// Lists are by creation, and what was made last week may be paid today. So each sweep looks at a window behind the horizon
// again (Config.Window), at what keytill itself has open however old it is, and at the list of events, which reaches back
// 30 days (docs.stripe.com/api/events). What is younger than Config.Grace belongs to the webhook.
//
// # What it costs
//
// A call of Stripe's and three statements for a page of a hundred, whatever the number of pages, and memory for one page.
// Only payments that differ cost more. Calls are marked as a sweep's (Sweeping), so that others go first.
package reconcile
