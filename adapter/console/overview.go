package console

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/reconcile"
)

// overviewPage is how the shop stands.
type overviewPage struct {
	fulfillment.ShopOverview

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
SELECT (SELECT received_at FROM keytill.events WHERE merchant_id = $1 AND NOT swept ORDER BY received_at DESC LIMIT 1)`

func (c *Console) overview(v *visit) error {
	var page overviewPage
	err := c.read(v.ctx, func(tx pgx.Tx) (err error) {
		page.ShopOverview, err = fulfillment.Shop(v.ctx, tx, v.who.Merchant, overviewPools, c.Now())
		return err
	})
	if err != nil {
		return err
	}
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
