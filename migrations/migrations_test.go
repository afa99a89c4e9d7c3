package migrations_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/keytill/keytill/internal/pgtest"
	"github.com/keytill/keytill/migrations"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Suite{M: m}) }

// bare is a database without keytill's schema.
func bare(t *testing.T) string {
	t.Helper()
	url := pgtest.NewURL(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if _, err := conn.Exec(t.Context(), `DROP SCHEMA keytill CASCADE`); err != nil {
		t.Fatal(err)
	}
	return url
}

func pending(t *testing.T, db *pgxpool.Pool) bool {
	t.Helper()
	pending, err := migrations.Pending(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	return pending
}

const readRelations = `
SELECT n.nspname || '.' || c.relname || ' ' || c.relkind::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname NOT LIKE 'pg\_%' AND n.nspname <> 'information_schema' ORDER BY 1`

// All objects outside of the catalog's own schemas, of the kinds that migrations make.
const readObjects = `
SELECT 'relation ' || relname FROM pg_class WHERE relnamespace NOT IN (SELECT oid FROM pg_namespace WHERE nspname LIKE 'pg\_%' OR nspname = 'information_schema')
UNION ALL SELECT 'function ' || proname FROM pg_proc WHERE pronamespace NOT IN (SELECT oid FROM pg_namespace WHERE nspname LIKE 'pg\_%' OR nspname = 'information_schema')
UNION ALL SELECT 'type ' || typname FROM pg_type WHERE typnamespace NOT IN (SELECT oid FROM pg_namespace WHERE nspname LIKE 'pg\_%' OR nspname = 'information_schema')
UNION ALL SELECT 'schema ' || nspname FROM pg_namespace WHERE nspname NOT LIKE 'pg\_%' AND nspname NOT IN ('information_schema', 'public')
UNION ALL SELECT 'extension ' || extname FROM pg_extension WHERE extname <> 'plpgsql'`

func list(t *testing.T, db *pgxpool.Pool, query string, args ...any) []string {
	t.Helper()
	rows, err := db.Query(t.Context(), query, args...)
	if err != nil {
		t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestUpAgainChangesNothing(t *testing.T) {
	t.Parallel()
	db := pgtest.Pool(t, bare(t))
	if !pending(t, db) {
		t.Fatal("nothing is pending in an empty database")
	}
	if err := migrations.Up(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	if pending(t, db) {
		t.Error("Up has left something to do")
	}
	if _, err := db.Exec(t.Context(), `INSERT INTO keytill.pools (merchant_id, sku, name, created_at) VALUES ('default', 'a', 'a', now())`); err != nil {
		t.Fatal(err)
	}
	before := list(t, db, readRelations)
	if err := migrations.Up(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, list(t, db, readRelations)); diff != "" {
		t.Errorf("the second Up changed the schema:\n%s", diff)
	}
	if pools := list(t, db, `SELECT sku FROM keytill.pools`); len(pools) != 1 {
		t.Errorf("pools after the second Up: %v", pools)
	}
}

func TestUpInManyProcessesAtOnce(t *testing.T) {
	t.Parallel()
	url := bare(t)
	var group errgroup.Group
	for range 4 {
		group.Go(func() error { return migrations.Up(t.Context(), pgtest.Pool(t, url)) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	if pending(t, pgtest.Pool(t, url)) {
		t.Error("something is left to do")
	}
}

// Those who wait for the lock must not hold the connections that its holder needs.
func TestUpManyTimesAtOnceOnOneSmallPool(t *testing.T) {
	t.Parallel()
	for _, conns := range []int{1, 2, 4} {
		t.Run(fmt.Sprint(conns), func(t *testing.T) {
			t.Parallel()
			db := pgtest.Pool(t, fmt.Sprintf("%s&pool_max_conns=%d", bare(t), conns))
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			var group errgroup.Group
			for range 4 {
				group.Go(func() error { return migrations.Up(ctx, db) })
			}
			if err := group.Wait(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestPendingSeesWhatIsMissing(t *testing.T) {
	t.Parallel()
	for name, undo := range map[string]string{
		"the schema alone":               `DROP SCHEMA keytill CASCADE; CREATE SCHEMA keytill`,
		"no job queue":                   `DROP TABLE keytill.river_migration`,
		"a job queue of a lower version": `DELETE FROM keytill.river_migration WHERE version = (SELECT max(version) FROM keytill.river_migration)`,
		"a version that was not applied": `DELETE FROM keytill.schema_version WHERE version_id > 0`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			if _, err := db.Exec(t.Context(), undo); err != nil {
				t.Fatal(err)
			}
			if !pending(t, db) {
				t.Error("nothing is pending")
			}
		})
	}
}

// A database of the version before has them.
func TestUpDropsTheJobQueuesUnusedIndexes(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for _, name := range migrations.UnusedIndexes() {
		if _, err := db.Exec(t.Context(), `CREATE INDEX `+name+` ON keytill.river_job (kind)`); err != nil {
			t.Fatalf("there already, or not to be made: %v", err)
		}
		if !pending(t, db) {
			t.Errorf("%s is there, and nothing is pending", name)
		}
		if err := migrations.Up(t.Context(), db); err != nil || pending(t, db) {
			t.Errorf("with %s: %v", name, err)
		}
	}
}

func TestAFailedUpLeavesNothingHalfDone(t *testing.T) {
	t.Parallel()
	db := pgtest.Pool(t, bare(t))
	// The last table of the first migration is there already, so it fails at its end.
	if _, err := db.Exec(t.Context(), `CREATE SCHEMA keytill; CREATE TABLE keytill.findings ()`); err != nil {
		t.Fatal(err)
	}
	if err := migrations.Up(t.Context(), db); err == nil {
		t.Fatal("no error")
	}
	tables := list(t, db, `SELECT tablename FROM pg_tables WHERE schemaname = 'keytill' ORDER BY 1`)
	if diff := cmp.Diff([]string{"findings", "schema_version"}, tables); diff != "" {
		t.Errorf("tables (-want +got):\n%s", diff)
	}
	if _, err := db.Exec(t.Context(), `DROP TABLE keytill.findings`); err != nil {
		t.Fatal(err)
	}
	if err := migrations.Up(t.Context(), db); err != nil || pending(t, db) {
		t.Errorf("once the cause is gone: %v", err)
	}
}

func TestEverythingIsInOneSchemaAndGoesWithIt(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	if outside := list(t, db, `SELECT tablename FROM pg_tables WHERE schemaname NOT IN ('keytill', 'pg_catalog', 'information_schema')`); len(outside) > 0 {
		t.Errorf("tables outside of the schema: %v", outside)
	}
	if _, err := db.Exec(t.Context(), `DROP SCHEMA keytill CASCADE`); err != nil {
		t.Fatal(err)
	}
	if left := list(t, db, readObjects); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	db.Reset() // its prepared statements are of the tables that were there
	if err := migrations.Up(t.Context(), db); err != nil || pending(t, db) {
		t.Errorf("up again: %v", err)
	}
}

func TestHashIsTheSameEachTime(t *testing.T) {
	t.Parallel()
	a, err := migrations.Hash()
	if err != nil || len(a) != 64 {
		t.Fatalf("%q, error %v", a, err)
	}
	if b, err := migrations.Hash(); b != a || err != nil {
		t.Errorf("%q then %q, error %v", a, b, err)
	}
}

func TestUpSaysWhatItTriedWhenTheContextEnds(t *testing.T) {
	t.Parallel()
	db := pgtest.Pool(t, bare(t))
	holder, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := holder.Exec(t.Context(), `SELECT pg_advisory_xact_lock(hashtextextended('keytill.migrations', 0))`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := migrations.Up(ctx, db); err == nil || ctx.Err() == nil {
		t.Errorf("Up did not wait for the lock: %v", err)
	}
	if tables := list(t, db, `SELECT tablename FROM pg_tables WHERE schemaname = 'keytill'`); len(tables) > 0 {
		t.Errorf("made without the lock: %v", tables)
	}
}
