package pg_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/keytill/keytill/internal/pg"
	"github.com/keytill/keytill/internal/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Suite{M: m}) }

// attempts is how often InTx runs a transaction that the database always refuses.
const attempts = 6

// newDB has a table n with a row 1 and a row 2, both 0.
func newDB(t *testing.T) *pgxpool.Pool {
	t.Helper()
	db := pgtest.New(t)
	exec(t, db, `CREATE TABLE n (id int PRIMARY KEY, v int NOT NULL)`)
	exec(t, db, `INSERT INTO n VALUES (1, 0), (2, 0)`)
	return db
}

func exec(t *testing.T, db pg.Querier, sql string, args ...any) {
	t.Helper()
	if _, err := db.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func value(t *testing.T, db pg.Querier, id int) (v int) {
	t.Helper()
	if err := db.QueryRow(t.Context(), `SELECT v FROM n WHERE id = $1`, id).Scan(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

const addOne = `UPDATE n SET v = v + 1 WHERE id = $1`

// raise makes the database refuse with a code.
func raise(ctx context.Context, tx pgx.Tx, code string) error {
	_, err := tx.Exec(ctx, fmt.Sprintf(`DO $$ BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = '%s'; END $$`, code))
	return err
}

func TestWhatTheDatabaseAsksToRetryIsRetriedUntilItPasses(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"40001", "40P01"} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			db := newDB(t)
			runs := 0
			err := pg.InTx(t.Context(), db, func(tx pgx.Tx) error {
				runs++
				if _, err := tx.Exec(t.Context(), addOne, 1); err != nil {
					return err
				}
				if runs < 4 {
					return fmt.Errorf("wrapped: %w", raise(t.Context(), tx, code))
				}
				return nil
			})
			if err != nil || runs != 4 {
				t.Errorf("%d runs, error %v, want 4 and none", runs, err)
			}
			if got := value(t, db, 1); got != 1 {
				t.Errorf("the failed runs left their work: %d, want 1", got)
			}
		})
	}
}

func TestRetriesEnd(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	runs := 0
	err := pg.InTx(t.Context(), db, func(tx pgx.Tx) error {
		runs++
		return raise(t.Context(), tx, "40001")
	})
	if !pg.Retryable(err) || runs != attempts {
		t.Errorf("%d runs, error %v, want %d and the database's", runs, err, attempts)
	}
}

func TestWhatTheDatabaseDoesNotAskToRetryRunsOnce(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	// 40002 and 40003 are of the same class, 55P03 is a lock that was not available, 23505 a violation.
	for _, code := range []string{"40002", "40003", "55P03", "23505", "57014", "P0001"} {
		runs := 0
		err := pg.InTx(t.Context(), db, func(tx pgx.Tx) error {
			runs++
			return raise(t.Context(), tx, code)
		})
		var pgErr *pgconn.PgError
		if !errors.As(err, &pgErr) || pgErr.Code != code || runs != 1 {
			t.Errorf("%s: %d runs, error %v", code, runs, err)
		}
	}
	own := errors.New("own")
	runs := 0
	err := pg.InTx(t.Context(), db, func(tx pgx.Tx) error {
		runs++
		if _, err := tx.Exec(t.Context(), addOne, 1); err != nil {
			return err
		}
		return own
	})
	if err != own || runs != 1 || value(t, db, 1) != 0 {
		t.Errorf("an error of fn: %d runs, error %v, value %d; want one run, itself, nothing changed", runs, err, value(t, db, 1))
	}
}

