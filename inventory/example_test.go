package inventory_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/internal/pg"
	"github.com/keytill/keytill/internal/pgtest"
	"github.com/keytill/keytill/inventory"
)

// A supplier's file comes onto the shelf. The keys are encrypted before they reach the database, and found there by a
// fingerprint.
func Example() {
	db, done := pgtest.Example()
	defer done()
	ctx := context.Background()
	keyset, err := inventory.NewKeyset()
	if err == nil {
		err = inventory.CheckKeyset(ctx, db, keyset) // it is this database's from now on
	}
	if err != nil {
		panic(err)
	}
	var (
		pool   inventory.Pool
		report inventory.Report
	)
	err = pg.InTx(ctx, db, func(tx pgx.Tx) error {
		pool, err = inventory.CreatePool(ctx, tx, inventory.Pool{Merchant: inventory.DefaultMerchant, SKU: "game", CreatedAt: time.Now()})
		if err != nil {
			return err
		}
		report, err = keyset.Load(ctx, tx, inventory.Import{Pool: pool, File: strings.NewReader("GAME-1\nGAME-2\nGAME-1\n"), FileName: "keys.txt",
			Actor: "jane", At: time.Now()})
		return err
	})
	if err != nil {
		panic(err)
	}
	fmt.Println("new:", report.New, "twice in the file:", report.DuplicateInFile)

	stock, err := inventory.Stock(ctx, db, pool.Merchant, pool.ID)
	if err != nil {
		panic(err)
	}
	fmt.Println("on the shelf:", stock[pool.ID][inventory.Available])

	found, err := keyset.Verify(ctx, db, pool.Merchant, "GAME-2", "")
	if err != nil {
		panic(err)
	}
	fmt.Println("GAME-2 is", found.Verdict)
	// Output:
	// new: 2 twice in the file: 1
	// on the shelf: 2
	// GAME-2 is unsold
}
