package inventory

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// keysPerBlock is how many ids a number of the sequence key_block stands for.
const keysPerBlock = 1_000_000

// progressEvery is after how many rows an import tells how far it is.
const progressEvery = 1 << 12

// stage copies a file, encrypted, into the staging table.
func (k *Keyset) stage(ctx context.Context, tx pgx.Tx, imp Import, file *fileRows) error {
	for !file.done {
		var block int64
		if err := tx.QueryRow(ctx, nextKeyBlock).Scan(&block); err != nil {
			return fmt.Errorf("take key ids: %w", err)
		}
		staged := &stagedRows{keyset: k, imp: imp, file: file, nextID: block * keysPerBlock, end: (block + 1) * keysPerBlock}
		_, err := tx.CopyFrom(ctx, pgx.Identifier{"staged"}, stagedColumns, staged)
		if staged.err != nil {
			return staged.err // the file's fault, in the file's words
		}
		if err != nil {
			return fmt.Errorf("copy the file: %w", err)
		}
	}
	return nil
}

var stagedColumns = []string{"row", "key_id", "ciphertext", "fingerprint", "older", "use_by"}

// stagedRows feeds COPY: it encrypts a row at a time, so that a file of any size needs little memory.
type stagedRows struct {
	keyset *Keyset
	imp    Import
	file   *fileRows

	nextID, end int64
	values      [6]any
	err         error
}

// Next reads and encrypts a row.
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
	if id%progressEvery == 0 {
		s.imp.tell(StageReading, s.file)
	}
	ciphertext, err := s.keyset.seal(s.imp.Pool.Merchant, s.imp.Pool.ID, id, text)
	if err != nil {
		s.err = err
		return false
	}
	fingerprints, err := s.keyset.Fingerprints(text)
	if err != nil {
		s.err = err
		return false
	}
	s.values = [6]any{s.file.row, id, ciphertext, fingerprints[0], nil, nil}
	if len(fingerprints) > 1 {
		s.values[4] = fingerprints[1:]
	}
	if s.file.useBy != nil {
		s.values[5] = *s.file.useBy
	}
	return true
}

// Values are the columns of the row that Next read.
func (s *stagedRows) Values() ([]any, error) { return s.values[:], nil }

// Err is what ended the rows too early.
func (s *stagedRows) Err() error { return s.err }
