// Package mail sends one message over SMTP, with github.com/wneessen/go-mail, and says whether trying again can help.
//
//	Message ──compose──▶ bytes ──▶ idle or new connection ──MAIL RCPT DATA──▶ the server's answer
//	         no network            TLS, AUTH                                  or *Error
//
// It retries nothing over time: that is the work of the job that calls it. What it promises to that job:
//
//   - The same Message.ID gives the same Message-ID header, so that a message sent twice (the first answer was lost)
//     can be known for one.
//   - An *Error is permanent only when this message, to this address, will never be taken. A wrong password, a
//     certificate that does not verify, a server that is down: all temporary, since the message is not at fault.
//   - No e-mail address, password or message content is in an error, nor in an answer.
package mail

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/mail"
	"strings"
	"sync"
	"time"
)

// DefaultTimeout bounds one message from dialling to the server's answer, if Config does not. It is long because a
// client that gives up before a slow server's answer sends the message twice (RFC 5321, 4.5.3.2.6).
const DefaultTimeout = time.Minute

// Config of a Sender.
type Config struct {
	// URL is smtp://user:password@host:587, where STARTTLS is required unless the host is the loopback or ?tls=none
	// is appended, or smtps://user:password@host:465 for TLS from the first byte. User and password may be left out,
	// and so may the port. Special characters in them are percent-encoded.
	URL string
	// From is the sender, in the header and on the envelope: Shop <shop@example.com>.
	From string
	// Timeout bounds one message from dialling to the server's answer; DefaultTimeout if 0.
	Timeout time.Duration
	// TLSConfig is for private certificates; the system's if nil. An empty ServerName is the URL's host.
	TLSConfig *tls.Config
	// Helo is the name to greet the server with; the machine's host name if empty.
	Helo string
	// Now is the clock of the Date header; time.Now if nil.
	Now func() time.Time
}

// Message is one message to one recipient.
type Message struct {
	// ID becomes the Message-ID <ID@domain of From>. Letters, digits and !#$%&'*+-/=?^_`{|}~ with single dots between.
	ID string
	// To is the recipient's address, without a name. ToName is shown with it; anything may be in it.
	To, ToName string
	Subject    string
	// Text and HTML are two forms of the same; one of them may be empty.
	Text, HTML  string
	Attachments []Attachment
	// Headers are further ones, such as Reply-To or Content-Language; those that Send writes itself are refused.
	Headers map[string]string
}

// Attachment is a file sent with a message.
type Attachment struct {
	Name        string
	ContentType string // application/octet-stream if empty
	Data        []byte
}

// Sender sends messages through one SMTP server. It is safe for concurrent use; connections are kept open for a few
// seconds for the next message, and Close closes those.
type Sender struct {
	server  server
	from    *mail.Address
	domain  string // of from, for Message-IDs
	timeout time.Duration
	now     func() time.Time

	mu     sync.Mutex
	idle   []*conn
	closed bool
}

// New validates the configuration; it does not dial. Its errors never hold the URL, nor any part of it that could be
// a password.
func New(cfg Config) (*Sender, error) {
	srv, err := parseURL(cfg.URL)
	if err != nil {
		return nil, err
	}
	from, err := parseFrom(cfg.From)
	if err != nil {
		return nil, err
	}
	if cfg.Timeout < 0 {
		return nil, fmt.Errorf("mail: the timeout is negative: leave it 0 for %s", DefaultTimeout)
	}
	if strings.ContainsFunc(cfg.Helo, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return nil, fmt.Errorf("mail: the HELO name must be a host name in ASCII, such as mail.example.com")
	}
	srv.helo = cfg.Helo
	srv.setTLS(cfg.TLSConfig)

	s := &Sender{server: srv, from: from, timeout: cfg.Timeout, now: cfg.Now}
	s.domain = from.Address[strings.LastIndexByte(from.Address, '@')+1:]
	if s.timeout == 0 {
		s.timeout = DefaultTimeout
	}
	if s.now == nil {
		s.now = time.Now
	}
	return s, nil
}

// String names the server and nothing secret, so that a Sender that is logged gives no password away.
func (s *Sender) String() string { return "mail.Sender(" + s.server.addr() + ")" }

// GoString is String, for %#v.
func (s *Sender) GoString() string { return s.String() }

// Send sends one message and returns the server's answer to it, such as "250 2.0.0 OK: queued as 4F1C". Its error is
// always an *Error. When ctx ends, so does Send, with a temporary error that wraps ctx's.
func (s *Sender) Send(ctx context.Context, m Message) (answer string, err error) {
	env, err := s.compose(m)
	if err != nil {
		return "", &Error{ID: env.id, Permanent: true, Stage: StageMessage, Answer: err.Error()}
	}
	sendCtx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()

	for fresh := false; ; fresh = true {
		c, reused, err := s.connect(sendCtx, fresh)
		if err != nil {
			return "", s.failure(ctx, sendCtx, env, StageConnect, err)
		}
		answer, stage, err := c.deliver(sendCtx, env, s.timeout)
		if err == nil {
			s.keep(c)
			return clean("250 "+answer, env.to), nil
		}
		c.abandon(stage, err)
		if reused && stage == StageSender && wentStale(err) {
			// The server closed the connection while it was idle. Nothing was sent yet, so a second try is safe.
			continue
		}
		return "", s.failure(ctx, sendCtx, env, stage, err)
	}
}
