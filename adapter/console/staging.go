package console

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/internal/pg"
	"github.com/keytill/keytill/inventory"
)

// Between the dry run and its confirmation a file lies in the database, encrypted, so that what is imported is what was
// shown, byte for byte, whichever process gets the confirmation. It is never on a disk in the clear.

// uploadLasts is how long somebody may read a dry run before they confirm it.
const uploadLasts = 30 * time.Minute

// settings are how a file is to be read: the same for the dry run and the import.
type settings struct {
	FileName    string                    `json:"file"`
	Supplier    string                    `json:"supplier,omitempty"`
	Format      inventory.Format          `json:"format,omitempty"`
	Column      string                    `json:"column,omitempty"`
	UseByColumn string                    `json:"use_by_column,omitempty"`
	NoHeader    bool                      `json:"no_header,omitempty"`
	Separator   rune                      `json:"separator,omitempty"`
	Duplicates  inventory.DuplicatePolicy `json:"duplicates,omitempty"`
	AcrossPools bool                      `json:"across_pools,omitempty"`
	Force       bool                      `json:"force,omitempty"`
}

// A staged file is one that was tried and not imported yet.
type staged struct {
	ID       string
	SKU      string
	Settings settings
	Report   inventory.Report
	Size     int
	Expires  time.Time
}

const (
	deleteOldUploads = `DELETE FROM keytill.console_uploads WHERE merchant_id = $1 AND expires_at <= $2`

	insertUpload = `
INSERT INTO keytill.console_uploads (merchant_id, upload_id, actor, sku, settings, report, ciphertext, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`

	// Index: console_uploads_pkey.
	readUpload = `
SELECT sku, settings, report, octet_length(ciphertext), expires_at FROM keytill.console_uploads
 WHERE merchant_id = $1 AND upload_id = $2 AND actor = $3 AND expires_at > $4`

	// The row is gone for whoever comes second, so that one upload is imported once. Index: console_uploads_pkey.
	takeUpload = `
DELETE FROM keytill.console_uploads WHERE merchant_id = $1 AND upload_id = $2 AND actor = $3 AND expires_at > $4
RETURNING sku, settings, report, octet_length(ciphertext), expires_at, ciphertext`
)

func newSealers(keyset *inventory.Keyset) ([]cipher.AEAD, error) {
	secrets, err := keyset.Derive("uploads to the console")
	if err != nil {
		return nil, err
	}
	sealers := make([]cipher.AEAD, len(secrets))
	for i, secret := range secrets {
		block, err := aes.NewCipher(secret)
		if err != nil {
			return nil, fmt.Errorf("encrypt uploads: %w", err)
		}
		if sealers[i], err = cipher.NewGCMWithRandomNonce(block); err != nil {
			return nil, fmt.Errorf("encrypt uploads: %w", err)
		}
	}
	return sealers, nil
}

// rowData binds a ciphertext to its row.
func rowData(merchant, id string) []byte { return []byte(id + " " + merchant) }

// stage keeps a file that was tried, and returns its id.
func (c *Console) stage(ctx context.Context, v *visit, sku string, s settings, report inventory.Report, file []byte) (string, error) {
	id, now := rand.Text(), c.Now()
	settingsText, err := json.Marshal(s)
	if err != nil {
		return "", err
	}
	reportText, err := json.Marshal(report)
	if err != nil {
		return "", err
	}
	batch := &pgx.Batch{}
	batch.Queue(deleteOldUploads, v.who.Merchant, now)
	batch.Queue(insertUpload, v.who.Merchant, id, v.who.Name, sku, settingsText, reportText,
		c.sealers[0].Seal(nil, nil, file, rowData(v.who.Merchant, id)), now.Add(uploadLasts))
	if err := c.DB.SendBatch(ctx, batch).Close(); err != nil {
		return "", fmt.Errorf("keep the upload: %w", err)
	}
	return id, nil
}

// staged reads what is known of an upload.
func (c *Console) staged(ctx context.Context, v *visit, id string) (staged, error) {
	u := staged{ID: id}
	err := c.DB.QueryRow(ctx, readUpload, v.who.Merchant, id, v.who.Name, c.Now()).Scan(&u.SKU, &u.Settings, &u.Report, &u.Size, &u.Expires)
	if errors.Is(err, pgx.ErrNoRows) {
		return u, errNoUpload
	}
	if err != nil {
		return u, fmt.Errorf("read upload %s: %w", id, err)
	}
	return u, nil
}

// take takes an upload away, with its file.
func (c *Console) take(ctx context.Context, db pg.Querier, v *visit, id string) (u staged, file []byte, err error) {
	u.ID = id
	var ciphertext []byte
	err = db.QueryRow(ctx, takeUpload, v.who.Merchant, id, v.who.Name, c.Now()).
		Scan(&u.SKU, &u.Settings, &u.Report, &u.Size, &u.Expires, &ciphertext)
	if errors.Is(err, pgx.ErrNoRows) {
		return u, nil, errNoUpload
	}
	if err != nil {
		return u, nil, fmt.Errorf("take upload %s: %w", id, err)
	}
	for _, sealer := range c.sealers {
		if file, err = sealer.Open(nil, nil, ciphertext, rowData(v.who.Merchant, id)); err == nil {
			return u, file, nil
		}
	}
	return u, nil, fmt.Errorf("upload %s does not open with this keyset", id)
}
