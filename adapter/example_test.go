package adapter_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/adapter"
	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/internal/pg"
	"github.com/keytill/keytill/internal/pgtest"
	"github.com/keytill/keytill/internal/stripefake"
	"github.com/keytill/keytill/inventory"
)

// A storefront mounts a Shop, and settles on its thank-you page. Here are a database and a Stripe of the example's own.
func Example() {
	ctx := context.Background()
	db, done := pgtest.Example()
	defer done()
	stripe := stripefake.Start(stripefake.Config{})
	defer stripe.Close()
	keyset, err := inventory.NewKeyset()
	if err != nil {
		panic(err)
	}

	shop, err := adapter.New(ctx, adapter.Config{Pool: db, Keyset: keyset, Logger: slog.New(slog.DiscardHandler),
		Stripe: adapter.Stripe{APIKey: stripe.APIKey(), WebhookSecrets: stripe.Secrets(), URL: stripe.URL()}})
	if err != nil {
		panic(err)
	}
	router := chi.NewRouter()
	shop.Mount(router) // and, in a goroutine of their own, the workers: shop.Run(ctx)
	w := httptest.NewRecorder()
	router.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	fmt.Print(w.Body)

	// A product that price_game sells, on the way while a buyer pays for two.
	err = pg.InTx(ctx, db, func(tx pgx.Tx) error {
		_, err := inventory.CreatePool(ctx, tx, inventory.Pool{Merchant: inventory.DefaultMerchant, SKU: "game"})
		return err
	})
	if err != nil {
		panic(err)
	}
	pool, err := inventory.PoolBySKU(ctx, db, inventory.DefaultMerchant, "game")
	if err == nil {
		err = shop.Service().Map(ctx, inventory.DefaultMerchant, "price_game", &pool, 1)
	}
	if err == nil {
		err = stripe.Session("cs_1", []stripefake.Item{{Price: "price_game", Quantity: 2, Amount: 1000}}, nil)
	}
	if err != nil {
		panic(err)
	}
	order, err := shop.Settle(ctx, "cs_1")
	fmt.Println(order.Payment, order.Units(), err)

	// Both wait; a file with one key serves the first.
	_, served, err := shop.Service().Import(ctx, inventory.Import{Pool: pool, File: strings.NewReader("GAME-1\n"), FileName: "keys.txt"})
	fmt.Println("served:", served, err)
	order, err = shop.Settle(ctx, "cs_1")
	fmt.Println(order.Units(), err)
	keys, err := shop.Service().Keys(ctx, inventory.DefaultMerchant, order, fulfillment.UnitFulfilled)
	fmt.Println(keys, err)
	// Output:
	// ready
	// paid map[waiting:2] <nil>
	// served: 1 <nil>
	// map[fulfilled:1 waiting:1] <nil>
	// [GAME-1] <nil>
}
