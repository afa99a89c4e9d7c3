package inventory

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/internal/pg"
)

// ErrWrongKeyset is returned by CheckKeyset for a keyset that did not encrypt this database.
var ErrWrongKeyset = errors.New("this keyset did not encrypt this database: give the one that did, or restore it from its backup")

const canaryText = "keytill canary"

const (
	readCanary = `SELECT ciphertext, fingerprint FROM keytill.canary WHERE merchant_id = $1`

	// Lock: none beyond the row's own. Of two first starts one wins, and both read the winner's row.
	insertCanary = `INSERT INTO keytill.canary (merchant_id, ciphertext, fingerprint) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`
)

// DefaultMerchant is the merchant that exists from the start and owns the platform's own Stripe account.
const DefaultMerchant = "default"

// CheckKeyset opens the database's canary with the keyset, or seals one in a database that has none yet. Both parts of
// the keyset must be right: with another fingerprint part, keys would open and duplicates would be taken for new.
func CheckKeyset(ctx context.Context, db pg.Querier, keyset *Keyset) error {
	ciphertext, fingerprint, err := loadCanary(ctx, db)
	if errors.Is(err, pgx.ErrNoRows) {
		if err := putCanary(ctx, db, keyset); err != nil {
			return err
		}
		ciphertext, fingerprint, err = loadCanary(ctx, db)
	}
	if err != nil {
		return fmt.Errorf("read the canary: %w", err)
	}
	text, err := keyset.open(DefaultMerchant, 0, 0, ciphertext)
	if err != nil || string(text) != canaryText {
		return ErrWrongKeyset
	}
	fingerprints, err := keyset.Fingerprints([]byte(canaryText))
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(fingerprints, func(f []byte) bool { return bytes.Equal(f, fingerprint) }) {
		return ErrWrongKeyset
	}
	return nil
}

func loadCanary(ctx context.Context, db pg.Querier) (ciphertext, fingerprint []byte, err error) {
	err = db.QueryRow(ctx, readCanary, DefaultMerchant).Scan(&ciphertext, &fingerprint)
	return ciphertext, fingerprint, err
}

func putCanary(ctx context.Context, db pg.Querier, keyset *Keyset) error {
	ciphertext, err := keyset.seal(DefaultMerchant, 0, 0, []byte(canaryText))
	if err != nil {
		return err
	}
	fingerprint, err := keyset.Fingerprint([]byte(canaryText))
	if err != nil {
		return err
	}
	if _, err := db.Exec(ctx, insertCanary, DefaultMerchant, ciphertext, fingerprint); err != nil {
		return fmt.Errorf("store the canary: %w", err)
	}
	return nil
}
