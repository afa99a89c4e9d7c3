package fulfillment

import (
	"context"
	"errors"
	"time"
)

// An Observer is told of what happens, to count it. Each function may be nil, and must be quick and safe for concurrent
// use.
type Observer struct {
	Settled   func(result SettleResult, took time.Duration)
	Delivered func(channel Channel, result DeliverResult)
}

// SettleResult says how a settle ended.
type SettleResult string

const (
	SettleApplied SettleResult = "applied"
	SettleNothing SettleResult = "nothing" // Stripe has nothing to sell under this id
	SettleStale   SettleResult = "stale"   // overtaken by newer readings
	SettleFailed  SettleResult = "failed"
)

// DeliverResult says how a try to deliver ended.
type DeliverResult string

const (
	DeliverSent    DeliverResult = "sent"
	DeliverRetried DeliverResult = "retried" // it failed and is tried again
	DeliverRefused DeliverResult = "refused" // it failed for good
)

func (s *Service) observeSettle(began time.Time, err error) {
	if s.observer.Settled == nil {
		return
	}
	result := SettleFailed
	switch {
	case err == nil:
		result = SettleApplied
	case errors.Is(err, ErrNotFound), errors.Is(err, ErrNotOurs):
		result = SettleNothing
	case errors.Is(err, ErrStale):
		result = SettleStale
	case errors.Is(err, context.Canceled):
		return // told to stop: whoever runs next settles it
	}
	s.observer.Settled(result, time.Since(began))
}

func (s *Service) observeDelivery(channel Channel, result DeliverResult) {
	if s.observer.Delivered != nil {
		s.observer.Delivered(channel, result)
	}
}
