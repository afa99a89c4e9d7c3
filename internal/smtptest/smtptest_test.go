package smtptest

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/smtp"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	sender = "shop@example.com"
	buyer  = "buyer@example.com"
	plain  = "Subject: =?utf-8?q?Schl=C3=BCssel?=\r\n\r\nhello\r\n"
)

// send is a client of its own, the standard library's.
func send(s *Server, raw string, to ...string) error {
	return smtp.SendMail(s.Addr(), nil, sender, to, []byte(raw))
}

// code is the server's answer that an error holds, 0 if there was none, 250 without an error.
func code(err error) int {
	var answer *textproto.Error
	switch {
	case err == nil:
		return 250
	case errors.As(err, &answer):
		return answer.Code
	}
	return 0
}

func TestMessagesAreDecoded(t *testing.T) {
	s := Start()
	defer s.Close()
	raw := strings.ReplaceAll(`Subject: =?utf-8?q?Schl=C3=BCssel?=
Content-Type: multipart/mixed; boundary=m

--m
Content-Type: multipart/alternative; boundary=a

--a
Content-Type: text/plain; charset=UTF-8
Content-Transfer-Encoding: quoted-printable

Gr=C3=BC=
=C3=9Fe
--a
Content-Type: text/html; charset=UTF-8
Content-Transfer-Encoding: base64

PGI+R3LDvMOf
ZTwvYj4=
--a--
--m
Content-Type: text/csv; name=keys.csv
Content-Disposition: attachment; filename*=utf-8''k%C3%BC.csv
Content-Transfer-Encoding: base64

YSxiDQo=
--m--
`, "\n", "\r\n")
	if err := send(s, raw, buyer, "second@example.com"); err != nil {
		t.Fatal(err)
	}
	got := s.Messages()[0]
	if got.Header.Get("Subject") != "=?utf-8?q?Schl=C3=BCssel?=" || string(got.Raw) != raw {
		t.Errorf("header %v or raw text is not as sent", got.Header)
	}
	got.Header, got.Raw = nil, nil
	want := Message{
		From: sender, To: []string{buyer, "second@example.com"}, Subject: "Schlüssel",
		Text: "Grüße", HTML: "<b>Grüße</b>",
		Attachments: []Attachment{{Name: "kü.csv", ContentType: "text/csv", Data: []byte("a,b\r\n")}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
	if n := len(s.MessagesTo("SECOND@example.com")); n != 1 {
		t.Errorf("%d messages to the second recipient, want 1", n)
	}
	if n := len(s.MessagesTo("third@example.com")); n != 0 {
		t.Errorf("%d messages to nobody", n)
	}
}

func TestUnreadableMessagesAreRefused(t *testing.T) {
	s := Start()
	defer s.Close()
	for name, raw := range map[string]string{
		"no header":          "hello\r\n",
		"broken multipart":   "Content-Type: multipart/mixed; boundary=m\r\n\r\n--m\r\n\r\nx",
		"broken base64":      "Content-Transfer-Encoding: base64\r\n\r\n!!!!\r\n",
		"unknown encoding":   "Content-Transfer-Encoding: uuencode\r\n\r\nx\r\n",
		"unknown charset":    "Content-Type: text/plain; charset=koi8-r\r\n\r\nx\r\n",
		"bad content type":   "Content-Type: ;;\r\n\r\nx\r\n",
		"charset of Subject": "Subject: =?koi8-r?q?x?=\r\n\r\nx\r\n",
	} {
		if got := code(send(s, raw, buyer)); got != 554 {
			t.Errorf("%s: %d, want 554", name, got)
		}
	}
	if n := s.Count(); n != 0 {
		t.Errorf("%d messages were kept", n)
	}
}

func TestFaultsLastUntilUp(t *testing.T) {
	for name, tc := range map[string]struct {
		fault      func(*Server)
		want, kept int
	}{
		"down":            {(*Server).Down, 451, 0},
		"refuse":          {func(s *Server) { s.Refuse(550) }, 550, 0},
		"refuse for now":  {func(s *Server) { s.Refuse(452) }, 452, 0},
		"refuse one":      {func(s *Server) { s.RefuseTo("Buyer@example.com", 553) }, 553, 0},
		"refuse another":  {func(s *Server) { s.RefuseTo("x@example.com", 553) }, 250, 2},
		"drop after data": {(*Server).DropAfterData, 0, 0},
		"lose the answer": {(*Server).LoseAnswer, 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := Start()
			defer s.Close()
			tc.fault(s)
			for range 2 {
				if got := code(send(s, plain, buyer)); got != tc.want {
					t.Errorf("answer %d, want %d", got, tc.want)
				}
			}
			if n := s.Count(); n != tc.kept {
				t.Errorf("%d messages kept, want %d", n, tc.kept)
			}
			s.Up()
			if err := send(s, plain, buyer); err != nil {
				t.Errorf("after Up: %v", err)
			}
			if n := s.Count(); n != tc.kept+1 {
				t.Errorf("%d messages kept after Up, want %d", n, tc.kept+1)
			}
		})
	}
}

func TestSlowAnswersEndWithClose(t *testing.T) {
	s := Start()
	s.Slow(20 * time.Millisecond)
	began := time.Now()
	if err := send(s, plain, buyer); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 20*time.Millisecond {
		t.Errorf("took only %s", took)
	}
	s.Slow(time.Minute)
	time.AfterFunc(50*time.Millisecond, s.Close)
	if err := send(s, plain, buyer); err == nil {
		t.Error("a message was taken by a server that was closed meanwhile")
	}
	s.Close()
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("took %s", took)
	}
	if n := s.Count(); n != 1 {
		t.Errorf("%d messages, want 1", n)
	}
}

func TestClosingAtOnceLeavesNothingOpen(t *testing.T) {
	for range 50 {
		Start().Close()
	}
}

func TestTLSAndPasswords(t *testing.T) {
	for _, security := range []Security{StartTLS, ImplicitTLS} {
		t.Run(fmt.Sprint(security), func(t *testing.T) {
			s := StartWith(Options{Security: security, User: "u", Password: "p/w"})
			defer s.Close()
			if want := map[Security]string{
				StartTLS: "smtp://u:p%2Fw@" + s.Addr(), ImplicitTLS: "smtps://u:p%2Fw@" + s.Addr(),
			}[security]; s.URL() != want {
				t.Errorf("URL %s, want %s", s.URL(), want)
			}
			for password, want := range map[string]int{"p/w": 250, "wrong": 535, "": 530} {
				if got := code(signIn(s, password)); got != want {
					t.Errorf("password %q: %d, want %d", password, got, want)
				}
			}
		})
	}
}

// signIn greets over TLS, signs in unless the password is empty, and names a sender.
func signIn(s *Server, password string) error {
	config := s.ClientTLS()
	config.ServerName = "127.0.0.1"
	var client *smtp.Client
	if s.opts.Security == ImplicitTLS {
		conn, err := tls.Dial("tcp", s.Addr(), config)
		if err != nil {
			return err
		}
		if client, err = smtp.NewClient(conn, "127.0.0.1"); err != nil {
			return err
		}
	} else {
		var err error
		if client, err = smtp.Dial(s.Addr()); err != nil {
			return err
		}
		if err := client.StartTLS(config); err != nil {
			return err
		}
	}
	defer func() { _ = client.Close() }()
	if password != "" {
		if err := client.Auth(smtp.PlainAuth("", "u", password, "127.0.0.1")); err != nil {
			return err
		}
	}
	return client.Mail(sender)
}
