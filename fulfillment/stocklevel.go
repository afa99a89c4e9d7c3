package fulfillment

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"github.com/keytill/keytill/internal/pg"
	"github.com/keytill/keytill/inventory"
)

// StockNotice is what stock.low and stock.out tell.
type StockNotice struct {
	SKU       string `json:"sku"`
	Available int64  `json:"available"`
}

// StockLevelJob looks whether a pool has run low. It follows every settle that took keys of a pool that is watched, or
// found one empty.
type StockLevelJob struct {
	Merchant string `json:"merchant_id"`
	Pool     int64  `json:"pool_id"`
}

// Kind names the job in the queue's tables.
func (StockLevelJob) Kind() string { return "stock_level" }

// InsertOpts sets the queue.
func (StockLevelJob) InsertOpts() river.InsertOpts {
	return river.InsertOpts{Queue: QueueStock, MaxAttempts: settleAttempts}
}

// TellStockLevel tells the storefront if a pool has run low or out since it was last told.
func (s *Service) TellStockLevel(ctx context.Context, merchant string, pool int64) error {
	return pg.InTx(ctx, s.db, func(tx pgx.Tx) error { return s.tellStockLevel(ctx, tx, merchant, pool, false) })
}

func (s *Service) tellStockLevel(ctx context.Context, tx pgx.Tx, merchant string, pool int64, restocked bool) error {
	level, err := inventory.Level(ctx, tx, merchant, pool, restocked)
	if err != nil || !level.Low && !level.Out {
		return err
	}
	var channels channelNames
	if err := tx.QueryRow(ctx, readChannels, merchant).Scan(&channels); err != nil {
		return err
	}
	now := s.now()
	told := &StockNotice{SKU: level.SKU, Available: level.Available}
	var rows deliveries
	for _, channel := range channels.storefront() {
		if level.Low {
			rows.add("", channel, notice{kind: StockLow, after: now, subject: Subject{Stock: told}}, "")
		}
		if level.Out {
			rows.add("", channel, notice{kind: StockOut, after: now, subject: Subject{Stock: told}}, "")
		}
	}
	jobs, err := rows.insert(ctx, tx, merchant, now)
	if err != nil {
		return err
	}
	return insertJobs(ctx, s.jobs, tx, jobs)
}

// watchedPools are those of the plan's claims whose stock level somebody wants to know, or which turned out to be empty.
func (p *plan) watchedPools() []int64 {
	var pools []int64
	for _, want := range p.claims {
		short := false
		for _, u := range want.units {
			short = short || u.key == 0
		}
		if short || want.pool.WatchesStock() {
			pools = append(pools, want.pool.ID)
		}
	}
	return pools
}
