package fulfillment_test

import (
	"fmt"

	"github.com/keytill/keytill/fulfillment"
)

// Two games and a bundle were bought, and one amount given back. It can only be the bundle's, so nobody needs to be asked.
func ExampleEntitle() {
	games := fulfillment.Line{ID: "li_games", Price: "price_game", Quantity: 2, Amount: 2000}
	bundle := fulfillment.Line{ID: "li_bundle", Price: "price_bundle", Quantity: 1, Amount: 1500}
	payment := fulfillment.Payment{
		Session: &fulfillment.Session{ID: "cs_1", Mode: "payment", Status: "complete", PaymentStatus: "paid", Currency: "eur", Total: 3500},
		Intent:  &fulfillment.Intent{ID: "pi_1", Status: "succeeded", Currency: "eur", Amount: 3500, Captured: 3500, Charge: "ch_1"},
		Lines:   []fulfillment.Line{games, bundle},
		Refunds: []fulfillment.Refund{{ID: "re_1", Status: "succeeded", Amount: 1500}},
	}
	items := []fulfillment.Item{{Line: games, SKU: "game"}, {Line: bundle, SKU: "bundle"}}

	verdict := fulfillment.Entitle(payment, items, nil, fulfillment.Policy{})
	fmt.Println(verdict.Payment, verdict.Refunded)
	for i, share := range verdict.Lines {
		fmt.Printf("%s: %d due, %d revoked\n", items[i].SKU, share.Due, share.Revoked)
	}

	// 1200 fits no combination of units: a person must say what it was for, and can.
	payment.Refunds[0].Amount = 1200
	verdict = fulfillment.Entitle(payment, items, nil, fulfillment.Policy{})
	fmt.Println(verdict.Questions[0].Kind, verdict.Questions[0].Subject)
	verdict = fulfillment.Entitle(payment, items, map[string]string{"re_1": "li_games:1"}, fulfillment.Policy{})
	fmt.Printf("%s: %d due, %d revoked\n", items[0].SKU, verdict.Lines[0].Due, verdict.Lines[0].Revoked)
	// Output:
	// part_refunded 1500
	// game: 2 due, 0 revoked
	// bundle: 0 due, 1 revoked
	// unattributed_refund cs_1
	// game: 1 due, 1 revoked
}
