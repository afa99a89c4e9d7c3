package inventory

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
)

// Errors of an import. Each leaves the pool as it was.
var (
	ErrImported = errors.New("this file was already imported into this pool; --force imports it again")
	ErrBadRow   = errors.New("the file cannot be imported")
	ErrEmpty    = errors.New("the file holds no key")
)

// MaxKeySize is the longest key that is stored, in bytes.
const MaxKeySize = 4096

// An Import is one file of keys, one key a line, that becomes one batch: all of it or nothing.
type Import struct {
	Pool     Pool
	File     io.Reader
	FileName string
	Supplier string
	Actor    string
	DryRun   bool // the same report, and nothing changes
	Force    bool // even if the same file was imported before
	At       time.Time
}

// A Report says what became of each row of a file. Rows are counted from 1.
type Report struct {
	Batch            int64 `json:"batch,omitempty"` // 0 on a dry run, or where nothing was new
	Rows             int64 `json:"rows"`
	New              int64 `json:"new"`
	DuplicateInFile  int64 `json:"duplicate_in_file"`
	DuplicateInStock int64 `json:"duplicate_in_stock"`
	Blank            int64 `json:"blank"`
	Trimmed          int64 `json:"trimmed"` // rows that had ASCII spaces around the key
}

const (
	// staged rows are this transaction's own and gone with it.
	createStaged = `
CREATE TEMPORARY TABLE staged (
    row bigint NOT NULL, key_id bigint NOT NULL, ciphertext bytea NOT NULL, fingerprint bytea NOT NULL
) ON COMMIT DROP`

	nextKeyBlock = `SELECT nextval('keytill.key_block')`

	// Index: batches_file.
	readImported = `SELECT EXISTS (SELECT 1 FROM keytill.batches WHERE merchant_id = $1 AND pool_id = $2 AND file_hash = $3)`

	insertBatch = `
INSERT INTO keytill.batches (merchant_id, pool_id, file_name, file_hash, supplier, actor, keys, created_at)
VALUES ($1, $2, $3, $4, $5, $6, 0, $7)
RETURNING batch_id`

	// The first of equal rows is the one that counts.
	dropStagedTwice = `
DELETE FROM staged s USING (SELECT fingerprint, min(row) AS first FROM staged GROUP BY fingerprint HAVING count(*) > 1) AS twice
 WHERE s.fingerprint = twice.fingerprint AND s.row > twice.first`

	// Index: keys_fingerprint.
	dropStagedKnown = `
DELETE FROM staged s USING keytill.keys k
 WHERE k.merchant_id = $1 AND k.pool_id = $2 AND k.fingerprint = s.fingerprint`

	insertStaged = `
INSERT INTO keytill.keys (merchant_id, key_id, pool_id, batch_id, position, ciphertext, fingerprint)
SELECT $1, key_id, $2, $3, key_id, ciphertext, fingerprint FROM staged ORDER BY row`

	insertImported = `
INSERT INTO keytill.movements (merchant_id, pool_id, keys, batch_id, to_state, reason, actor, at)
VALUES ($1, $2, $3, $4, 'available', 'import', $5, $6)`

	finishBatch = `UPDATE keytill.batches SET keys = $3, report = $4 WHERE merchant_id = $1 AND batch_id = $2`
)

// keysPerBlock is how many ids a number of the sequence key_block stands for.
const keysPerBlock = 1_000_000

// Load brings a file's keys onto the shelf. The caller holds the pool's lock (LockPools), so that two imports into one
// pool cannot each miss the other's duplicates, and serves the units that wait for stock in the same transaction.
func (k *Keyset) Load(ctx context.Context, tx pgx.Tx, imp Import) (Report, error) {
	if _, err := tx.Exec(ctx, createStaged); err != nil {
		return Report{}, fmt.Errorf("make the staging table: %w", err)
	}
	file := newFileRows(imp.File)
	if err := k.stage(ctx, tx, imp.Pool, file); err != nil {
		return Report{}, err
	}
	report := file.report
	if report.Rows == report.Blank {
		return report, ErrEmpty
	}
	fileHash := file.sum()
	if err := refuseImported(ctx, tx, imp, fileHash); err != nil {
		return report, err
	}
	if err := countDuplicates(ctx, tx, imp.Pool, &report); err != nil {
		return report, err
	}
	if imp.DryRun || report.New == 0 {
		return report, nil
	}
	return report, insertNew(ctx, tx, imp, fileHash, &report)
}

