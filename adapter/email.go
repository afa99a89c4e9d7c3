package adapter

import (
	"context"
	"errors"
	"fmt"
	netmail "net/mail"

	"github.com/keytill/keytill/adapter/letter"
	"github.com/keytill/keytill/adapter/mail"
	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/inventory"
)

// mailLines is how many connections to the mail server are used at once. There are more workers than that, so that none
// of them is idle while a worker reads the next order or notes what became of the last.
const mailLines = 8

// maxKeysInMail is how many keys a mail shows; more go into a file that it brings.
const maxKeysInMail = 20

// emailSender mails buyers their keys.
type emailSender struct {
	*mail.Sender
	letters *letter.Set
	shop    string // the sender's name
	replyTo string
	link    func(m fulfillment.Message) string
	lines   chan struct{} // holds one for each mail on its way
}

func newEmailSender(c Mail, sender *mail.Sender, link func(m fulfillment.Message) string) (emailSender, error) {
	letters, err := letter.Load(c.Templates)
	if err != nil {
		return emailSender{}, err
	}
	s := emailSender{Sender: sender, letters: letters, replyTo: c.ReplyTo, link: link, lines: make(chan struct{}, mailLines)}
	if c.ReplyTo != "" {
		if _, err := netmail.ParseAddress(c.ReplyTo); err != nil {
			return s, errors.New("mail: the address to reply to cannot be read: write Support <support@example.com>")
		}
	}
	if from, err := netmail.ParseAddress(c.From); err == nil {
		s.shop = letter.Name(from.Name)
	}
	return s, nil
}

// Send mails the buyer the order's keys.
func (s emailSender) Send(ctx context.Context, m fulfillment.Message) (string, error) {
	message, err := s.write(m)
	if err != nil {
		return "", err
	}
	select {
	case s.lines <- struct{}{}:
		defer func() { <-s.lines }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	answer, err := s.Sender.Send(ctx, message)
	var failed *mail.Error
	if errors.As(err, &failed) && failed.Permanent {
		return "", fmt.Errorf("%w: %w", fulfillment.ErrRefused, err)
	}
	return answer, err
}

func (s emailSender) write(m fulfillment.Message) (mail.Message, error) {
	c := content(m)
	c.Shop, c.Link = s.shop, s.link(m)
	l, err := s.letters.Write(m.Order.Locale, c)
	if err != nil {
		return mail.Message{}, err
	}
	message := mail.Message{ID: m.ID, To: m.Recipient, Subject: l.Subject, Text: l.Text, HTML: l.HTML,
		Headers: map[string]string{"Content-Language": l.Language}}
	if s.replyTo != "" {
		message.Headers["Reply-To"] = s.replyTo
	}
	if c.Attached {
		message.Attachments = []mail.Attachment{{Name: "keys.csv", ContentType: "text/csv; charset=utf-8", Data: letter.CSV(rows(m.Keys))}}
	}
	return message, nil
}

// content is what a letter tells of an order. Keys that are too many, or that cannot be shown, go into a file.
func content(m fulfillment.Message) letter.Content {
	c := letter.Content{Order: m.Order.ID, Count: len(m.Keys), Waiting: m.Order.Units()[fulfillment.UnitWaiting]}
	c.Attached = len(m.Keys) > maxKeysInMail
	for _, k := range m.Keys {
		c.Attached = c.Attached || !letter.Shown(k.Text)
	}
	place := make(map[string]int)
	for _, k := range m.Keys {
		i, ok := place[k.SKU]
		if !ok {
			i = len(c.Products)
			place[k.SKU] = i
			c.Products = append(c.Products, letter.Product{Name: letter.Name(k.Name), SKU: letter.Name(k.SKU)})
		}
		c.Products[i].Count++
		if !c.Attached {
			c.Products[i].Keys = append(c.Products[i].Keys, k.Text)
		}
	}
	return c
}

func rows(keys []inventory.Owned) []letter.Row {
	rows := make([]letter.Row, len(keys))
	for i, k := range keys {
		rows[i] = letter.Row{Name: k.Name, SKU: k.SKU, Key: k.Text}
	}
	return rows
}
