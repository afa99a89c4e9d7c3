// Package fulfillment is the way from a payment to its keys: orders, what each of their units deserves, the settle that
// brings them to it, and what is told to whom.
//
//	webhook, thank-you page, sweep, operator ──▶ Settle(payment)
//	                                               1 a number, and the payment's truth from Stripe
//	                                               2 Entitle: what each unit deserves, a pure function
//	                                               3 one transaction: lock the order, move units and keys
//	                                                 (inventory), write down findings and deliveries
//	                                                         │
//	                                                         ▼ after the commit
//	                                               deliveries: e-mail · signed HTTP · a function of the storefront
//
// Settle brings an order to the truth, whatever it was before: twice is once, and the order in which settles come does
// not matter. Of two that overlap, the one with the older reading applies nothing. No network call is made while a
// transaction is open.
//
// A unit waits where a pool has no stock, and gets its key in the transaction that brings some, the oldest payment first.
// What nobody but a person can decide is a Finding, which closes by itself when it no longer holds.
package fulfillment