func TestDeadlockIsRetriedAndBothTransactionsPass(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	var (
		group errgroup.Group
		met   sync.WaitGroup
	)
	met.Add(2)
	for _, order := range [][2]int{{1, 2}, {2, 1}} {
		group.Go(func() error {
			runs := 0
			return pg.InTx(t.Context(), db, func(tx pgx.Tx) error {
				runs++
				if _, err := tx.Exec(t.Context(), addOne, order[0]); err != nil {
					return err
				}
				if runs == 1 { // both hold their first row before either asks for its second
					met.Done()
					met.Wait()
				}
				_, err := tx.Exec(t.Context(), addOne, order[1])
				return err
			})
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	if a, b := value(t, db, 1), value(t, db, 2); a != 2 || b != 2 {
		t.Errorf("values %d and %d, want 2 and 2", a, b)
	}
}

func TestAnEndedContextEndsTheRetries(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	runs := 0
	err := pg.InTx(ctx, db, func(tx pgx.Tx) error {
		runs++
		err := raise(ctx, tx, "40001")
		cancel()
		return err
	})
	if !pg.Retryable(err) || runs != 1 {
		t.Errorf("%d runs, error %v, want one and the database's", runs, err)
	}
	if err := pg.InTx(ctx, db, func(pgx.Tx) error { runs++; return nil }); !errors.Is(err, context.Canceled) || runs != 1 {
		t.Errorf("on an ended context: %d runs, error %v", runs-1, err)
	}
}

func TestRollbackSurvivesCancellation(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	for name, end := range map[string]func(context.Context, context.CancelFunc, pgx.Tx) error{
		"between statements": func(ctx context.Context, cancel context.CancelFunc, _ pgx.Tx) error {
			cancel()
			return ctx.Err()
		},
		"before the commit": func(_ context.Context, cancel context.CancelFunc, _ pgx.Tx) error {
			cancel()
			return nil
		},
		"within a statement": func(ctx context.Context, cancel context.CancelFunc, tx pgx.Tx) error {
			time.AfterFunc(20*time.Millisecond, cancel)
			_, err := tx.Exec(ctx, `SELECT pg_sleep(60)`)
			return err
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		err := pg.InTx(ctx, db, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, addOne, 1); err != nil {
				return err
			}
			return end(ctx, cancel, tx)
		})
		cancel()
		if !errors.Is(err, context.Canceled) {
			t.Errorf("canceled %s: error %v", name, err)
		}
		// The row's lock is free again, at once or as soon as the server sees the connection go.
		exec(t, db, `SET lock_timeout = '5s'`)
		if _, err := db.Exec(t.Context(), `SELECT FROM n WHERE id = 1 FOR UPDATE`); err != nil {
			t.Errorf("canceled %s: %v", name, err)
		}
		if got := value(t, db, 1); got != 0 {
			t.Errorf("canceled %s: value %d, want 0", name, got)
		}
	}
}

// With a context that is over, Rollback(ctx) would throw the connection away; the server may notice late.
func TestCancellationBetweenStatementsKeepsTheConnection(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var inside, after uint32
	err := pg.InTx(ctx, db, func(tx pgx.Tx) error {
		inside = tx.Conn().PgConn().PID()
		cancel()
		return ctx.Err()
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if n := db.Stat().TotalConns(); n != 1 {
		t.Fatalf("%d connections, want the one that was rolled back", n)
	}
	if err := db.QueryRow(t.Context(), `SELECT pg_backend_pid()`).Scan(&after); err != nil || after != inside {
		t.Errorf("backend %d, error %v, want %d", after, err, inside)
	}
}

func TestAPanicRollsBack(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	func() {
		defer func() { _ = recover() }()
		_ = pg.InTx(t.Context(), db, func(tx pgx.Tx) error {
			exec(t, tx, addOne, 1)
			panic("in the middle")
		})
	}()
	if got := value(t, db, 1); got != 0 || db.Stat().AcquiredConns() != 0 {
		t.Errorf("value %d, %d connections taken, want 0 and 0", got, db.Stat().AcquiredConns())
	}
}

func TestIsolationIsReadCommittedWhateverTheServersDefault(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	var name string
	if err := db.QueryRow(t.Context(), `SELECT current_database()`).Scan(&name); err != nil {
		t.Fatal(err)
	}
	exec(t, db, `ALTER DATABASE `+pgx.Identifier{name}.Sanitize()+` SET default_transaction_isolation = 'serializable'`)
	db.Reset()
	var isolation, standard string
	err := pg.InTx(t.Context(), db, func(tx pgx.Tx) error {
		return tx.QueryRow(t.Context(), `SELECT current_setting('transaction_isolation'), current_setting('default_transaction_isolation')`).
			Scan(&isolation, &standard)
	})
	if err != nil || standard != "serializable" {
		t.Fatalf("default %q, error %v", standard, err)
	}
	if isolation != "read committed" {
		t.Errorf("isolation %q", isolation)
	}
}

func TestViolatesNamesTheConstraint(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	_, err := db.Exec(t.Context(), `INSERT INTO n VALUES (1, 1)`)
	err = fmt.Errorf("wrapped: %w", err)
	if !pg.Violates(err, "n_pkey") || pg.Violates(err, "n_other") || pg.Violates(errors.New("n_pkey"), "n_pkey") || pg.Violates(nil, "n_pkey") {
		t.Errorf("Violates is wrong about %v", err)
	}
}

// A connection that ended while nobody used it is found out by who uses it next. Nothing of theirs reached the server.
func TestAConnectionThatHasEndedCostsNobodyTheirTransaction(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	for _, in := range []string{"before the transaction", "within it", "before its commit"} {
		conn, err := db.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		end := conn.Conn().PgConn().Conn().Close
		if in == "before the transaction" {
			_ = end()
		}
		conn.Release()
		runs := 0
		err = pg.InTx(t.Context(), db, func(tx pgx.Tx) error {
			runs++
			if in == "within it" && runs == 1 {
				_ = tx.Conn().PgConn().Conn().Close()
			}
			_, err := tx.Exec(t.Context(), addOne, 1)
			if in == "before its commit" && runs == 1 {
				_ = tx.Conn().PgConn().Conn().Close()
			}
			return err
		})
		if err != nil {
			t.Errorf("ended %s: %v", in, err)
		}
	}
	if got := value(t, db, 1); got != 3 {
		t.Errorf("three transactions added %d", got)
	}
}
