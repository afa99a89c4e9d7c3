package inventory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/internal/pg"
)

// ErrKeysUsed says that an old key of the keyset cannot be dropped.
var ErrKeysUsed = errors.New("an old key of the keyset is still used: `keytill keyset rotate` encrypts what is left anew")

const (
	// Lock: the canary. It waits for the imports that are under way, and those that come later see what it writes.
	lockCanaryAlone = `SELECT ciphertext, fingerprint FROM keytill.canary WHERE merchant_id = $1 FOR UPDATE`

	updateCanary = `UPDATE keytill.canary SET ciphertext = $2, fingerprint = $3 WHERE merchant_id = $1`

	readMerchants = `SELECT merchant_id FROM keytill.merchants ORDER BY merchant_id`

	// Index: all rows of the merchant.
	countOld = `
SELECT count(*) FROM keytill.keys
 WHERE merchant_id = $1 AND NOT (substring(ciphertext FOR 5) = $2 AND substring(fingerprint FOR 4) = $3)`

	// Lock: the picked rows, skipping those that somebody is at: what waits for nobody cannot make a deadlock, and they
	// come in the next round. It is the strong lock, since a fingerprint is part of a unique index. Index: keys_pkey.
	lockOld = `
SELECT key_id, pool_id, ciphertext FROM keytill.keys
 WHERE merchant_id = $1 AND key_id > $2 AND NOT (substring(ciphertext FOR 5) = $3 AND substring(fingerprint FOR 4) = $4)
 ORDER BY key_id
 LIMIT $5
   FOR UPDATE SKIP LOCKED`

	// State and position are nobody's business here. Index: keys_pkey.
	writeRotated = `
UPDATE keytill.keys k SET ciphertext = u.ciphertext, fingerprint = u.fingerprint
  FROM unnest($2::bigint[], $3::bytea[], $4::bytea[], $5::bytea[]) AS u (key_id, was, ciphertext, fingerprint)
 WHERE k.merchant_id = $1 AND k.key_id = u.key_id AND k.ciphertext = u.was`
)

const (
	// rotatedAtOnce bounds a transaction of a rotation: a claim skips the keys that it holds, or waits for it.
	rotatedAtOnce = 200

	// rotatePause is between two rounds, for those who hold keys that the first one skipped.
	rotatePause = 50 * time.Millisecond
)

// A RotationProgress is how far a rotation is.
type RotationProgress struct{ Done, Total int64 }

// Rotate encrypts every key anew that is not under the keyset's primary keys, with a new fingerprint, and says how many it
// did. Sales and imports go on meanwhile. Where it is stopped, the next one goes on: what is done is known by how it
// begins. First it seals the canary anew; from then on only processes with the new primary keys import, so nothing
// is added under the old ones.
func (k *Keyset) Rotate(ctx context.Context, db interface {
	pg.Beginner
	pg.Querier
}, progress func(RotationProgress)) (rotated int64, err error) {
	if !k.IsPromoted() {
		return 0, ErrNotPromoted
	}
	if err := k.resealCanary(ctx, db); err != nil {
		return 0, err
	}
	merchants, err := readAllMerchants(ctx, db)
	if err != nil {
		return 0, err
	}
	var p RotationProgress
	for _, merchant := range merchants {
		old, err := k.countOld(ctx, db, merchant)
		if err != nil {
			return 0, err
		}
		p.Total += old
	}
	for _, merchant := range merchants {
		if err := k.rotateMerchant(ctx, db, merchant, &p, progress); err != nil {
			return p.Done, err
		}
	}
	return p.Done, nil
}

func (k *Keyset) resealCanary(ctx context.Context, db pg.Beginner) error {
	return pg.InTx(ctx, db, func(tx pgx.Tx) error {
		var ciphertext, fingerprint []byte
		if err := tx.QueryRow(ctx, lockCanaryAlone, DefaultMerchant).Scan(&ciphertext, &fingerprint); err != nil {
			return fmt.Errorf("lock the canary: %w", err)
		}
		switch {
		case k.behind(ciphertext, fingerprint):
			return ErrOldKeyset
		case k.current(ciphertext, fingerprint):
			return nil
		}
		text, err := k.open(DefaultMerchant, 0, 0, ciphertext)
		if err != nil || string(text) != canaryText {
			return ErrWrongKeyset
		}
		if ciphertext, err = k.seal(DefaultMerchant, 0, 0, text); err != nil {
			return err
		}
		if fingerprint, err = k.Fingerprint(text); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, updateCanary, DefaultMerchant, ciphertext, fingerprint); err != nil {
			return fmt.Errorf("seal the canary anew: %w", err)
		}
		return nil
	})
}

