package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/integration_test/shoptest"
	"github.com/keytill/keytill/inventory"
)

// importFile brings the round's file onto the shelf. A person whose import has failed starts it again, and hears that it is
// there if only the answer was lost.
func importFile(ctx context.Context, r *round, by *shoptest.Shop, sku string) error {
	_, _, err := by.Service.Import(ctx, inventory.Import{Pool: r.pools[sku], File: bytes.NewReader(r.file), FileName: "keys.txt", Actor: "test"})
	if errors.Is(err, inventory.ErrImported) {
		return nil
	}
	return err
}

// importedOnce wants the file there once: its batch, its keys, and the entry in the audit.
func (r *round) importedOnce(sku string, keys int64) {
	r.t.Helper()
	pool := r.pools[sku].ID
	r.wantCount("batches", 1, `SELECT count(*) FROM keytill.batches WHERE pool_id = $1 AND file_name = 'keys.txt'`, pool)
	r.wantCount("keys of the batch", keys, `SELECT count(*) FROM keytill.keys k JOIN keytill.batches b USING (batch_id) WHERE b.pool_id = $1 AND file_name = 'keys.txt'`, pool)
	r.wantCount("entries in the audit", 1, `SELECT count(*) FROM keytill.audit WHERE action = 'import' AND subject LIKE '%' || $1`, fmt.Sprintf("of %s, %d keys", sku, keys))
}

// fileOfKeys is enough for a COPY of more than one message.
const fileOfKeys = 500

// A file is imported. Overlapped, somebody else imports the same file.
var importStep = operation{
	name: "import a file",
	begin: func(r *round) {
		r.forward(shoptest.Grace)
		r.file, _ = io.ReadAll(r.newFile(fileOfKeys))
		r.file = append(r.file, r.file[:bytes.IndexByte(r.file, '\n')+1]...) // one key twice
	},
	run: func(ctx context.Context, r *round, by *shoptest.Shop) error {
		return importFile(ctx, r, by, "dry")
	},
	end:       func(r *round) { r.importedOnce("dry", fileOfKeys) },
	wipeEvery: 1,
}

// A file is imported for which units wait. Overlapped, another order comes, and waits behind them.
var importServes = operation{
	name: "import for orders that wait",
	begin: func(r *round) {
		for range 3 {
			r.forward(shoptest.Grace)
			r.settled(r.sell("price_dry*1", nil))
		}
		r.forward(shoptest.Grace)
		r.sell("price_dry*2", nil) // the one that comes meanwhile
		r.file, _ = io.ReadAll(r.newFile(4))
	},
	run: func(ctx context.Context, r *round, by *shoptest.Shop) error {
		return importFile(ctx, r, by, "dry")
	},
	meanwhile: func(ctx context.Context, r *round, by *shoptest.Shop) error {
		_, err := by.Service.Settle(ctx, merchant, r.orders[3])
		return err
	},
	end: func(r *round) {
		r.importedOnce("dry", 4)
		r.serveJobs()
		r.settled(r.orders[3])
		var last int64
		for _, order := range r.orders[:3] {
			r.wantUnits(order, units(1, fulfillment.UnitFulfilled))
			r.wantTold(order, "email keys.ready", "hook fulfillment.completed", "hook fulfillment.waiting")
			key := r.keyOf(order)
			if key <= last {
				r.t.Errorf("order %s has key %d, and an older one has key %d", order, key, last)
			}
			last = key
		}
		r.wantUnits(r.orders[3], shopUnits{"fulfilled", "waiting"})
	},
	wipeEvery: 1,
}

// A cart's hold runs out, and the key goes to who waits. It is what the sweeper of the shelf does every minute. Overlapped,
// another does the same.
var tidyServes = operation{
	name: "end a hold for an order that waits",
	begin: func(r *round) {
		r.forward(shoptest.Grace)
		r.fill("dry", 1)
		_, err := r.shop.Service.Reserve(r.t.Context(), merchant, fulfillment.Reservation{Ref: r.name("cart", 0),
			Lines: []fulfillment.ReservationLine{{SKU: "dry", Quantity: 1}}})
		r.shop.Must(err)
		r.settled(r.sell("price_dry*1", nil))
		r.wantUnits(r.orders[0], units(1, fulfillment.UnitWaiting))
		r.forward(fulfillment.DefaultHold + time.Minute)
	},
	run: func(ctx context.Context, _ *round, by *shoptest.Shop) error {
		_, err := by.Service.TidyShelf(ctx)
		return err
	},
	end: func(r *round) {
		r.wantUnits(r.orders[0], units(1, fulfillment.UnitFulfilled))
		r.wantTold(r.orders[0], "email keys.ready", "hook fulfillment.completed", "hook fulfillment.waiting")
		r.wantCount("holds", 0, `SELECT count(*) FROM keytill.reservations`)
	},
}

// A pool is served by its job, as after a unit came to wait while its stock came in. Overlapped, another works the job too.
var serveStep = operation{
	name: "serve a pool by its job",
	begin: func(r *round) {
		r.forward(shoptest.Grace)
		for range 2 {
			r.settled(r.sell("price_dry*1", nil))
		}
		// The stock comes past keytill's own ways in, which would serve at once.
		r.fill("full", 2)
		for _, sql := range []string{
			`UPDATE keytill.movements SET pool_id = $1 WHERE pool_id = $2`,
			`UPDATE keytill.batches SET pool_id = $1 WHERE pool_id = $2`,
			`UPDATE keytill.keys SET pool_id = $1 WHERE pool_id = $2 AND state = 'available'`,
		} {
			_, err := r.shop.DB.Exec(r.t.Context(), sql, r.pools["dry"].ID, r.pools["full"].ID)
			r.shop.Must(err)
		}
	},
	run: func(ctx context.Context, r *round, by *shoptest.Shop) error {
		_, err := by.Service.ServeWaiting(ctx, merchant, r.pools["dry"].ID)
		return err
	},
	end: func(r *round) {
		for _, order := range r.orders {
			r.wantUnits(order, units(1, fulfillment.UnitFulfilled))
			r.wantTold(order, "email keys.ready", "hook fulfillment.completed", "hook fulfillment.waiting")
		}
	},
	wipeEvery: 20,
}
