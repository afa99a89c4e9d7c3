package adapter

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/keytill/keytill/adapter/mail"
	"github.com/keytill/keytill/fulfillment"
)

type emailSender struct{ *mail.Sender }

// Send mails the buyer the order's keys.
func (s emailSender) Send(ctx context.Context, m fulfillment.Message) (string, error) {
	subject, text := writeEmail(m)
	answer, err := s.Sender.Send(ctx, mail.Message{ID: m.ID, To: m.Recipient, Subject: subject, Text: text})
	var failed *mail.Error
	if errors.As(err, &failed) && failed.Permanent {
		return "", fmt.Errorf("%w: %w", fulfillment.ErrRefused, err)
	}
	return answer, err
}

// writeEmail writes the mail with an order's keys, each below its product's name.
func writeEmail(m fulfillment.Message) (subject, text string) {
	subject = "Your key"
	if len(m.Keys) != 1 {
		subject = fmt.Sprintf("Your %d keys", len(m.Keys))
	}
	var b strings.Builder
	b.WriteString("Thank you for your order.\n")
	name := ""
	for _, key := range m.Keys {
		if key.Name != name {
			fmt.Fprintf(&b, "\n%s\n", key.Name)
			name = key.Name
		}
		fmt.Fprintf(&b, "    %s\n", key.Text)
	}
	if n := m.Order.Units()[fulfillment.UnitWaiting]; n > 0 {
		fmt.Fprintf(&b, "\n%d more will follow as soon as they are in stock.\n", n)
	}
	fmt.Fprintf(&b, "\nOrder %s\n", m.Order.ID)
	return subject, b.String()
}
