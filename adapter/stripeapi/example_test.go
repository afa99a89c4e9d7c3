package stripeapi_test

import (
	"context"
	"fmt"

	"github.com/keytill/keytill/adapter/stripeapi"
	"github.com/keytill/keytill/internal/stripefake"
	"github.com/keytill/keytill/inventory"
)

// One question, by any id that a payment has, brings all that is to be known of it.
func ExampleClient_Payment() {
	stripe := stripefake.Start(stripefake.Config{})
	defer stripe.Close()
	if err := stripe.Session("cs_1", []stripefake.Item{{Price: "price_game", Quantity: 2, Amount: 1000}}, nil); err != nil {
		panic(err)
	}
	if err := stripe.Refund("re_1", "pi_1", stripefake.Fields{"amount": "1000"}); err != nil {
		panic(err)
	}

	client, err := stripeapi.New(stripeapi.Config{Key: stripe.APIKey(), URL: stripe.URL(),
		Account: func(context.Context, string) (string, error) { return "", nil }}) // the platform's own
	if err != nil {
		panic(err)
	}
	payment, err := client.Payment(context.Background(), inventory.DefaultMerchant, "ch_1")
	if err != nil {
		panic(err)
	}
	fmt.Println(payment.OrderID(), payment.Session.PaymentStatus, payment.Intent.Captured, payment.Session.Currency)
	fmt.Println(payment.Lines[0].Price, payment.Lines[0].Quantity)
	fmt.Println(payment.Refunds[0].ID, payment.Refunds[0].Status, payment.Refunds[0].Amount)
	// Output:
	// cs_1 paid 2000 usd
	// price_game 2
	// re_1 succeeded 1000
}
