// Package stripefake is a fake of Stripe on the wire: the part of its API that
// has to do with one-off payments, with state, and the signed delivery of
// events.
//
//	test: Session, Refund, Set … ──▶ state ◀── GET /v1/… ── code under test
//	      Event ── Deliver, signed ───────────────────────▶ its webhook
//
// Methods that make or change objects send nothing: what a webhook says, when
// it comes, how often and whether at all is up to the test. On the wire the
// fake is as strict as the real one. It refuses unknown parameters, unknown
// ids and unknown expand paths, keys it does not know, and what belongs to
// another account or another mode; the errors have Stripe's shape and words.
// Lists are paged and filtered, and stay fast with hundreds of thousands of
// objects.
//
// Objects are shown as API version 2023-10-16 shows them, whatever version is
// asked for. Not there: search, anything that recurs, customers (an id of one
// can be set, and expands to little more than itself), balance transactions,
// and updates of objects other than the few writes a seller of keys makes.
package stripefake
