package integration_test

import (
	"context"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
)

// crashes is a tracer that plays the death of a process in the midst of work: from a certain statement of a marked
// context on, it reaches the database no more. What it had not committed is then rolled back.
type crashes struct{}

var (
	_ pgx.QueryTracer = crashes{}
	_ pgx.BatchTracer = crashes{}
)

type crashKey struct{}

// crashAt marks a context: its n-th statement does not come through, nor any after it. The function reports whether that
// has come to pass.
func crashAt(ctx context.Context, n int) (context.Context, func() bool) {
	left := new(atomic.Int64)
	left.Store(int64(n))
	return context.WithValue(ctx, crashKey{}, left), func() bool { return left.Load() <= 0 }
}

func (crashes) strike(ctx context.Context, conn *pgx.Conn) {
	if left, ok := ctx.Value(crashKey{}).(*atomic.Int64); ok && left.Add(-1) <= 0 {
		_ = conn.PgConn().Conn().Close()
	}
}

// TraceQueryStart strikes before a statement.
func (c crashes) TraceQueryStart(ctx context.Context, conn *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.strike(ctx, conn)
	return ctx
}

// TraceQueryEnd does nothing.
func (crashes) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart strikes before a batch.
func (c crashes) TraceBatchStart(ctx context.Context, conn *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	c.strike(ctx, conn)
	return ctx
}

// TraceBatchQuery strikes between the statements of a batch.
func (c crashes) TraceBatchQuery(ctx context.Context, conn *pgx.Conn, _ pgx.TraceBatchQueryData) {
	c.strike(ctx, conn)
}

// TraceBatchEnd keeps a connection that was struck after the batch's last answer from going back to the pool, which a
// process that is dead does not use again.
func (crashes) TraceBatchEnd(ctx context.Context, conn *pgx.Conn, _ pgx.TraceBatchEndData) {
	if left, ok := ctx.Value(crashKey{}).(*atomic.Int64); ok && left.Load() <= 0 {
		_ = conn.Close(ctx)
	}
}
