package api

import (
	"context"
	"errors"

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
	for i := range orders {
		orders[i].Email = caller(ctx).Role.Address(orders[i].Email)
	}
	return orders
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
