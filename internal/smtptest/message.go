package smtptest

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/mail"
	"net/textproto"
	"strings"
)

// Message is one message as a mail program would show it.
type Message struct {
	From string   // of the envelope, no name
	To   []string // of the envelope, in the order given

	Subject     string // decoded
	Text, HTML  string // decoded, lines end with \n; "" where there is none
	Attachments []Attachment

	Header mail.Header // as sent, unfolded, not decoded
	Raw    []byte      // as received, dots unstuffed
}

// Attachment is a part that is offered as a file.
type Attachment struct {
	Name        string
	ContentType string // without parameters
	Data        []byte
}

func (m Message) isTo(addr string) bool {
	for _, to := range m.To {
		if strings.EqualFold(to, addr) {
			return true
		}
	}
	return false
}

// parse reads a message and every part of it; it refuses what it cannot read, so that no broken mail passes a test.
func parse(raw []byte) (Message, error) {
	msg, err := mail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		return Message{}, fmt.Errorf("header: %w", err)
	}
	m := Message{Header: msg.Header, Raw: raw}
	if m.Subject, err = new(mime.WordDecoder).DecodeHeader(msg.Header.Get("Subject")); err != nil {
		return Message{}, fmt.Errorf("subject: %w", err)
	}
	if err := m.readPart(textproto.MIMEHeader(msg.Header), msg.Body); err != nil {
		return Message{}, err
	}
	return m, nil
}

func (m *Message) readPart(header textproto.MIMEHeader, body io.Reader) error {
	contentType := header.Get("Content-Type")
	if contentType == "" {
		contentType = "text/plain" // RFC 2045, 5.2
	}
	kind, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return fmt.Errorf("content type: %w", err)
	}
	if strings.HasPrefix(kind, "multipart/") {
		return m.readParts(multipart.NewReader(body, params["boundary"]))
	}

	data, err := decode(header.Get("Content-Transfer-Encoding"), body)
	if err != nil {
		return fmt.Errorf("%s part: %w", kind, err)
	}
	if disposition, dparams, err := mime.ParseMediaType(header.Get("Content-Disposition")); err == nil &&
		disposition == "attachment" {
		name, err := new(mime.WordDecoder).DecodeHeader(dparams["filename"])
		if err != nil {
			return fmt.Errorf("file name: %w", err)
		}
		m.Attachments = append(m.Attachments, Attachment{Name: name, ContentType: kind, Data: data})
		return nil
	}

	switch charset := strings.ToLower(params["charset"]); charset {
	case "", "utf-8", "us-ascii":
	default:
		return fmt.Errorf("%s part: charset %q is not one this server reads", kind, charset)
	}
	text := strings.ReplaceAll(string(data), "\r\n", "\n")
	switch kind {
	case "text/plain":
		m.Text += text
	case "text/html":
		m.HTML += text
	default:
		m.Attachments = append(m.Attachments, Attachment{ContentType: kind, Data: data})
	}
	return nil
}

func (m *Message) readParts(r *multipart.Reader) error {
	for {
		// Raw, because NextPart would decode quoted-printable itself and hide the header that says so.
		part, err := r.NextRawPart()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("multipart: %w", err)
		}
		if err := m.readPart(part.Header, part); err != nil {
			return err
		}
	}
}

func decode(encoding string, body io.Reader) ([]byte, error) {
	switch strings.ToLower(encoding) {
	case "quoted-printable":
		return io.ReadAll(quotedprintable.NewReader(body))
	case "base64":
		return io.ReadAll(base64.NewDecoder(base64.StdEncoding, body))
	case "", "7bit", "8bit":
		return io.ReadAll(body)
	}
	return nil, fmt.Errorf("transfer encoding %q is not one this server reads", encoding)
}
