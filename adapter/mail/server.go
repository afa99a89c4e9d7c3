package mail

import (
	"crypto/tls"
	"errors"
	"net"
	"net/mail"
	"net/url"
	"strconv"
	"strings"

	gomail "github.com/wneessen/go-mail"
)

// server is what an SMTP URL says.
type server struct {
	host      string
	port      int
	user      string
	password  string
	implicit  bool // TLS from the first byte
	starttls  gomail.TLSPolicy
	loopback  bool
	helo      string
	tlsConfig *tls.Config
}

var (
	errNoURL = errors.New("mail: no SMTP URL: set it to smtp://user:password@host:587, or " +
		"smtps://user:password@host:465 for TLS from the first byte")
	errScheme = errors.New("mail: the SMTP URL must begin with smtp:// (port 587, STARTTLS) or " +
		"smtps:// (port 465, TLS from the first byte)")
	// Nothing of what net/url says is repeated: it quotes the URL, or the piece it stumbled on.
	errUnreadable = errors.New("mail: the SMTP URL cannot be read: write smtp://user:password@host:587 and " +
		"percent-encode special characters in user and password (@ is %40, / is %2F, # is %23, ? is %3F, % is %25)")
	errNoHost   = errors.New("mail: the SMTP URL names no host: write smtp://user:password@host:587")
	errNoSecret = errors.New("mail: the SMTP URL has a user or a password but not both: " +
		"write smtp://user:password@host:587, or smtp://host:587 to send without signing in")
	errQuery = errors.New("mail: the SMTP URL may end with ?tls=none (no encryption, for a relay you trust the way to) " +
		"and with nothing else; a ? in a password is written %3F")
	errTLSNone = errors.New("mail: smtps:// is TLS and cannot be combined with ?tls=none: use smtp:// for no encryption")
)

func parseURL(raw string) (server, error) {
	if strings.TrimSpace(raw) == "" {
		return server{}, errNoURL
	}
	if !strings.HasPrefix(raw, "smtp://") && !strings.HasPrefix(raw, "smtps://") {
		return server{}, errScheme
	}
	u, err := url.Parse(raw)
	// A # or / that was not percent-encoded cuts the password in two, and half of it would be taken for the host.
	if err != nil || u.Fragment != "" || strings.HasSuffix(raw, "#") || (u.Path != "" && u.Path != "/") {
		return server{}, errUnreadable
	}
	srv := server{host: u.Hostname(), implicit: u.Scheme == "smtps", port: 587, starttls: gomail.TLSMandatory}
	if srv.host == "" {
		return server{}, errNoHost
	}
	if srv.implicit {
		srv.port = 465
	}
	if p := u.Port(); p != "" {
		if srv.port, err = strconv.Atoi(p); err != nil || srv.port < 1 || srv.port > 65535 {
			return server{}, errUnreadable
		}
	}
	srv.user = u.User.Username()
	srv.password, _ = u.User.Password()
	if (srv.user == "") != (srv.password == "") {
		return server{}, errNoSecret
	}

	srv.loopback = srv.host == "localhost"
	if ip := net.ParseIP(srv.host); ip != nil {
		srv.loopback = ip.IsLoopback()
	}
	if srv.loopback {
		srv.starttls = gomail.TLSOpportunistic
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return server{}, errQuery
	}
	for name, values := range query {
		if name != "tls" || len(values) != 1 || values[0] != "none" {
			return server{}, errQuery
		}
		if srv.implicit {
			return server{}, errTLSNone
		}
		srv.starttls = gomail.NoTLS
	}
	return srv, nil
}

func (s server) addr() string { return net.JoinHostPort(s.host, strconv.Itoa(s.port)) }

func (s *server) setTLS(cfg *tls.Config) {
	if cfg == nil {
		cfg = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	s.tlsConfig = cfg.Clone()
	if s.tlsConfig.ServerName == "" {
		s.tlsConfig.ServerName = s.host
	}
}

// mechanisms are the ways to sign in, best first. Those that show the password to whoever listens are left out where
// someone could: on a connection without TLS that leaves the machine.
func (s server) mechanisms() []gomail.SMTPAuthType {
	scram := []gomail.SMTPAuthType{gomail.SMTPAuthSCRAMSHA256, gomail.SMTPAuthSCRAMSHA1}
	switch {
	case s.loopback && !s.implicit:
		return append(scram, gomail.SMTPAuthPlainNoEnc, gomail.SMTPAuthLoginNoEnc, gomail.SMTPAuthCramMD5)
	case s.starttls == gomail.NoTLS:
		return append(scram, gomail.SMTPAuthCramMD5)
	default:
		return append(scram, gomail.SMTPAuthPlain, gomail.SMTPAuthLogin, gomail.SMTPAuthCramMD5)
	}
}

func parseFrom(from string) (*mail.Address, error) {
	if strings.TrimSpace(from) == "" {
		return nil, errors.New("mail: no sender: set it to Shop <shop@example.com>")
	}
	addr, err := mail.ParseAddress(from)
	if err != nil {
		return nil, errors.New("mail: the sender cannot be read: write Shop <shop@example.com>, " +
			"with the name in double quotes if it has a comma or a dot in it")
	}
	if !isASCII(addr.Address) {
		return nil, errors.New("mail: the sender's address must be ASCII: write its domain in the form xn--…")
	}
	if strings.HasSuffix(addr.Address, "]") {
		return nil, errors.New("mail: the sender's address must have a domain name, not an IP address")
	}
	addr.Name = oneLine(addr.Name)
	return addr, nil
}
