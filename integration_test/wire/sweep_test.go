package wire

import (
	"context"
	"errors"
	"time"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/integration_test/shoptest"
	"github.com/keytill/keytill/reconcile"
)

// betweenSweeps is how far away the next sweep is. A sweep that died has kept its lease no longer.
const betweenSweeps = 15 * time.Minute

// A sweep finds a payment that no event told of. What a broken one has left, the next one finds. Overlapped, another process
// begins one, which finds that one is under way.
var sweepStep = operation{
	name:  "sweep for a payment that no event told of",
	stock: settleNew.stock,
	begin: func(r *round) {
		r.forward(2 * reconcile.DefaultWindow) // the sales of other rounds are behind
		session := r.sell("price_full*2", nil)
		_, err := r.shop.Stripe.Happened("checkout.session.completed", session)
		r.shop.Must(err)
		r.forward(2 * shoptest.Grace)
	},
	run: func(ctx context.Context, r *round, by *shoptest.Shop) error {
		if r.tries > 0 {
			r.forward(betweenSweeps)
		}
		report, err := by.Sweeper.Sweep(ctx, merchant, reconcile.Options{})
		switch {
		case errors.Is(err, reconcile.ErrBusy) && by == r.shop:
			return nil // it leaves that to the other
		case err == nil && !report.OK():
			return errors.New("the sweep says that something failed: " + report.Error)
		}
		return err
	},
	end: func(r *round) {
		r.wantUnits(r.orders[0], units(2, fulfillment.UnitFulfilled))
		r.wantTold(r.orders[0], "email keys.ready", "hook fulfillment.completed")
		r.wantCount("payments still to be settled", 0, `SELECT count(*) FROM keytill.sweep_todo`)
		r.wantCount("events still pending", 0, `SELECT count(*) FROM keytill.events WHERE state = 'pending'`)
		r.wantCount("leases", 0, `SELECT count(*) FROM keytill.sweep_leases`)
	},
	stride: 13,
}
