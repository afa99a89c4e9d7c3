package stripeapi

import (
	"errors"
	"fmt"

	"github.com/stripe/stripe-go/v76"
)

// pageSize is the largest page that Stripe gives.
const pageSize = 100

// Errors of a list that contradicts itself. stripe-go's own iteration panics on an empty page, and never ends on one that
// comes again.
var (
	errNoList       = errors.New("no list, though Stripe was asked for one")
	errEmptyPage    = errors.New("a list of Stripe's says that there is more, and gives an empty page")
	errRepeatedPage = errors.New("a list of Stripe's gives the same object twice")
	errEndless      = errors.New("a list of Stripe's does not end")
)

// maxPages bounds a list that belongs to one payment, or to the account's endpoints. A session has at most 100 lines
// (docs.stripe.com/api/checkout/sessions/create#create_checkout_session-line_items); refunds have no bound that is told.
const maxPages = 200

// A page is one page of a list.
type page[T any] struct {
	data []T
	more bool
	err  error
}

// all reads every page of a list. read asks for the page after an id, the first one for an empty id; id names an item.
//
// No list here has an item twice: it is read behind a cursor, which what comes anew does not move.
func all[T any](read func(list stripe.ListParams) page[T], id func(T) string) ([]T, error) {
	var (
		items []T
		after string
		seen  = make(map[string]bool)
	)
	for range maxPages {
		list := stripe.ListParams{Limit: stripe.Int64(pageSize), Single: true}
		if after != "" {
			list.StartingAfter = stripe.String(after)
		}
		p := read(list)
		switch {
		case p.err != nil:
			return nil, p.err
		case p.data == nil:
			return nil, errNoList
		case p.more && len(p.data) == 0:
			return nil, errEmptyPage
		}
		for _, item := range p.data {
			name := id(item)
			if name == "" || seen[name] {
				return nil, fmt.Errorf("%q: %w", name, errRepeatedPage)
			}
			seen[name] = true
			after = name
		}
		items = append(items, p.data...)
		if !p.more {
			return items, nil
		}
	}
	return nil, errEndless
}
