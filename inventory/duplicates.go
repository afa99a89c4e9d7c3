package inventory

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// A Report says what became of each row of a file. Rows are numbered as the lines of the file that they begin on, from 1.
type Report struct {
	Batch              int64 `json:"batch,omitempty"` // 0 on a dry run, or where nothing was new
	Rows               int64 `json:"rows"`            // with a key or blank; a header is none
	New                int64 `json:"new"`
	DuplicateInFile    int64 `json:"duplicate_in_file"`
	DuplicateInStock   int64 `json:"duplicate_in_stock"`
	DuplicateElsewhere int64 `json:"duplicate_in_other_pools"` // looked for only if asked
	Blank              int64 `json:"blank"`
	Trimmed            int64 `json:"trimmed"` // rows that had ASCII spaces around the key

	Duplicates []Duplicate `json:"duplicates,omitempty"` // the first of each kind
}

// A Duplicate is a row whose key was there already.
type Duplicate struct {
	Row   int64  `json:"row"`
	First int64  `json:"first_row,omitempty"` // the row of the file that has the key first
	SKU   string `json:"sku,omitempty"`       // the pool that has it, where that is another
}

// MaxDuplicates is how many duplicates of each kind a report names.
const MaxDuplicates = 1000

const (
	// The first of equal rows is the one that counts.
	dropStagedTwice = `
WITH gone AS (
    DELETE FROM staged s
     USING (SELECT fingerprint, min(row) AS first FROM staged GROUP BY fingerprint HAVING count(*) > 1) AS twice
     WHERE s.fingerprint = twice.fingerprint AND s.row > twice.first
    RETURNING s.row, twice.first
)
SELECT row, first, '', count(*) OVER () FROM gone ORDER BY row LIMIT $1`

	// Index: keys_fingerprint.
	dropStagedKnown = `
WITH gone AS (
    DELETE FROM staged s USING keytill.keys k
     WHERE k.merchant_id = $2 AND k.pool_id = $3 AND k.fingerprint = s.fingerprint
    RETURNING s.row
)
SELECT row, 0::bigint, '', count(*) OVER () FROM gone ORDER BY row LIMIT $1`

	// The same while fingerprints rotate. A key in stock has one of them and may get another at any moment: one
	// statement, so one snapshot, sees it with one of the two. Index: keys_fingerprint.
	dropStagedKnownOlder = `
WITH known AS MATERIALIZED (
    SELECT DISTINCT f.row
      FROM (SELECT row, fingerprint FROM staged UNION ALL SELECT row, unnest(older) FROM staged) AS f
      JOIN keytill.keys k ON k.merchant_id = $2 AND k.pool_id = $3 AND k.fingerprint = f.fingerprint
), gone AS (
    DELETE FROM staged s USING known WHERE s.row = known.row RETURNING s.row
)
SELECT row, 0::bigint, '', count(*) OVER () FROM gone ORDER BY row LIMIT $1`

	// Index: keys_fingerprint, once for each of the merchant's pools.
	dropStagedElsewhere = `
WITH known AS MATERIALIZED (
    SELECT f.row, min(p.sku) AS sku
      FROM (SELECT row, fingerprint FROM staged UNION ALL SELECT row, unnest(older) FROM staged) AS f
      JOIN keytill.pools p ON p.merchant_id = $2 AND p.pool_id <> $3
      JOIN keytill.keys k ON k.merchant_id = p.merchant_id AND k.pool_id = p.pool_id AND k.fingerprint = f.fingerprint
     GROUP BY f.row
), gone AS (
    DELETE FROM staged s USING known WHERE s.row = known.row RETURNING s.row, known.sku
)
SELECT row, 0::bigint, sku, count(*) OVER () FROM gone ORDER BY row LIMIT $1`
)

// countDuplicates takes rows out of the staging table whose keys are there already, and says which they were.
func (k *Keyset) countDuplicates(ctx context.Context, tx pgx.Tx, imp Import, report *Report) (err error) {
	if report.DuplicateInFile, err = dropStaged(ctx, tx, report, dropStagedTwice); err != nil {
		return fmt.Errorf("look for duplicates in the file: %w", err)
	}
	known := dropStagedKnown
	if k.rotating() {
		known = dropStagedKnownOlder
	}
	if report.DuplicateInStock, err = dropStaged(ctx, tx, report, known, imp.Pool.Merchant, imp.Pool.ID); err != nil {
		return fmt.Errorf("look for duplicates in stock: %w", err)
	}
	if imp.AcrossPools {
		report.DuplicateElsewhere, err = dropStaged(ctx, tx, report, dropStagedElsewhere, imp.Pool.Merchant, imp.Pool.ID)
		if err != nil {
			return fmt.Errorf("look for duplicates in other pools: %w", err)
		}
	}
	duplicates := report.DuplicateInFile + report.DuplicateInStock + report.DuplicateElsewhere
	report.New = report.Rows - report.Blank - duplicates
	if duplicates > 0 && imp.Duplicates == RefuseDuplicates {
		return fmt.Errorf("%w: %d rows, of which the first are %s", ErrDuplicates, duplicates, report.firstDuplicates())
	}
	return nil
}

func dropStaged(ctx context.Context, tx pgx.Tx, report *Report, query string, args ...any) (gone int64, err error) {
	rows, err := tx.Query(ctx, query, append([]any{MaxDuplicates}, args...)...)
	if err != nil {
		return 0, err
	}
	var d Duplicate
	_, err = pgx.ForEachRow(rows, []any{&d.Row, &d.First, &d.SKU, &gone}, func() error {
		report.Duplicates = append(report.Duplicates, d)
		return nil
	})
	return gone, err
}

// shownInError is how many rows an error names.
const shownInError = 10

func (r *Report) firstDuplicates() string {
	first := slices.SortedFunc(slices.Values(r.Duplicates), func(a, b Duplicate) int { return int(a.Row - b.Row) })
	var numbers []string
	for _, d := range first[:min(len(first), shownInError)] {
		numbers = append(numbers, fmt.Sprint(d.Row))
	}
	return strings.Join(numbers, ", ")
}
