package stripeapi

import (
	"errors"
	"fmt"

	"github.com/stripe/stripe-go/v76"
)

// pageSize is the largest page that Stripe gives.
const pageSize = 100

// Errors of a list that contradicts itself. stripe-go's own iteration panics on the first and never ends on the second.
var (
	errEmptyPage    = errors.New("a list of Stripe's says that there is more, and gives an empty page")
	errRepeatedPage = errors.New("a list of Stripe's gives the same page again")
)

// A page is one page of a list.
type page[T any] struct {
	data []T
	more bool
	err  error
}

// all reads every page of a list. read asks for the page after an id, the first one for an empty id; id names an item.
func all[T any](read func(list stripe.ListParams) page[T], id func(T) string) ([]T, error) {
	var (
		items []T
		after string
	)
	for {
		list := stripe.ListParams{Limit: stripe.Int64(pageSize), Single: true}
		if after != "" {
			list.StartingAfter = stripe.String(after)
		}
		p := read(list)
		if p.err != nil {
			return nil, p.err
		}
		items = append(items, p.data...)
		if !p.more {
			return items, nil
		}
		if len(p.data) == 0 {
			return nil, errEmptyPage
		}
		last := id(p.data[len(p.data)-1])
		if last == after {
			return nil, fmt.Errorf("after %s: %w", after, errRepeatedPage)
		}
		after = last
	}
}
