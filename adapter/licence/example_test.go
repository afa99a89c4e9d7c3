package licence_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/keytill/keytill/adapter/licence"
	"github.com/keytill/keytill/adapter/limit"
	"github.com/keytill/keytill/inventory"
)

// one is a stock of one key. A real one is a fulfillment.Service.
type one struct{}

func (one) Verify(_ context.Context, _, text, _ string) (inventory.Verified, error) {
	if text != "ABCD-1234" {
		return inventory.Verified{Verdict: inventory.Unknown}, nil
	}
	return inventory.Verified{Verdict: inventory.Valid, Key: "key_17", SKU: "editor"}, nil
}

func (one) Changes(context.Context, string, string, int) ([]inventory.KeyChange, string, error) {
	return nil, "", nil
}

func ExampleHandler_Verify() {
	handler := &licence.Handler{Keys: one{}, Limit: limit.New(licence.PerMinute, time.Now)}
	server := httptest.NewServer(http.HandlerFunc(handler.Verify)) // behind access.Tokens.Require, on a real one
	defer server.Close()
	for _, key := range []string{"ABCD-1234", "ABCD-9999"} {
		resp, err := http.Post(server.URL, "application/json", strings.NewReader(`{"key": "`+key+`"}`))
		if err != nil {
			panic(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			panic(err)
		}
		fmt.Println(resp.StatusCode, strings.TrimSpace(string(body)))
	}
	// Output:
	// 200 {"status":"valid","key":"key_17","sku":"editor"}
	// 200 {"status":"unknown","key":"","sku":""}
}
