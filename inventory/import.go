package inventory

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"
)

// Errors of an import. Each leaves the pool as it was.
var (
	ErrImported   = errors.New("this file was already imported into this pool; --force imports it again")
	ErrBadRow     = errors.New("the file cannot be imported")
	ErrEmpty      = errors.New("the file holds no key")
	ErrDuplicates = errors.New("the file holds keys that are there already, and duplicates are to be refused")
	ErrOldKeyset  = errors.New("the keys are being encrypted anew with a newer key than this keyset's primary one: start with the promoted keyset")
)

// MaxKeySize is the longest key that is stored, in bytes.
const MaxKeySize = 4096

// DuplicatePolicy says what becomes of a file with keys that are there already.
type DuplicatePolicy string

const (
	SkipDuplicates   DuplicatePolicy = "skip"   // they are reported and not stored again, the others are stored
	RefuseDuplicates DuplicatePolicy = "refuse" // nothing is stored
)

// An Import is one file of keys that becomes one batch: all of it or nothing.
type Import struct {
	Pool     Pool
	File     io.Reader // UTF-8, or UTF-16 with its byte-order mark
	FileName string
	Supplier string
	Actor    string

	Format      Format // by the file's name and the settings below unless set
	Column      string // the keys' column of a CSV file, by name or number from 1; a well-known name unless set
	UseByColumn string // the column with the last day of use, as 2027-12-31; none unless set
	NoHeader    bool   // the first row is a key's
	Separator   rune   // a comma unless set

	Duplicates  DuplicatePolicy // skip unless set
	AcrossPools bool            // keys of the merchant's other pools are duplicates too
	DryRun      bool            // the same report, and nothing changes
	Force       bool            // even if the same file was imported before
	At          time.Time

	// Progress is called now and then, from one goroutine at a time; it must not block.
	Progress func(Progress)
}

// Stage is a part of an import's work.
type Stage string

const (
	StageReading  Stage = "reading"  // the file, encrypting its keys
	StageChecking Stage = "checking" // for duplicates
	StageStoring  Stage = "storing"
)

// Progress is how far an import is.
type Progress struct {
	Stage Stage
	Rows  int64 // read so far
	Bytes int64 // of the file
}

func (imp Import) tell(stage Stage, file *fileRows) {
	if imp.Progress != nil {
		imp.Progress(Progress{Stage: stage, Rows: file.report.Rows, Bytes: int64(file.bytes)})
	}
}

const (
	// staged rows are this transaction's own and gone with it. older are the fingerprints of the keyset's other keys.
	createStaged = `
CREATE TEMPORARY TABLE staged (
    row bigint NOT NULL, key_id bigint NOT NULL, ciphertext bytea NOT NULL, fingerprint bytea NOT NULL, older bytea[], use_by date
) ON COMMIT DROP`

	nextKeyBlock = `SELECT nextval('keytill.key_block')`

	// Lock: the canary, shared with other imports, so that no re-encryption begins before this import has ended.
	lockCanary = `SELECT ciphertext, fingerprint FROM keytill.canary WHERE merchant_id = $1 FOR SHARE`

	// Index: batches_file.
	readImported = `SELECT EXISTS (SELECT 1 FROM keytill.batches WHERE merchant_id = $1 AND pool_id = $2 AND file_hash = $3)`

	insertBatch = `
INSERT INTO keytill.batches (merchant_id, pool_id, file_name, file_hash, supplier, actor, keys, created_at)
VALUES ($1, $2, $3, $4, $5, $6, 0, $7)
RETURNING batch_id`

	insertStaged = `
INSERT INTO keytill.keys (merchant_id, key_id, pool_id, batch_id, position, ciphertext, fingerprint, use_by)
SELECT $1, key_id, $2, $3, key_id, ciphertext, fingerprint, use_by FROM staged`

	insertImported = `
INSERT INTO keytill.movements (merchant_id, pool_id, keys, batch_id, to_state, reason, actor, at)
VALUES ($1, $2, $3, $4, 'available', 'import', $5, $6)`

	finishBatch = `UPDATE keytill.batches SET keys = $3, report = $4 WHERE merchant_id = $1 AND batch_id = $2`
)

