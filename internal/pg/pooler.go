package pg

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// backendPID is asked without a prepared statement, which may be what a pooler does not bear.
const backendPID = `SELECT pg_backend_pid()`

// Pooled reports whether a pooler such as PgBouncer stands before the database. One in transaction mode gives the
// statements of one connection to many of its own, so nothing that belongs to a session may be relied on: no prepared
// statement from one transaction to the next, no LISTEN.
//
// A server tells its process id when it greets; a pooler greets for itself, with a number of its own.
func Pooled(ctx context.Context, pool *pgxpool.Pool) (bool, error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return false, fmt.Errorf("connect: %w", err)
	}
	defer conn.Release()
	var pid uint32
	if err := conn.QueryRow(ctx, backendPID, pgx.QueryExecModeExec).Scan(&pid); err != nil {
		return false, fmt.Errorf("ask who answers: %w", err)
	}
	return pid != conn.Conn().PgConn().PID(), nil
}
