package orderpage_test

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/keytill/keytill/adapter/orderpage"
)

// A mail that is sent again has the same link, and nobody makes one without the secret.
func ExampleLinks() {
	now := func() time.Time { return time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC) }
	make := func(secret string) string {
		links, err := orderpage.NewLinks("https://keys.example.com", [][]byte{[]byte(secret)}, 90*24*time.Hour, now)
		if err != nil {
			panic(err)
		}
		return links.URL(orderpage.Ref{Merchant: "default", Order: "cs_1"}, now())
	}
	link, again, forged := make("of the keyset"), make("of the keyset"), make("guessed")
	u, err := url.Parse(link)
	if err != nil {
		panic(err)
	}
	fmt.Println(u.Host, strings.HasPrefix(u.Path, orderpage.Path))
	fmt.Println(again == link, forged == link)
	// Output:
	// keys.example.com true
	// true false
}
