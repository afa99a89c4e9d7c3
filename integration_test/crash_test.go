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
	c := &crash{}
	ctx, c.die = context.WithCancel(ctx)
	c.left.Store(int64(n))
	return context.WithValue(ctx, crashKey{}, c), func() bool { return c.left.Load() <= 0 }
}

type crash struct {
	left atomic.Int64
	die  context.CancelFunc // nothing is tried again
}

func (crashes) strike(ctx context.Context, conn *pgx.Conn) {
	if c, ok := ctx.Value(crashKey{}).(*crash); ok && c.left.Add(-1) <= 0 {
		_ = conn.PgConn().Conn().Close()
		_ = conn.Close(ctx) // so that the pool, which a dead process does not use again, does not keep it
		c.die()
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

// TraceBatchEnd does nothing.
func (crashes) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}
