package reconcile

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/internal/pg"
)

// LastReports are those of a merchant's last sweeps, newest first, for who has no Sweeper.
func LastReports(ctx context.Context, db pg.Querier, merchant string, limit int) ([]Report, error) {
	rows, err := db.Query(ctx, readReports, merchant, limit)
	if err != nil {
		return nil, fmt.Errorf("read the reports: %w", err)
	}
	reports, err := pgx.CollectRows(rows, pgx.RowTo[Report])
	if err != nil {
		return nil, fmt.Errorf("read the reports: %w", err)
	}
	return reports, nil
}
