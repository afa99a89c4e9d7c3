// Package migrations brings a database to the schema that this version of keytill works on: keytill's own tables and
// the job queue's, all in the PostgreSQL schema "keytill", so that they can live in a storefront's own database.
//
//	Up ──▶ anything to do? ──▶ lock ──▶ keytill's tables: 00001_keytill.sql, 00002_… ──▶ the job queue's tables
//	            │                             one transaction each, by goose               River's own, but for two indexes
//	            └── no: that is all
//
// A schema also works for the version of keytill before it, so that processes are replaced one by one.
package migrations

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// Schema is the PostgreSQL schema that holds every table of keytill and of its job queue.
const Schema = "keytill"

// MinServerVersion is the oldest PostgreSQL that keytill runs on, as in server_version_num.
const MinServerVersion = 150000

//go:embed *.sql
var files embed.FS

// lockUp lets one process migrate at a time. It belongs to a transaction, so that it also works through a pooler.
const lockUp = `SELECT pg_advisory_xact_lock(hashtextextended('keytill.migrations', 0))`

// Up brings the database to the newest schema. It may run in any number of processes at once, and is quick when there
// is nothing to do. There is no way back but DROP SCHEMA keytill CASCADE, which leaves nothing.
func Up(ctx context.Context, pool *pgxpool.Pool) error {
	if err := checkServer(ctx, pool); err != nil {
		return err
	}
	pending, err := Pending(ctx, pool)
	if err != nil || !pending {
		return err
	}
	own, err := ownPool(ctx, pool)
	if err != nil {
		return err
	}
	defer own.Close()
	return pgx.BeginFunc(ctx, own, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockUp); err != nil {
			return fmt.Errorf("wait for another migration: %w", err)
		}
		return up(ctx, own)
	})
}

// ownPool connects like the caller's pool. With connections of that one, those who wait for the lock could take all
// that its holder needs.
func ownPool(ctx context.Context, pool *pgxpool.Pool) (*pgxpool.Pool, error) {
	config := pool.Config()
	config.MinConns, config.MinIdleConns, config.MaxConns = 0, 0, 2 // the lock's, and the migration's
	own, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open connections to migrate on: %w", err)
	}
	return own, nil
}

func up(ctx context.Context, pool *pgxpool.Pool) error {
	if _, err := pool.Exec(ctx, `CREATE SCHEMA IF NOT EXISTS `+Schema); err != nil {
		return fmt.Errorf("create schema %s: %w", Schema, err)
	}
	provider, closeDB, err := newProvider(pool)
	if err != nil {
		return err
	}
	defer closeDB()
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("migrate keytill's tables: %w", err)
	}
	jobs, err := newJobsMigrator(pool)
	if err != nil {
		return err
	}
	if _, err := jobs.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return fmt.Errorf("migrate the job queue's tables: %w", err)
	}
	if _, err := pool.Exec(ctx, dropUnusedIndexes); err != nil {
		return fmt.Errorf("drop the job queue's indexes that nobody uses: %w", err)
	}
	return nil
}

// UnusedIndexes are those of River's indexes that keytill does without. They find jobs by what is in their arguments and
// metadata, which nobody asks for here, and cost more than all the rest of a job's insertion.
func UnusedIndexes() []string { return []string{"river_job_args_index", "river_job_metadata_index"} }

const dropUnusedIndexes = `DROP INDEX IF EXISTS ` + Schema + `.river_job_args_index, ` + Schema + `.river_job_metadata_index`

// Pending reports whether Up has something to do.
func Pending(ctx context.Context, pool *pgxpool.Pool) (bool, error) {
	var whole bool
	err := pool.QueryRow(ctx, `
SELECT to_regclass($1) IS NOT NULL AND to_regclass($2) IS NOT NULL
   AND NOT EXISTS (SELECT 1 FROM unnest($3::text[]) AS unused (name) WHERE to_regclass($4 || '.' || name) IS NOT NULL)`,
		versionTable, Schema+".river_migration", UnusedIndexes(), Schema).Scan(&whole)
	if err != nil {
		return false, fmt.Errorf("look for the schema: %w", err)
	}
	if !whole {
		return true, nil
	}
	provider, closeDB, err := newProvider(pool)
	if err != nil {
		return false, err
	}
	defer closeDB()
	pending, err := provider.HasPending(ctx)
	if err != nil {
		return false, fmt.Errorf("read the schema's version: %w", err)
	}
	if pending {
		return true, nil
	}
	jobs, err := newJobsMigrator(pool)
	if err != nil {
		return false, err
	}
	valid, err := jobs.Validate(ctx, nil)
	if err != nil {
		return false, fmt.Errorf("read the job queue's version: %w", err)
	}
	return !valid.OK, nil
}

// Hash names the schema that Up makes: it changes with every migration file and with the job queue's newest version.
func Hash() (string, error) { return hashOf(files) }

func hashOf(files fs.FS) (string, error) {
	sum := sha256.New()
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return "", err
	}
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "%s\n%s\n", name, text)
	}
	jobs, err := rivermigrate.New(riverpgxv5.New(nil), &rivermigrate.Config{Schema: Schema})
	if err != nil {
		return "", err
	}
	for _, version := range jobs.AllVersions() {
		fmt.Fprintf(sum, "river %d\n", version.Version)
	}
	fmt.Fprintln(sum, dropUnusedIndexes)
	return hex.EncodeToString(sum.Sum(nil)), nil
}

const versionTable = Schema + ".schema_version"

func newProvider(pool *pgxpool.Pool) (*goose.Provider, func(), error) {
	db := stdlib.OpenDBFromPool(pool)
	closeDB := func() { _ = db.Close() }
	store, err := database.NewStore(database.DialectPostgres, versionTable)
	if err != nil {
		closeDB()
		return nil, nil, err
	}
	provider, err := goose.NewProvider(goose.DialectCustom, db, files, goose.WithStore(store), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		closeDB()
		return nil, nil, fmt.Errorf("read the migrations: %w", err)
	}
	return provider, closeDB, nil
}

func newJobsMigrator(pool *pgxpool.Pool) (*rivermigrate.Migrator[pgx.Tx], error) {
	return rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Schema: Schema})
}

// ErrServerTooOld is returned by Up on a PostgreSQL before version 15.
var ErrServerTooOld = errors.New("keytill needs PostgreSQL 15 or newer")

func checkServer(ctx context.Context, pool *pgxpool.Pool) error {
	var version int
	if err := pool.QueryRow(ctx, `SELECT current_setting('server_version_num')::int`).Scan(&version); err != nil {
		return fmt.Errorf("ask for the server's version: %w", err)
	}
	if version < MinServerVersion {
		return fmt.Errorf("%w, this is %d.%d: upgrade it, or point KEYTILL_DATABASE_URL at a newer one",
			ErrServerTooOld, version/10000, version%10000)
	}
	return nil
}