func (k *Keyset) stage(ctx context.Context, tx pgx.Tx, pool Pool, file *fileRows) error {
	for !file.done {
		var block int64
		if err := tx.QueryRow(ctx, nextKeyBlock).Scan(&block); err != nil {
			return fmt.Errorf("take key ids: %w", err)
		}
		staged := &stagedRows{keyset: k, pool: pool, file: file, nextID: block * keysPerBlock, end: (block + 1) * keysPerBlock}
		_, err := tx.CopyFrom(ctx, pgx.Identifier{"staged"}, []string{"row", "key_id", "ciphertext", "fingerprint"}, staged)
		if staged.err != nil {
			return staged.err // the file's fault, in the file's words
		}
		if err != nil {
			return fmt.Errorf("copy the file: %w", err)
		}
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

func countDuplicates(ctx context.Context, tx pgx.Tx, pool Pool, report *Report) error {
	tag, err := tx.Exec(ctx, dropStagedTwice)
	if err != nil {
		return fmt.Errorf("look for duplicates in the file: %w", err)
	}
	report.DuplicateInFile = tag.RowsAffected()
	tag, err = tx.Exec(ctx, dropStagedKnown, pool.Merchant, pool.ID)
	if err != nil {
		return fmt.Errorf("look for duplicates in stock: %w", err)
	}
	report.DuplicateInStock = tag.RowsAffected()
	report.New = report.Rows - report.Blank - report.DuplicateInFile - report.DuplicateInStock
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

// stagedRows feeds COPY: it encrypts a row at a time, so that a file of any size needs little memory.
type stagedRows struct {
	keyset *Keyset
	pool   Pool
	file   *fileRows

	nextID, end int64
	values      []any
	err         error
}

func (s *stagedRows) Next() bool {
	if s.err != nil || s.nextID == s.end {
		return false
	}
	text, err := s.file.next()
	if err != nil || text == nil {
		s.err = err
		return false
	}
	id := s.nextID
	s.nextID++
	ciphertext, err := s.keyset.seal(s.pool.Merchant, s.pool.ID, id, text)
	if err != nil {
		s.err = err
		return false
	}
	fingerprint, err := s.keyset.Fingerprint(text)
	if err != nil {
		s.err = err
		return false
	}
	s.values = []any{s.file.report.Rows, id, ciphertext, fingerprint}
	return true
}

func (s *stagedRows) Values() ([]any, error) { return s.values, nil }

func (s *stagedRows) Err() error { return s.err }

// fileRows reads keys, one a line.
type fileRows struct {
	lines  *bufio.Scanner
	hash   hash.Hash
	report Report
	done   bool
}

func newFileRows(file io.Reader) *fileRows {
	sum := sha256.New()
	lines := bufio.NewScanner(io.TeeReader(file, sum))
	// Room for the longest key, spaces around it and a byte-order mark; anything longer is refused with its row.
	lines.Buffer(make([]byte, 0, 64*1024), 64*1024)
	return &fileRows{lines: lines, hash: sum}
}

var byteOrderMark = []byte("\uFEFF")

// next is the next key's text, valid until the following call; nil at the end. Blank rows are counted and passed over.
func (f *fileRows) next() ([]byte, error) {
	for f.lines.Scan() {
		f.report.Rows++
		line := bytes.TrimSuffix(f.lines.Bytes(), []byte("\r"))
		if f.report.Rows == 1 {
			line = bytes.TrimPrefix(line, byteOrderMark)
		}
		text := bytes.Trim(line, " ")
		if len(text) == 0 {
			f.report.Blank++
			continue
		}
		if len(text) < len(line) {
			f.report.Trimmed++
		}
		return text, f.check(text)
	}
	f.done = true
	if err := f.lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, fmt.Errorf("%w: row %d is longer than 64 KiB; a key has at most %d bytes", ErrBadRow, f.report.Rows+1, MaxKeySize)
	} else if err != nil {
		return nil, fmt.Errorf("read the file after row %d: %w", f.report.Rows, err)
	}
	return nil, nil
}

func (f *fileRows) check(text []byte) error {
	switch {
	case len(text) > MaxKeySize:
		return fmt.Errorf("%w: row %d has %d bytes; a key has at most %d", ErrBadRow, f.report.Rows, len(text), MaxKeySize)
	case !utf8.Valid(text):
		return fmt.Errorf("%w: row %d is not UTF-8; convert the file to UTF-8", ErrBadRow, f.report.Rows)
	case bytes.IndexByte(text, 0) >= 0:
		return fmt.Errorf("%w: row %d holds a NUL byte", ErrBadRow, f.report.Rows)
	}
	return nil
}

func (f *fileRows) sum() []byte { return f.hash.Sum(nil) }
