package adapter

import (
	"context"
	_ "embed" // the schema
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/keytill/keytill/adapter/hook"
	"github.com/keytill/keytill/fulfillment"
)

// A Notice tells the storefront what became of an order, or of its stock. It holds no e-mail address, and no key unless
// Hook.WithKeys is set.
type Notice struct {
	ID    string                 `json:"id"` // the same each time it is told
	Type  fulfillment.NoticeType `json:"type"`
	At    time.Time              `json:"at"`
	Order *NoticeOrder           `json:"order,omitempty"`

	// Units are those the notice is about, each with the state it has by now; of fulfillment.completed all of the order.
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
	Key   string                `json:"key,omitempty"` // its text, if the shop wants it and the buyer may use it
}

//go:embed notice.schema.json
var noticeSchema []byte

// NoticeSchema is the JSON Schema of what is posted to the storefront.
func NoticeSchema() []byte { return slices.Clone(noticeSchema) }

func noticeFrom(m fulfillment.Message) Notice {
	n := Notice{ID: m.ID, Type: m.Type, At: m.At, Subject: m.Subject}
	if m.Order.ID == "" {
		return n
	}
	n.Order = &NoticeOrder{ID: m.Order.ID, Merchant: m.Merchant,
		PaymentIntent: m.Order.PaymentIntent, ClientReferenceID: m.Order.ClientReferenceID, Payment: m.Order.Payment}
	keys := make(map[fulfillment.NoticeUnit]string, len(m.Keys))
	for _, k := range m.Keys {
		keys[fulfillment.NoticeUnit{Line: k.Line, Unit: k.Unit, SKU: k.SKU}] = k.Text
	}
	for _, l := range m.Order.Lines {
		for _, u := range l.Units {
			name := fulfillment.NoticeUnit{Line: l.ID, Unit: u.Unit, SKU: l.SKU}
			if m.Type == fulfillment.FulfillmentCompleted || slices.Contains(m.Units, name) {
				n.Units = append(n.Units, NoticeUnit{name, u.State, keys[name]})
			}
		}
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
	switch {
	case !errors.As(err, &failed):
		return answer, err
	case failed.Permanent:
		return "", fmt.Errorf("%w: %w", fulfillment.ErrRefused, err)
	default:
		return "", &fulfillment.Later{After: failed.RetryAfter, Err: err}
	}
}

type processSender func(ctx context.Context, notice Notice) error

// Send tells the storefront in its own process.
func (s processSender) Send(ctx context.Context, m fulfillment.Message) (string, error) {
	return "", s(ctx, noticeFrom(m))
}
