// Package smtptest is a real SMTP server on the loopback, for tests and for the demo: it takes mail, keeps it in
// memory, reads it back as a person's mail program would, and misbehaves on request.
//
//	srv := smtptest.Start()
//	defer srv.Close()
//	… send to srv.URL() …
//	srv.MessagesTo("buyer@example.com")[0].Text
//
// A fault (Down, Refuse, RefuseTo, DropAfterData, LoseAnswer, Slow) lasts until Up. It also meets clients whose
// connection was open before.
package smtptest

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/url"
	"sync"

	"github.com/emersion/go-smtp"
)

// Security says how the server wants to be spoken to.
type Security int

const (
	// Plain offers no TLS.
	Plain Security = iota
	// StartTLS offers STARTTLS, and takes passwords only after it.
	StartTLS
	// ImplicitTLS speaks TLS from the first byte (smtps).
	ImplicitTLS
)

// Options of a server; the zero value is a plain one that asks for no password.
type Options struct {
	Security Security
	// User and Password, when set, must be given (AUTH PLAIN) before a message is taken.
	User, Password string
	// UTF8 offers SMTPUTF8, which addresses outside ASCII need.
	UTF8 bool
}

// Server is one running SMTP server.
type Server struct {
	opts   Options
	addr   string
	smtp   *smtp.Server
	lines  *lines
	cert   *certificate // nil without TLS
	done   chan struct{}
	served sync.WaitGroup
	once   sync.Once

	mu       sync.Mutex
	faults   faults
	messages []Message
	sessions int
}

// Start runs a plain server. Like httptest.NewServer it panics when it cannot listen on the loopback.
func Start() *Server { return StartWith(Options{}) }

// StartWith runs a server with options; it panics when it cannot listen on the loopback.
func StartWith(opts Options) *Server {
	s := &Server{opts: opts, done: make(chan struct{})}

	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(fmt.Sprintf("smtptest: cannot listen on the loopback: %v", err))
	}
	s.addr = tcp.Addr().String()
	s.lines = &lines{Listener: tcp, open: make(map[net.Conn]bool)}
	var listener net.Listener = s.lines

	s.smtp = smtp.NewServer(smtp.BackendFunc(s.newSession))
	s.smtp.Domain = "localhost"
	s.smtp.AllowInsecureAuth = opts.Security == Plain
	s.smtp.EnableSMTPUTF8 = opts.UTF8
	s.smtp.MaxMessageBytes = 32 << 20
	// Dropped lines are what this server is for; they are no news.
	s.smtp.ErrorLog = log.New(io.Discard, "", 0)

	if opts.Security != Plain {
		if s.cert, err = newCertificate(); err != nil {
			panic(fmt.Sprintf("smtptest: cannot make a certificate: %v", err))
		}
		s.smtp.TLSConfig = s.cert.server()
	}
	if opts.Security == ImplicitTLS {
		listener = tls.NewListener(listener, s.smtp.TLSConfig)
	}

	s.served.Go(func() { _ = s.smtp.Serve(listener) })
	return s
}

// URL is where the server listens, with user and password if it wants them: smtp://127.0.0.1:port or smtps://….
func (s *Server) URL() string {
	u := url.URL{Scheme: "smtp", Host: s.addr}
	if s.opts.Security == ImplicitTLS {
		u.Scheme = "smtps"
	}
	if s.opts.User != "" {
		u.User = url.UserPassword(s.opts.User, s.opts.Password)
	}
	return u.String()
}

// Addr is host:port of the server.
func (s *Server) Addr() string { return s.addr }

// ClientTLS trusts the server's certificate and no other. It is nil for a server without TLS.
func (s *Server) ClientTLS() *tls.Config {
	if s.cert == nil {
		return nil
	}
	return s.cert.client()
}

// Close ends the server and every connection to it. It may be called twice.
func (s *Server) Close() {
	s.once.Do(func() {
		close(s.done)
		_ = s.smtp.Close()
		s.lines.cut()
		s.served.Wait()
	})
}

// Messages are the messages taken so far, in the order they were taken.
func (s *Server) Messages() []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Message(nil), s.messages...)
}

// MessagesTo are the messages whose envelope has this recipient; letters' case does not matter.
func (s *Server) MessagesTo(addr string) []Message {
	var out []Message
	for _, m := range s.Messages() {
		if m.isTo(addr) {
			out = append(out, m)
		}
	}
	return out
}

// Count is the number of messages taken so far.
func (s *Server) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.messages)
}

// Connections is the number of greetings answered since Start; a client that upgrades to TLS greets twice.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions
}
