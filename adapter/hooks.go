package adapter

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/fulfillment"
)

// Hooks are functions of a storefront that runs in this process. They hear of every order, whoever settles it.
type Hooks struct {
	// InTx is called in the transaction that changes units of an order, once for the order, so that the storefront writes
	// its own tables together with the allocation, or not at all: an error rolls back both, and the job is tried again.
	// It must use tx alone, call nothing outside the database, and bear to be called again for a transaction that is
	// tried again. Tables that keytill's own statements lock are not its business.
	//
	// While a Shop has it, only processes that have it change units: a command in another process (`keytill order
	// settle`, `key revoke`, the serving of waiting units by `keytill import`) leaves that to this one, or refuses.
	InTx func(ctx context.Context, tx pgx.Tx, change Change) error

	// Told is called after the commit, at least once for each notice, until it returns nil, for up to three days.
	Told func(ctx context.Context, notice Notice) error
}

// A Change is what one transaction does to units of one order.
type Change = fulfillment.Change
