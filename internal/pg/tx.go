// Package pg runs transactions: one place that opens them, retries what the database asks to retry, and rolls back
// even when the caller has gone away.
package pg

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Beginner opens transactions: a *pgxpool.Pool or a *pgx.Conn.
type Beginner interface {
	BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error)
}

// CommandTag says what a statement did.
type CommandTag = pgconn.CommandTag

// Querier reads and writes: a pool, a connection or a transaction.
type Querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

const (
	maxAttempts     = 6
	rollbackTimeout = 5 * time.Second
)

// InTx runs fn in one READ COMMITTED transaction and commits it. On a serialization failure or a deadlock (40001,
// 40P01) it starts over, a few times, so fn may run more than once and must set its results anew each time. So it does
// where a statement, or the commit, did not reach the server at all: the pool may hold connections that a restart of
// PostgreSQL has ended.
//
// The isolation is named here, since every statement of keytill is written for it and a server's
// default_transaction_isolation must not change what a guarded UPDATE sees.
func InTx(ctx context.Context, db Beginner, fn func(tx pgx.Tx) error) error {
	return run(ctx, db, pgx.ReadCommitted, fn)
}

// InSnapshot is InTx with one snapshot for all of the transaction (REPEATABLE READ), which begins with its first
// statement. A row that it locks or writes and that has changed since is a serialization failure, so fn runs again.
func InSnapshot(ctx context.Context, db Beginner, fn func(tx pgx.Tx) error) error {
	return run(ctx, db, pgx.RepeatableRead, fn)
}

func run(ctx context.Context, db Beginner, isolation pgx.TxIsoLevel, fn func(tx pgx.Tx) error) error {
	for attempt := 1; ; attempt++ {
		err := once(ctx, db, isolation, fn)
		if err == nil || !Retryable(err) && !pgconn.SafeToRetry(err) || attempt == maxAttempts {
			return err
		}
		if pause(ctx, attempt) != nil {
			return err
		}
	}
}

func once(ctx context.Context, db Beginner, isolation pgx.TxIsoLevel, fn func(tx pgx.Tx) error) (err error) {
	tx, err := db.BeginTx(ctx, pgx.TxOptions{IsoLevel: isolation})
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() {
		// After a commit this does nothing. A canceled context must not keep locks until the server notices.
		rollback, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
		defer cancel()
		_ = tx.Rollback(rollback)
	}()
	if err := fn(tx); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// Retryable reports whether the database asks for the transaction to be run again.
func Retryable(err error) bool {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return false
	}
	return pgErr.Code == "40001" || pgErr.Code == "40P01"
}

// Violates reports whether err is the violation of the named constraint or unique index.
func Violates(err error, constraint string) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.ConstraintName == constraint
}

func pause(ctx context.Context, attempt int) error {
	wait := time.Duration(attempt*attempt)*2*time.Millisecond + rand.N(5*time.Millisecond)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
