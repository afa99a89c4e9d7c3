package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/keytill/keytill/adapter"
	"github.com/keytill/keytill/adapter/access"
	"github.com/keytill/keytill/internal/pgtest"
	"github.com/keytill/keytill/internal/stripefake"
	"github.com/keytill/keytill/inventory"
)

// A storefront in another language holds stock, lets its buyer pay, and reads the keys on its thank-you page.
func Example() {
	till, stripe, done := exampleTill()
	defer done()
	till.ask("POST", "/v1/pools", `{"sku": "game", "name": "The Game"}`)
	till.ask("PUT", "/v1/mappings/price_game", `{"sku": "game"}`)
	till.ask("POST", "/v1/pools/game/imports", "GAME-1\nGAME-2\n")

	held := till.ask("POST", "/v1/reservations", `{"ref": "cart-17", "lines": [{"sku": "game", "quantity": 2}]}`)
	fmt.Println("held:", held["keys"])
	more := till.ask("POST", "/v1/reservations", `{"ref": "cart-18", "lines": [{"sku": "game", "quantity": 1}]}`)
	fmt.Println(more["status"], more["title"])

	err := stripe.Session("cs_1", []stripefake.Item{{Price: "price_game", Quantity: 2, Amount: 1000}},
		stripefake.Fields{"client_reference_id": "cart-17"})
	if err != nil {
		panic(err)
	}
	order := till.ask("POST", "/v1/orders/cs_1/settle", "")
	fmt.Println(order["id"], order["payment"])
	keys := till.ask("GET", "/v1/orders/cs_1/keys", "")
	for _, key := range keys["keys"].([]any) {
		fmt.Println(key.(map[string]any)["key"])
	}
	fmt.Println(till.ask("GET", "/v1/openapi.json", "")["openapi"])
	// Output:
	// held: 2
	// 409 Conflict
	// cs_1 paid
	// GAME-1
	// GAME-2
	// 3.1.0
}

// exampleClient asks with a token, as any HTTP client does.
type exampleClient struct{ url, token string }

func (c exampleClient) ask(method, path, body string) (answer map[string]any) {
	req, err := http.NewRequest(method, c.url+path, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	req.Header.Set("Content-Type", "application/json")
	if strings.HasSuffix(path, "/imports") {
		req.Header.Set("Content-Type", "application/octet-stream")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil {
		err = json.NewDecoder(bytes.NewReader(text)).Decode(&answer)
	}
	if err != nil {
		panic(fmt.Sprintf("%s %s: %s: %v", method, path, text, err))
	}
	return answer
}

// exampleTill is a daemon with a database and a Stripe of its own.
func exampleTill() (exampleClient, *stripefake.Server, func()) {
	db, drop := pgtest.Example()
	stripe := stripefake.Start(stripefake.Config{})
	token, line, err := access.New(access.Token{Name: "example", Role: access.Admin})
	if err != nil {
		panic(err)
	}
	tokens, err := access.Read(strings.NewReader(line))
	if err != nil {
		panic(err)
	}
	keyset, err := inventory.NewKeyset()
	if err != nil {
		panic(err)
	}
	shop, err := adapter.New(context.Background(), adapter.Config{Pool: db, Keyset: keyset, Tokens: tokens, Logger: slog.New(slog.DiscardHandler),
		Stripe: adapter.Stripe{APIKey: stripe.APIKey(), WebhookSecrets: stripe.Secrets(), URL: stripe.URL()}})
	if err != nil {
		panic(err)
	}
	server := httptest.NewServer(shop.Handler())
	return exampleClient{server.URL, token}, stripe, func() {
		server.Close()
		stripe.Close()
		drop()
	}
}