func readAllMerchants(ctx context.Context, db pg.Querier) ([]string, error) {
	rows, err := db.Query(ctx, readMerchants)
	if err != nil {
		return nil, fmt.Errorf("list the merchants: %w", err)
	}
	merchants, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("list the merchants: %w", err)
	}
	return merchants, nil
}

func (k *Keyset) countOld(ctx context.Context, db pg.Querier, merchant string) (old int64, err error) {
	if err := db.QueryRow(ctx, countOld, merchant, k.ciphertextStart(), k.fingerprintStart()).Scan(&old); err != nil {
		return 0, fmt.Errorf("count the keys under an old key: %w", err)
	}
	return old, nil
}

// rotateMerchant walks a merchant's keys until none is left.
func (k *Keyset) rotateMerchant(ctx context.Context, db interface {
	pg.Beginner
	pg.Querier
}, merchant string, p *RotationProgress, progress func(RotationProgress)) error {
	for {
		for after, full := int64(0), true; full; {
			var (
				rotated int
				last    int64
			)
			err := pg.InTx(ctx, db, func(tx pgx.Tx) (err error) {
				rotated, last, err = k.rotateSome(ctx, tx, merchant, after)
				return err
			})
			if err != nil {
				return fmt.Errorf("encrypt the keys of %s anew: %w", merchant, err)
			}
			after, full = last, rotated == rotatedAtOnce
			p.Done += int64(rotated)
			p.Total = max(p.Total, p.Done)
			if progress != nil {
				progress(*p)
			}
		}
		left, err := k.countOld(ctx, db, merchant)
		if err != nil || left == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(rotatePause):
		}
	}
}

// rotateSome encrypts the next keys anew and returns the last one's id.
func (k *Keyset) rotateSome(ctx context.Context, tx pgx.Tx, merchant string, after int64) (rotated int, last int64, err error) {
	rows, err := tx.Query(ctx, lockOld, merchant, after, k.ciphertextStart(), k.fingerprintStart(), rotatedAtOnce)
	if err != nil {
		return 0, after, err
	}
	var (
		ids                           []int64
		was, ciphertexts, fingerprint [][]byte
		id, pool                      int64
		ciphertext                    []byte
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &pool, &ciphertext}, func() error {
		text, err := k.open(merchant, pool, id, ciphertext)
		if err != nil {
			return err
		}
		sealed, err := k.seal(merchant, pool, id, text)
		if err != nil {
			return err
		}
		print, err := k.Fingerprint(text)
		if err != nil {
			return err
		}
		ids, was, ciphertexts, fingerprint = append(ids, id), append(was, ciphertext), append(ciphertexts, sealed), append(fingerprint, print)
		ciphertext = nil // or the next row would be written over this one
		return nil
	})
	if err != nil || len(ids) == 0 {
		return 0, after, err
	}
	tag, err := tx.Exec(ctx, writeRotated, merchant, ids, was, ciphertexts, fingerprint)
	if err != nil {
		return 0, after, err
	}
	if tag.RowsAffected() != int64(len(ids)) {
		return 0, after, fmt.Errorf("%d of %d keys were as they had been read: %w", tag.RowsAffected(), len(ids), ErrMoved)
	}
	return len(ids), ids[len(ids)-1], nil
}

// Unused returns nil if nothing in the database needs the keyset's old keys.
func (k *Keyset) Unused(ctx context.Context, db pg.Querier) error {
	if !k.IsPromoted() {
		return ErrNotPromoted
	}
	ciphertext, fingerprint, err := loadCanary(ctx, db)
	if err != nil {
		return fmt.Errorf("read the canary: %w", err)
	}
	if !k.current(ciphertext, fingerprint) {
		return ErrKeysUsed
	}
	merchants, err := readAllMerchants(ctx, db)
	if err != nil {
		return err
	}
	for _, merchant := range merchants {
		if old, err := k.countOld(ctx, db, merchant); err != nil {
			return err
		} else if old > 0 {
			return fmt.Errorf("%d keys of %s: %w", old, merchant, ErrKeysUsed)
		}
	}
	return nil
}
