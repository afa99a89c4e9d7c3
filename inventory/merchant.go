package inventory

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/internal/pg"
)

// ErrMerchantExists says that a merchant's id or account is taken.
var ErrMerchantExists = errors.New("this merchant, or another with this account, exists already")

const (
	// Index: merchants_pkey.
	readStripeAccount = `SELECT coalesce(stripe_account, '') FROM keytill.merchants WHERE merchant_id = $1`

	// Lock: the table, against another merchant with the same account: a unique index on the account alone could not be
	// distributed by merchant.
	lockMerchants  = `LOCK TABLE keytill.merchants IN SHARE ROW EXCLUSIVE MODE`
	insertMerchant = `
INSERT INTO keytill.merchants (merchant_id, stripe_account, channels, created_at)
SELECT $1, $2, coalesce((SELECT channels FROM keytill.merchants WHERE merchant_id = 'default'), '{}'), $3
 WHERE NOT EXISTS (SELECT 1 FROM keytill.merchants WHERE merchant_id = $1 OR stripe_account = $2)`
)

// StripeAccount is the Connect account that a merchant sells through, empty for the platform's own.
func StripeAccount(ctx context.Context, db pg.Querier, merchant string) (account string, err error) {
	err = db.QueryRow(ctx, readStripeAccount, merchant).Scan(&account)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", fmt.Errorf("%s: %w", merchant, ErrNoMerchant)
	}
	if err != nil {
		return "", fmt.Errorf("read merchant %s: %w", merchant, err)
	}
	return account, nil
}

// AddMerchant adds a merchant that sells through a Connect account.
func AddMerchant(ctx context.Context, db pg.Beginner, merchant, account string, at time.Time) error {
	if strings.TrimSpace(account) == "" { // which would be the platform's own
		return fmt.Errorf("merchant %s needs the Stripe account that it sells through (acct_…)", merchant)
	}
	return pg.InTx(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockMerchants); err != nil {
			return fmt.Errorf("lock the merchants: %w", err)
		}
		tag, err := tx.Exec(ctx, insertMerchant, merchant, account, at)
		if pg.Violates(err, "merchants_merchant_id_check") {
			return fmt.Errorf("a merchant's id has lower-case letters, digits, - and _, not %q", merchant)
		}
		if err != nil {
			return fmt.Errorf("add merchant %s: %w", merchant, err)
		}
		if tag.RowsAffected() == 0 {
			return fmt.Errorf("%s: %w", merchant, ErrMerchantExists)
		}
		return nil
	})
}
