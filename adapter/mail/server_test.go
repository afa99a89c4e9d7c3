package mail

import (
	"strings"
	"testing"

	"github.com/keytill/keytill/internal/smtptest"
)

func TestConfigErrorsSayWhatToDoAndNeverThePassword(t *testing.T) {
	const from = "Shop <keys@shop.example>"
	for _, tc := range []struct{ url, from, want string }{
		{"", from, "set it to smtp://user:password@host:587"},
		{"u:hunter2@h:587", from, "must begin with smtp://"},
		{"http://u:hunter2@h", from, "must begin with smtp://"},
		{"smtp://u:hun#ter2@h:587", from, "percent-encode"},
		{"smtp://u:hun/ter2@h:587", from, "percent-encode"},
		{"smtp://u:12/hunter2@h:587", from, "percent-encode"},
		{"smtp://u:12#hunter2@h:587", from, "percent-encode"},
		{"smtp://u:12?hunter2@h:587", from, "%3F"},
		{"smtp://u:hun%ter2@h:587", from, "percent-encode"},
		{"smtp://u:hunter2@h:port", from, "percent-encode"},
		{"smtp://u:hunter2@h:70000", from, "percent-encode"},
		{"smtp://u:hunter2@", from, "names no host"},
		{"smtp://hunter2@h", from, "not both"},
		{"smtp://:hunter2@h", from, "not both"},
		{"smtp://u:hunter2@h?tls=maybe", from, "?tls=none"},
		{"smtp://u:hunter2@h?tls=none&tls=hunter2", from, "?tls=none"},
		{"smtps://u:hunter2@h?tls=none", from, "use smtp://"},
		{"smtp://u:hunter2@h", "", "set it to Shop <shop@example.com>"},
		{"smtp://u:hunter2@h", "Shop", "write Shop <shop@example.com>"},
		{"smtp://u:hunter2@h", "Shop <keys@läden.example>", "xn--"},
		{"smtp://u:hunter2@h", "Shop <keys@[127.0.0.1]>", "domain name"},
	} {
		s, err := New(Config{URL: tc.url, From: tc.from})
		if err == nil {
			t.Errorf("New(%q, %q) = %v, want an error", tc.url, tc.from, s)
			continue
		}
		if !strings.Contains(err.Error(), tc.want) {
			t.Errorf("New(%q, %q): %v\nwant it to say %q", tc.url, tc.from, err, tc.want)
		}
		if strings.Contains(err.Error(), "hun") || strings.Contains(err.Error(), "ter2") ||
			(tc.from != "" && strings.Contains(err.Error(), "keys@")) {
			t.Errorf("New(%q): the error gives it away: %v", tc.url, err)
		}
	}
	if _, err := New(Config{URL: "smtp://h", From: from, Helo: "a b"}); err == nil {
		t.Error("a HELO name with a space was taken")
	}
	if _, err := New(Config{URL: "smtp://h", From: from, Timeout: -1}); err == nil {
		t.Error("a negative timeout was taken")
	}
}

func TestURLSaysPortsAndTLS(t *testing.T) {
	for url, want := range map[string]struct {
		addr     string
		implicit bool
		starttls string
	}{
		"smtp://mail.example":                  {"mail.example:587", false, "TLSMandatory"},
		"smtp://u:p%40%2F%23@mail.example:25/": {"mail.example:25", false, "TLSMandatory"},
		"smtps://u:p@mail.example":             {"mail.example:465", true, "TLSMandatory"},
		"smtp://mail.example?tls=none":         {"mail.example:587", false, "NoTLS"},
		"smtp://localhost:1025":                {"localhost:1025", false, "TLSOpportunistic"},
		"smtp://127.0.0.9":                     {"127.0.0.9:587", false, "TLSOpportunistic"},
		"smtp://[::1]:25?tls=none":             {"[::1]:25", false, "NoTLS"},
	} {
		srv, err := parseURL(url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		if srv.addr() != want.addr || srv.implicit != want.implicit || srv.starttls.String() != want.starttls {
			t.Errorf("%s: %s, implicit %v, %s; want %+v", url, srv.addr(), srv.implicit, srv.starttls, want)
		}
	}
}

func TestSignsInOverEveryKindOfConnection(t *testing.T) {
	for name, security := range map[string]smtptest.Security{
		"loopback without TLS": smtptest.Plain, "STARTTLS": smtptest.StartTLS, "implicit TLS": smtptest.ImplicitTLS,
	} {
		t.Run(name, func(t *testing.T) {
			srv := start(t, smtptest.Options{Security: security, User: "shop", Password: "p@ss/w#rd?"})
			s := newSender(t, srv, nil)
			if err := s.Ping(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Send(t.Context(), message("d-1")); err != nil {
				t.Fatal(err)
			}
			if n := srv.Count(); n != 1 {
				t.Errorf("%d messages, want 1", n)
			}
		})
	}
}

func TestWrongPasswordIsTheOperatorsFaultNotTheMessages(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"wrong": func(c *Config) { c.URL = strings.Replace(c.URL, "right", "wrong", 1) },
		"none":  func(c *Config) { c.URL = strings.Replace(c.URL, "shop:right@", "", 1) },
	} {
		t.Run(name, func(t *testing.T) {
			srv := start(t, smtptest.Options{Security: smtptest.StartTLS, User: "shop", Password: "right"})
			e := sendError(t, newSender(t, srv, change), message("d-1"))
			if e.Permanent || e.Code < 500 {
				t.Errorf("got %v, want a temporary error with a code from 500", e)
			}
			if strings.Contains(e.Error(), "wrong") {
				t.Errorf("the password is in the error: %v", e)
			}
		})
	}
}

func TestUnknownCertificateIsRefusedAndTemporary(t *testing.T) {
	for _, security := range []smtptest.Security{smtptest.StartTLS, smtptest.ImplicitTLS} {
		srv := start(t, smtptest.Options{Security: security})
		s := newSender(t, srv, func(c *Config) { c.TLSConfig = nil })
		if e := sendError(t, s, message("d-1")); e.Permanent || e.Stage != StageConnect ||
			!strings.Contains(e.Answer, "certificate") || !strings.Contains(e.Answer, "?tls=none") {
			t.Errorf("got %v, want a temporary error about the certificate", e)
		}
	}
}

func TestServerWithoutTLSIsRefusedUnlessOnTheLoopback(t *testing.T) {
	srv := start(t, smtptest.Options{})
	s := newSender(t, srv, nil)
	// The test server can only be reached on the loopback, so the sender is told that this is not one.
	parsed, err := parseURL("smtp://mail.example")
	if err != nil {
		t.Fatal(err)
	}
	s.server.starttls = parsed.starttls
	if e := sendError(t, s, message("d-1")); e.Permanent || !strings.Contains(e.Answer, "STARTTLS") {
		t.Errorf("got %v, want a temporary error about STARTTLS", e)
	}
	if srv.Count() != 0 {
		t.Error("the message was sent in the clear")
	}
}

func TestPasswordsAreNotShownToTheNetwork(t *testing.T) {
	srv, err := parseURL("smtp://u:p@mail.example?tls=none")
	if err != nil {
		t.Fatal(err)
	}
	for _, mechanism := range srv.mechanisms() {
		if strings.Contains(string(mechanism), "PLAIN") || strings.Contains(string(mechanism), "LOGIN") {
			t.Errorf("%s would be used without TLS", mechanism)
		}
	}
}
