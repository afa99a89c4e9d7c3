// Package inventory keeps the keys: pools, what a price hands out, import, the claim, and every later change of a key's
// state.
//
//	import ──▶ available ──claim──▶ allocated ⇄ suspended
//	               ▲  │                 │          │
//	               │  ▼                 ▼          ▼
//	            quarantined           revoked ◀────┘   (and back, when the money comes back)
//
// Every change is a guarded UPDATE by state and writes a movement in the same statement. Counts are a fold of the
// movements: nothing that a claim does updates a row that another claim of the same pool needs.
//
// All functions that take a transaction leave it to the caller to commit; see package fulfillment.
package inventory