// Load brings a file's keys onto the shelf. Once it has read the file it takes the pool's lock, so that two imports into
// one pool cannot each miss the other's duplicates, and a slow file keeps nobody waiting; the caller holds no lock
// before, and serves the units that wait for stock in the same transaction.
func (k *Keyset) Load(ctx context.Context, tx pgx.Tx, imp Import) (Report, error) {
	if _, err := tx.Exec(ctx, createStaged); err != nil {
		return Report{}, fmt.Errorf("make the staging table: %w", err)
	}
	file := newFileRows(imp)
	if err := k.stage(ctx, tx, imp, file); err != nil {
		return Report{}, err
	}
	report := &file.report
	if report.Rows == report.Blank {
		return *report, ErrEmpty
	}
	imp.tell(StageChecking, file)
	if err := LockPools(ctx, tx, imp.Pool.Merchant, []int64{imp.Pool.ID}); err != nil {
		return *report, err
	}
	if err := k.refuseOld(ctx, tx); err != nil {
		return *report, err
	}
	fileHash := file.sum()
	if err := refuseImported(ctx, tx, imp, fileHash); err != nil {
		return *report, err
	}
	if err := k.countDuplicates(ctx, tx, imp, report); err != nil {
		return *report, err
	}
	if imp.DryRun || report.New == 0 {
		return *report, nil
	}
	imp.tell(StageStoring, file)
	return *report, insertNew(ctx, tx, imp, fileHash, report)
}

// refuseOld refuses a keyset whose primary key is older than the one that the keys are being encrypted with: what it
// stored now would be missed by those who drop its key.
func (k *Keyset) refuseOld(ctx context.Context, tx pgx.Tx) error {
	var ciphertext, fingerprint []byte
	err := tx.QueryRow(ctx, lockCanary, DefaultMerchant).Scan(&ciphertext, &fingerprint)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil // nobody has checked a keyset against this database yet
	case err != nil:
		return fmt.Errorf("lock the canary: %w", err)
	case k.behind(ciphertext, fingerprint):
		return ErrOldKeyset
	}
	return nil
}

func refuseImported(ctx context.Context, tx pgx.Tx, imp Import, fileHash []byte) error {
	if imp.Force {
		return nil
	}
	var imported bool
	if err := tx.QueryRow(ctx, readImported, imp.Pool.Merchant, imp.Pool.ID, fileHash).Scan(&imported); err != nil {
		return fmt.Errorf("look for the file among the batches: %w", err)
	}
	if imported {
		return fmt.Errorf("%s: %w", imp.FileName, ErrImported)
	}
	return nil
}

func insertNew(ctx context.Context, tx pgx.Tx, imp Import, fileHash []byte, report *Report) error {
	merchant, pool := imp.Pool.Merchant, imp.Pool.ID
	err := tx.QueryRow(ctx, insertBatch, merchant, pool, imp.FileName, fileHash, imp.Supplier, imp.Actor, imp.At).Scan(&report.Batch)
	if err != nil {
		return fmt.Errorf("make the batch: %w", err)
	}
	if _, err := tx.Exec(ctx, insertStaged, merchant, pool, report.Batch); err != nil {
		return fmt.Errorf("insert the keys: %w", err)
	}
	if _, err := tx.Exec(ctx, insertImported, merchant, pool, report.New, report.Batch, imp.Actor, imp.At); err != nil {
		return fmt.Errorf("record the import: %w", err)
	}
	if _, err := tx.Exec(ctx, finishBatch, merchant, report.Batch, report.New, report); err != nil {
		return fmt.Errorf("finish the batch: %w", err)
	}
	return nil
}
