package mail

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/textproto"
	"time"

	gomail "github.com/wneessen/go-mail"
	"github.com/wneessen/go-mail/smtp"
)

const (
	// maxIdle is the number of connections kept for the next message.
	maxIdle = 16
	// idleFor is how long one is kept. Servers close idle connections after minutes, under load after seconds.
	idleFor = 5 * time.Second
	// maxMessages is sent over one connection; servers commonly allow 100.
	maxMessages = 100
	// quitTimeout bounds saying good-bye, which nothing waits for but politeness.
	quitTimeout = time.Second
)

// conn is one connection to the server, signed in.
type conn struct {
	raw    net.Conn // below TLS; closing it ends whatever go-mail waits for
	client *smtp.Client
	sent   int
	broken bool        // must not be used again
	timer  *time.Timer // closes it, while it is idle
}

// connect takes an idle connection, unless a fresh one is wanted, or dials.
func (s *Sender) connect(ctx context.Context, fresh bool) (c *conn, reused bool, err error) {
	if !fresh {
		if c := s.take(); c != nil {
			return c, true, nil
		}
	}
	c, err = s.dial(ctx)
	return c, false, err
}

func (s *Sender) dial(ctx context.Context) (*conn, error) {
	c := new(conn)
	stop := func() bool { return true }
	// go-mail heeds ctx only while it dials, and leaves the connection open when a later step fails. Holding the raw
	// connection mends both.
	dialTCP := func(dialCtx context.Context, network, addr string) (net.Conn, error) {
		raw, err := new(net.Dialer).DialContext(dialCtx, network, addr)
		if err != nil {
			return nil, err
		}
		c.raw = raw
		stop = context.AfterFunc(ctx, func() { _ = raw.Close() })
		if !s.server.implicit {
			return raw, nil
		}
		conn := tls.Client(raw, s.server.tlsConfig)
		return conn, conn.HandshakeContext(dialCtx)
	}

	opts := []gomail.Option{
		gomail.WithPort(s.server.port), gomail.WithTimeout(s.timeout), gomail.WithTLSConfig(s.server.tlsConfig),
		gomail.WithTLSPolicy(s.server.starttls), gomail.WithDialContextFunc(dialTCP),
	}
	if s.server.implicit {
		opts = append(opts, gomail.WithSSL())
	}
	if s.server.helo != "" {
		opts = append(opts, gomail.WithHELO(s.server.helo))
	}
	if s.server.user != "" {
		opts = append(opts, gomail.WithUsername(s.server.user), gomail.WithPassword(s.server.password),
			gomail.WithOpportunisticSMTPAuth(s.server.mechanisms()...))
	}
	// One go-mail client a connection: choosing a mechanism writes to it without a lock.
	client, err := gomail.NewClient(s.server.host, opts...)
	if err != nil {
		return nil, err
	}
	c.client, err = client.DialToSMTPClientWithContext(ctx)
	stopped := stop()
	if err == nil && !stopped {
		err = ctx.Err()
	}
	if err != nil {
		if c.raw != nil {
			_ = c.raw.Close()
		}
		return nil, err
	}
	return c, nil
}

var errNeedsUTF8 = errors.New("the recipient's address is not ASCII and the server does not offer SMTPUTF8")

// deliver sends one message. On an error, stage says how far it came.
func (c *conn) deliver(ctx context.Context, env envelope, timeout time.Duration) (answer string, stage Stage, err error) {
	stop := context.AfterFunc(ctx, func() { _ = c.raw.Close() })
	defer func() {
		if !stop() || err != nil {
			c.broken = true
		}
	}()
	if err := c.client.UpdateDeadline(timeout); err != nil {
		return "", StageSender, err
	}

	// Asked for only where it is needed: a message marked UTF-8 is bounced by the next server that cannot take such.
	c.client.SkipSMTPUTF8(!env.utf8)
	if offered, _ := c.client.Extension("SMTPUTF8"); env.utf8 && !offered {
		return "", StageRecipient, errNeedsUTF8
	}
	if err := c.client.Mail(bracketed(env.from)); err != nil {
		return "", StageSender, err
	}
	if err := c.client.Rcpt(bracketed(env.to)); err != nil {
		return "", StageRecipient, err
	}
	data, err := c.client.Data()
	if err != nil {
		return "", StageData, err
	}
	if _, err := data.Write(env.raw); err != nil {
		// data stays open: its Close would send the final dot, and half a message would be delivered.
		return "", StageData, err
	}
	c.sent++
	if err := data.Close(); err != nil {
		return "", StageAnswer, err
	}
	closer, ok := data.(*smtp.DataCloser)
	if !ok {
		return "", "", nil
	}
	return closer.ServerResponse(), "", nil
}

// wentStale says that a server ended a connection, and took no position on the message.
func wentStale(err error) bool {
	var answer *textproto.Error
	return !errors.As(err, &answer) || answer.Code == 421
}

// abandon closes a connection after an error. Good-bye is said only to a server that answered, and never within a
// message: net/textproto would end the message first, with the dot that makes half of it count.
func (c *conn) abandon(stage Stage, err error) {
	var answer *textproto.Error
	if errors.As(err, &answer) && stage != StageData {
		c.quit()
		return
	}
	_ = c.raw.Close()
}

// quit says good-bye and closes.
func (c *conn) quit() {
	if c.client.UpdateDeadline(quitTimeout) == nil {
		_ = c.client.Quit()
	}
	_ = c.raw.Close()
}

// keep puts a connection aside for the next message.
func (s *Sender) keep(c *conn) {
	s.mu.Lock()
	full := s.closed || c.broken || c.sent >= maxMessages || len(s.idle) >= maxIdle
	if !full {
		c.timer = time.AfterFunc(idleFor, func() {
			if s.remove(c) {
				c.quit()
			}
		})
		s.idle = append(s.idle, c)
	}
	s.mu.Unlock()
	if full {
		c.quit()
	}
}

// take returns the connection used last, so that those in excess grow old and are closed.
func (s *Sender) take() *conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.idle) == 0 {
		return nil
	}
	c := s.idle[len(s.idle)-1]
	s.idle = s.idle[:len(s.idle)-1]
	c.timer.Stop()
	return c
}

// remove says whether c was idle; being in the list is what decides between the timer and take.
func (s *Sender) remove(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, other := range s.idle {
		if other == c {
			s.idle = append(s.idle[:i], s.idle[i+1:]...)
			return true
		}
	}
	return false
}

// Close closes idle connections; messages being sent are finished. A Sender that is closed still sends, over a new
// connection each time.
func (s *Sender) Close() error {
	s.mu.Lock()
	idle := s.idle
	s.idle, s.closed = nil, true
	s.mu.Unlock()
	for _, c := range idle {
		c.timer.Stop()
		c.quit()
	}
	return nil
}

// Ping dials, signs in and says good-bye: for a check of the configuration. Its error is an *Error.
func (s *Sender) Ping(ctx context.Context) error {
	pingCtx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	c, err := s.dial(pingCtx)
	if err != nil {
		return s.failure(ctx, pingCtx, envelope{}, StageConnect, fmt.Errorf("no connection: %w", err))
	}
	c.quit()
	return nil
}
