package webhooks_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/keytill/keytill/webhooks"
	"github.com/stripe/stripe-go/v76/webhook"
)

// printer is an inbox that keeps nothing. A real one commits a row before it returns.
type printer struct{}

func (printer) Record(_ context.Context, ev webhooks.Event) error {
	fmt.Println("look again at", ev.Payment, "because of", ev.Type)
	return nil
}

func Example() {
	verifier, err := webhooks.NewVerifier(webhooks.VerifierConfig{Secrets: []string{"whsec_example"}})
	if err != nil {
		panic(err)
	}
	handler, err := webhooks.NewHandler(webhooks.Config{Verifier: verifier, Inbox: printer{}})
	if err != nil {
		panic(err)
	}

	// What Stripe does:
	body := `{"id":"evt_1","object":"event","type":"charge.refunded","data":{"object":
		{"id":"ch_1","object":"charge","payment_intent":"pi_1"}}}`
	signed := webhook.GenerateTestSignedPayload(&webhook.UnsignedPayload{Payload: []byte(body), Secret: "whsec_example"})
	post := func(header string) int {
		r := httptest.NewRequest(http.MethodPost, "/webhooks/stripe", strings.NewReader(body))
		r.Header.Set("Stripe-Signature", header)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w.Code
	}
	fmt.Println(post(signed.Header))
	fmt.Println(post("t=1,v1=00"))

	// Output:
	// look again at pi_1 because of charge.refunded
	// 200
	// 400
}
