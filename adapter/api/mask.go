package api

import (
	"context"
	"errors"
	"strings"

	"github.com/keytill/keytill/adapter/access"
	"github.com/keytill/keytill/fulfillment"
)

// who is who asks, for the audit.
func who(ctx context.Context, reason string) fulfillment.Person {
	return fulfillment.Person{Name: caller(ctx).Name, Reason: reason}
}

func answerOrder(ctx context.Context, order fulfillment.Order) *Output[fulfillment.Order] {
	return &Output[fulfillment.Order]{masked(ctx, []fulfillment.Order{order})[0]}
}

// masked hides buyers' addresses from who only looks.
func masked(ctx context.Context, orders []fulfillment.Order) []fulfillment.Order {
	if caller(ctx).Role == access.Viewer {
		for i := range orders {
			orders[i].Email = maskAddress(orders[i].Email)
		}
	}
	return orders
}

// maskAddress leaves enough of an address to recognize one that is known.
func maskAddress(address string) string {
	name, domain, ok := strings.Cut(address, "@")
	if !ok || name == "" {
		return ""
	}
	first := []rune(name)[0]
	return string(first) + "•••@" + domain
}

// given is a body that may be left out.
func given[T any](body *T) T {
	if body == nil {
		var none T
		return none
	}
	return *body
}

// ignoreNone makes a search that found nothing an empty list.
func ignoreNone(err error) error {
	if errors.Is(err, fulfillment.ErrNoOrder) {
		return nil
	}
	return err
}
