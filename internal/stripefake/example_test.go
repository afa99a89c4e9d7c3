package stripefake_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/keytill/keytill/internal/stripefake"
	"github.com/stripe/stripe-go/v76"
	"github.com/stripe/stripe-go/v76/client"
	"github.com/stripe/stripe-go/v76/webhook"
)

// A webhook that believes nothing of the payload but the id, and asks Stripe.
func Example() {
	fake := stripefake.Start(stripefake.Config{})
	defer fake.Close()
	api := client.New(fake.APIKey(), &stripe.Backends{API: stripe.GetBackendWithConfig(
		stripe.APIBackend, &stripe.BackendConfig{URL: stripe.String(fake.URL())})})

	shop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		ev, err := webhook.ConstructEvent(body, r.Header.Get("Stripe-Signature"), fake.Secrets()[0])
		if err != nil {
			http.Error(w, "bad signature", http.StatusBadRequest)
			return
		}
		cs, err := api.CheckoutSessions.Get(ev.GetObjectValue("id"), nil)
		if err != nil {
			http.Error(w, "not now", http.StatusServiceUnavailable)
			return
		}
		fmt.Println(cs.ID, "said", ev.GetObjectValue("payment_status"), "and is", cs.PaymentStatus)
	}))
	defer shop.Close()

	items, _ := stripefake.ParseItems("price_game*2@1500")
	_ = fake.Session("cs_1", items, stripefake.Fields{"payment_status": "unpaid"})
	early, _ := fake.Event("checkout.session.completed", "cs_1", stripefake.EventOptions{})
	_ = fake.Set("pi_1", stripefake.Fields{"status": "succeeded"})
	_ = fake.Set("cs_1", stripefake.Fields{"payment_status": "paid"})

	forged, _ := fake.Event("checkout.session.completed", "cs_1", stripefake.EventOptions{Secret: stripefake.WrongSecret})
	for _, ev := range []stripefake.Event{forged, early} {
		status, _, err := fake.Deliver(context.Background(), shop.URL, ev)
		fmt.Println(status, err)
	}
	// Output:
	// 400 <nil>
	// cs_1 said unpaid and is paid
	// 200 <nil>
}
