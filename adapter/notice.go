package adapter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/keytill/keytill/adapter/hook"
	"github.com/keytill/keytill/fulfillment"
)

// A Notice tells the storefront what became of an order, or of its stock. It holds no key and no e-mail address.
type Notice struct {
	ID    string                 `json:"id"` // the same each time it is told
	Type  fulfillment.NoticeType `json:"type"`
	At    time.Time              `json:"at"`
	Order *NoticeOrder           `json:"order,omitempty"`

	// Units are those the notice is about, each with the state it has by now.
	Units []NoticeUnit `json:"units,omitempty"`

	fulfillment.Subject
}

// NoticeOrder is the order as it is when the notice is sent.
type NoticeOrder struct {
	ID                string                   `json:"id"`
	Merchant          string                   `json:"merchant"`
	PaymentIntent     string                   `json:"payment_intent,omitempty"`
	ClientReferenceID string                   `json:"client_reference_id,omitempty"`
	Payment           fulfillment.PaymentState `json:"payment"`
}

// NoticeUnit is a unit of an order.
type NoticeUnit struct {
	fulfillment.NoticeUnit
	State fulfillment.UnitState `json:"state"`
}

func noticeFrom(m fulfillment.Message) Notice {
	n := Notice{ID: m.ID, Type: m.Type, At: m.At, Subject: m.Subject}
	if m.Order.ID == "" {
		return n
	}
	n.Order = &NoticeOrder{ID: m.Order.ID, Merchant: m.Merchant,
		PaymentIntent: m.Order.PaymentIntent, ClientReferenceID: m.Order.ClientReferenceID, Payment: m.Order.Payment}
	states := make(map[fulfillment.NoticeUnit]fulfillment.UnitState)
	for _, l := range m.Order.Lines {
		for _, u := range l.Units {
			states[fulfillment.NoticeUnit{Line: l.ID, Unit: u.Unit, SKU: l.SKU}] = u.State
		}
	}
	for _, u := range m.Units {
		n.Units = append(n.Units, NoticeUnit{u, states[u]})
	}
	return n
}

type hookSender struct{ *hook.Sender }

// Send tells the storefront over signed HTTP.
func (s hookSender) Send(ctx context.Context, m fulfillment.Message) (string, error) {
	notice := noticeFrom(m)
	data, err := json.Marshal(notice)
	if err != nil {
		return "", fmt.Errorf("write notice %s: %w", m.ID, err)
	}
	answer, err := s.Sender.Send(ctx, hook.Notice{ID: notice.ID, Type: string(notice.Type), At: notice.At, Data: data})
	var failed *hook.Error
	if errors.As(err, &failed) && failed.Permanent {
		return "", fmt.Errorf("%w: %w", fulfillment.ErrRefused, err)
	}
	return answer, err
}

type processSender func(ctx context.Context, notice Notice) error

// Send tells the storefront in its own process.
func (s processSender) Send(ctx context.Context, m fulfillment.Message) (string, error) {
	return "", s(ctx, noticeFrom(m))
}
