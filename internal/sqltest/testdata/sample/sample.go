package sample

import (
	"context"

	"example.com/nowhere/db"
)

type State string

const Schema = "keytill"

const (
	columns = `pool_id, sku`
	tail    = `SELECT x FROM tail`

	readPools       = `SELECT ` + columns + ` FROM keytill.pools`
	readTail        = `WITH tail AS (SELECT 1 AS x) ` + tail
	limited         = `SELECT pool_id FROM keytill.pools LIMIT %d`
	makeTable       = `CREATE TEMPORARY TABLE sample (n int)`
	useTable        = `INSERT INTO sample VALUES ($1)`
	prose           = "select what you like"
	commented       = "-- why\nDELETE FROM keytill.pools"
	Ready     State = "SELECT"
)

var inVariable = map[string]string{"a": `UPDATE keytill.pools SET name = $1`}

func use(ctx context.Context, q db.Querier) {
	const local = `SELECT sku FROM keytill.pools`
	q.Query(ctx, `SELECT name FROM `+Schema+`.pools`)
	q.Query(ctx, readPools+` WHERE sku = $1`)
	q.Query(ctx, local)
	q.Query(ctx, fmt.Sprintf(limited, 1), "SELECT", commented)
	q.Query(ctx, func() string { return "TABLE keytill.pools" }())
}
