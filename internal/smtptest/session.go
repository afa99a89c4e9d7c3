package smtptest

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
)

var errHungUp = errors.New("smtptest: hung up on purpose")

// session is one client's conversation.
type session struct {
	server *Server
	conn   *smtp.Conn
	authed bool
	from   string
	to     []string
}

var _ smtp.AuthSession = (*session)(nil)

func (s *Server) newSession(c *smtp.Conn) (smtp.Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions++
	return &session{server: s, conn: c}, nil
}

func (s *session) AuthMechanisms() []string {
	if s.server.opts.User == "" {
		return nil
	}
	return []string{sasl.Plain}
}

func (s *session) Auth(mech string) (sasl.Server, error) {
	if mech != sasl.Plain || s.server.opts.User == "" {
		return nil, smtp.ErrAuthUnknownMechanism
	}
	return sasl.NewPlainServer(func(_, user, password string) error {
		if user != s.server.opts.User ||
			subtle.ConstantTimeCompare([]byte(password), []byte(s.server.opts.Password)) != 1 {
			return smtp.ErrAuthFailed
		}
		s.authed = true
		return nil
	}), nil
}

func (s *session) Mail(from string, _ *smtp.MailOptions) error {
	if s.server.opts.User != "" && !s.authed {
		return &smtp.SMTPError{
			Code: 530, EnhancedCode: smtp.EnhancedCode{5, 7, 0}, Message: "Authentication required",
		}
	}
	if s.server.fault().down {
		return &smtp.SMTPError{
			Code: 451, EnhancedCode: smtp.EnhancedCode{4, 3, 2}, Message: "Not now, try again later",
		}
	}
	s.from = from
	return nil
}

func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	f := s.server.fault()
	code := f.refuse
	if c, ok := f.refuseTo[strings.ToLower(to)]; ok {
		code = c
	}
	if code != 0 {
		// Real servers repeat the address in their answer, so a client that must not log addresses is tested by it.
		return &smtp.SMTPError{
			Code: code, EnhancedCode: smtp.EnhancedCode{code / 100, 1, 1},
			Message: fmt.Sprintf("<%s>: Recipient address rejected", to),
		}
	}
	s.to = append(s.to, to)
	return nil
}

func (s *session) Data(r io.Reader) error {
	raw, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	// The faults of the moment the message is complete; one that is set during the pause is for the next message.
	f := s.server.fault()
	if !s.server.pause(f.slow) || f.drop {
		return s.hangUp()
	}
	m, err := parse(raw)
	if err != nil {
		return &smtp.SMTPError{
			Code: 554, EnhancedCode: smtp.EnhancedCode{5, 6, 0}, Message: "Message is not readable: " + err.Error(),
		}
	}
	m.From, m.To = s.from, append([]string(nil), s.to...)
	s.server.mu.Lock()
	s.server.messages = append(s.server.messages, m)
	s.server.mu.Unlock()

	if f.loseAnswer {
		return s.hangUp()
	}
	return nil
}

// hangUp closes the line under the SMTP library, so that its answer goes nowhere.
func (s *session) hangUp() error {
	_ = s.conn.Conn().Close()
	return errHungUp
}

func (s *session) Reset() { s.from, s.to = "", nil }

func (s *session) Logout() error { return nil }
