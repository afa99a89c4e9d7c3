package console

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/inventory"
	"github.com/keytill/keytill/reconcile"
)

// overviewPage is how the shop stands.
type overviewPage struct {
	Pools []fulfillment.PoolOverview // those that need somebody most
	All   int                        // pools that there are

	Available, Waiting int64
	WaitingSince       *time.Time
	SoldPerDay         float64
	Held               fulfillment.HeldByAge
	Reservations       int64
	SoldOutRate        float64

	Findings []findingView // the oldest
	Open     int           // how many there are, up to countedFindings
	More     bool

	Sweep     *reconcile.Report // the last one
	LastEvent *time.Time
}

const (
	overviewPools   = 8
	overviewFinding = 5
	countedFindings = 100
	overviewSweeps  = 1
)

// Index: events_received, backwards.
const readLastEvent = `
SELECT max(received_at) FROM keytill.events WHERE merchant_id = $1 AND NOT swept`

func (c *Console) overview(v *visit) error {
	var page overviewPage
	pools, err := c.pools(v)
	if err != nil {
		return err
	}
	page.addPools(pools)
	if err := c.addFindings(v.ctx, v.who.Merchant, &page); err != nil {
		return err
	}
	reports, err := c.Sweeps.Reports(v.ctx, v.who.Merchant, overviewSweeps)
	if err != nil {
		return err
	}
	if len(reports) > 0 {
		page.Sweep = &reports[0]
	}
	if err := c.DB.QueryRow(v.ctx, readLastEvent, v.who.Merchant).Scan(&page.LastEvent); err != nil {
		return fmt.Errorf("look for the last event: %w", err)
	}
	return v.show(http.StatusOK, "overview", "Overview", "overview", page)
}

// quick is for reads that a person waits for: workers and compiled plans take longer to start than these take to run.
const quick = `SELECT set_config('max_parallel_workers_per_gather', '0', true), set_config('jit', 'off', true)`

// read reads in one snapshot, so that the numbers of a page agree.
func (c *Console) read(ctx context.Context, read func(tx pgx.Tx) error) error {
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	return pgx.BeginTxFunc(ctx, c.DB, options, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, quick); err != nil {
			return fmt.Errorf("begin to read: %w", err)
		}
		return read(tx)
	})
}

// pools reads how the pools stand.
func (c *Console) pools(v *visit) (pools []fulfillment.PoolOverview, err error) {
	err = c.read(v.ctx, func(tx pgx.Tx) error {
		pools, err = fulfillment.Overview(v.ctx, tx, v.who.Merchant, c.Now())
		return err
	})
	return pools, err
}

// addPools sums the pools up and picks those that need somebody: where buyers wait, then where stock ends soonest.
func (p *overviewPage) addPools(pools []fulfillment.PoolOverview) {
	p.All = len(pools)
	var soldOut float64
	for _, one := range pools {
		p.Available += one.Counts[inventory.Available]
		p.Waiting += one.Waiting
		if one.WaitingSince != nil && (p.WaitingSince == nil || one.WaitingSince.Before(*p.WaitingSince)) {
			p.WaitingSince = one.WaitingSince
		}
		p.SoldPerDay += one.SoldPerDay
		p.Held.Under5m += one.Held.Under5m
		p.Held.Under15m += one.Held.Under15m
		p.Held.Under1h += one.Held.Under1h
		p.Held.Over1h += one.Held.Over1h
		p.Reservations += one.Reservations
		soldOut += one.SoldOutRate * float64(one.Reservations)
	}
	if p.Reservations > 0 {
		p.SoldOutRate = soldOut / float64(p.Reservations)
	}
	slices.SortStableFunc(pools, func(a, b fulfillment.PoolOverview) int {
		return cmp.Or(-cmp.Compare(a.Waiting, b.Waiting), cmp.Compare(cover(a), cover(b)))
	})
	p.Pools = pools[:min(len(pools), overviewPools)]
}

// cover is how many days a pool lasts; one that sells nothing lasts longest.
func cover(p fulfillment.PoolOverview) float64 {
	switch {
	case p.DaysOfCover != nil:
		return *p.DaysOfCover
	case p.Counts[inventory.Available] == 0:
		return 1e6 // empty, and nobody asks for it
	}
	return 1e9
}

func (c *Console) addFindings(ctx context.Context, merchant string, page *overviewPage) error {
	found, err := fulfillment.ListFindings(ctx, c.DB, merchant, 0, countedFindings+1)
	if err != nil {
		return err
	}
	page.Open, page.More = min(len(found), countedFindings), len(found) > countedFindings
	for _, f := range found[:min(len(found), overviewFinding)] {
		page.Findings = append(page.Findings, findingView{Finding: f, Advice: findingAdvice(f.Kind)})
	}
	return nil
}

func (c *Console) startSweep(v *visit) error {
	if err := c.Sweeps.StartSweep(v.ctx, v.who.Merchant, 0); err != nil {
		return err
	}
	act := fulfillment.Act{At: c.Now(), Actor: v.who.Name, Action: "sweep", Subject: "sweep"}
	if err := fulfillment.Record(v.ctx, c.DB, v.who.Merchant, act); err != nil {
		return err
	}
	return v.goTo(Path + "?done=sweep")
}
