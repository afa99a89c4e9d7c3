package fulfillment

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"github.com/keytill/keytill/internal/pg"
	"github.com/keytill/keytill/inventory"
)

// errReadOnce says that an import must start over and its file cannot.
var errReadOnce = errors.New("the database asked to start over, and the file can be read only once: nothing was imported; import it again")

// Import brings a file onto a pool's shelf and serves the units that wait for it, in one transaction: the
// waiting units are the first that the new keys go to.
func (s *Service) Import(ctx context.Context, imp inventory.Import) (report inventory.Report, served int, err error) {
	if imp.At.IsZero() {
		imp.At = s.now()
	}
	start := rewinder(imp.File)
	err = pg.InTx(ctx, s.db, func(tx pgx.Tx) error {
		if err := start(); err != nil {
			return err
		}
		if report, err = s.keyset.Load(ctx, tx, imp); err != nil || imp.DryRun {
			return err
		}
		served, err = s.stocked(ctx, tx, imp, report)
		return err
	})
	return report, served, err
}

// stocked does what follows a file that is on the shelf.
func (s *Service) stocked(ctx context.Context, tx pgx.Tx, imp inventory.Import, report inventory.Report) (served int, err error) {
	merchant, pool := imp.Pool.Merchant, imp.Pool.ID
	if report.Batch != 0 {
		act := Act{At: imp.At, Actor: imp.Actor, Action: "import", Subject: fmt.Sprintf("batch %d of %s, %d keys", report.Batch, imp.Pool.SKU, report.New)}
		if err := Record(ctx, tx, merchant, act); err != nil {
			return 0, err
		}
	}
	if served, err = s.Serve(ctx, tx, merchant, pool); err != nil {
		return served, err
	}
	if err := s.tellStockLevel(ctx, tx, merchant, pool, true); err != nil {
		return served, err
	}
	return served, insertJobs(ctx, s.jobs, tx, []river.InsertManyParams{{Args: ServeJob{Merchant: merchant, Pool: pool}}})
}

// rewinder returns what brings a file back to where it was, before each run of a transaction that may run twice.
func rewinder(file io.Reader) func() error {
	seeker, _ := file.(io.Seeker)
	var start int64
	if seeker != nil {
		var err error
		if start, err = seeker.Seek(0, io.SeekCurrent); err != nil {
			seeker = nil // a pipe
		}
	}
	runs := 0
	return func() error {
		if runs++; runs == 1 {
			return nil
		}
		if seeker == nil {
			return errReadOnce
		}
		if _, err := seeker.Seek(start, io.SeekStart); err != nil {
			return fmt.Errorf("%w: %w", errReadOnce, err)
		}
		return nil
	}
}
