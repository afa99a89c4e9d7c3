package mail

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"mime"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/keytill/keytill/internal/smtptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const buyer = "buyer@example.com"

func newSender(t *testing.T, srv *smtptest.Server, change func(*Config)) *Sender {
	t.Helper()
	cfg := Config{URL: srv.URL(), From: "Shop <keys@shop.example>", TLSConfig: srv.ClientTLS(), Helo: "shop.example"}
	if change != nil {
		change(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func start(t *testing.T, opts smtptest.Options) *smtptest.Server {
	t.Helper()
	srv := smtptest.StartWith(opts)
	t.Cleanup(srv.Close)
	return srv
}

func message(id string) Message {
	return Message{ID: id, To: buyer, Subject: "Your key", Text: "KEY-1"}
}

// sendError is the *Error that Send must return.
func sendError(t *testing.T, s *Sender, m Message) *Error {
	t.Helper()
	answer, err := s.Send(t.Context(), m)
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("Send = %q, %v; want an *Error", answer, err)
	}
	if strings.Contains(e.Error(), "@") {
		t.Errorf("an address is in the error: %v", e)
	}
	return e
}

func TestMessageArrivesAsItWasGiven(t *testing.T) {
	srv := start(t, smtptest.Options{})
	s := newSender(t, srv, func(c *Config) {
		c.Now = func() time.Time { return time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC) }
	})
	csv := []byte("product,key\r\nGrün,A-1\r\n" + strings.Repeat("x,", 2000))
	answer, err := s.Send(t.Context(), Message{
		ID: "d-42", To: buyer, ToName: "Zoë, \"the\" Buyer", Subject: "Ihre Schlüssel für Grün",
		Text:        "Grüße\n.\n..dots\n" + strings.Repeat("long ", 400) + "\nkey=A&B",
		HTML:        "<p>Grüße</p>",
		Attachments: []Attachment{{Name: "keys.csv", ContentType: "text/csv; charset=utf-8", Data: csv}, {Name: "../Schlüssel.bin"}},
		Headers:     map[string]string{"Reply-To": "Hilfe für alle <help@shop.example>", "Content-Language": "de"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(answer, "250 2.0.0 ") {
		t.Errorf("answer = %q, want the server's 250 line", answer)
	}

	got := srv.MessagesTo("BUYER@example.com")
	if len(got) != 1 {
		t.Fatalf("%d messages arrived, want 1", len(got))
	}
	m := got[0]
	want := smtptest.Message{
		From: "keys@shop.example", To: []string{buyer}, Subject: "Ihre Schlüssel für Grün",
		Text: "Grüße\n.\n..dots\n" + strings.Repeat("long ", 400) + "\nkey=A&B",
		HTML: "<p>Grüße</p>",
		Attachments: []smtptest.Attachment{
			{Name: "keys.csv", ContentType: "text/csv", Data: csv},
			{Name: "Schlüssel.bin", ContentType: "application/octet-stream", Data: []byte{}},
		},
	}
	header := m.Header
	m.Header, m.Raw = nil, nil
	if diff := cmp.Diff(want, m); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
	for name, want := range map[string]string{
		"Message-Id": "<d-42@shop.example>", "Auto-Submitted": "auto-generated", "Mime-Version": "1.0",
		"Date": "Fri, 02 Jan 2026 15:04:05 +0000", "From": `"Shop" <keys@shop.example>`, "Content-Language": "de",
		"User-Agent": "", "X-Mailer": "",
	} {
		if got := header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	to, err := header.AddressList("To")
	if err != nil || to[0].Name != "Zoë, \"the\" Buyer" {
		t.Errorf("To = %v, %v", to, err)
	}
	reply, err := header.AddressList("Reply-To")
	if err != nil || reply[0].String() != "=?utf-8?q?Hilfe_f=C3=BCr_alle?= <help@shop.example>" {
		t.Errorf("Reply-To = %v, %v", reply, err)
	}
}

func TestSameIDGivesTheSameMessageID(t *testing.T) {
	srv := start(t, smtptest.Options{})
	s := newSender(t, srv, nil)
	for range 2 {
		if _, err := s.Send(t.Context(), message("d-7")); err != nil {
			t.Fatal(err)
		}
	}
	got := srv.Messages()
	if a, b := got[0].Header.Get("Message-Id"), got[1].Header.Get("Message-Id"); a != b || a != "<d-7@shop.example>" {
		t.Errorf("Message-IDs %q and %q, want both <d-7@shop.example>", a, b)
	}
}

func TestAnswersOfTheServerDecideBetweenPermanentAndTemporary(t *testing.T) {
	for _, tc := range []struct {
		name  string
		fault func(*smtptest.Server)
		want  Error
	}{
		{"down", (*smtptest.Server).Down, Error{Code: 451, Stage: StageSender}},
		{"mailbox unknown", func(s *smtptest.Server) { s.Refuse(550) },
			Error{Code: 550, Stage: StageRecipient, Permanent: true}},
		{"greylisted", func(s *smtptest.Server) { s.Refuse(450) }, Error{Code: 450, Stage: StageRecipient}},
		{"this address only", func(s *smtptest.Server) { s.RefuseTo(buyer, 553) },
			Error{Code: 553, Stage: StageRecipient, Permanent: true}},
		{"message lost", (*smtptest.Server).DropAfterData, Error{Stage: StageAnswer, Uncertain: true}},
		{"answer lost", (*smtptest.Server).LoseAnswer, Error{Stage: StageAnswer, Uncertain: true}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			srv := start(t, smtptest.Options{})
			s := newSender(t, srv, nil)
			tc.fault(srv)
			got := sendError(t, s, message("d-1"))
			tc.want.ID, tc.want.Answer = "d-1", got.Answer
			if diff := cmp.Diff(tc.want.Error(), got.Error()); diff != "" ||
				got.Permanent != tc.want.Permanent || got.Uncertain != tc.want.Uncertain {
				t.Errorf("error (-want +got):\n%s", diff)
			}

			srv.Up()
			if _, err := s.Send(t.Context(), message("d-1")); err != nil {
				t.Errorf("after Up: %v", err)
			}
		})
	}
}

func TestServerThatIsGoneIsTemporary(t *testing.T) {
	srv := start(t, smtptest.Options{})
	s := newSender(t, srv, nil)
	srv.Close()
	if e := sendError(t, s, message("d-1")); e.Permanent || e.Uncertain || e.Stage != StageConnect {
		t.Errorf("got %#v, want temporary, at connect", e)
	}
	if err := s.Ping(t.Context()); err == nil {
		t.Error("Ping found a server that is gone")
	}
}

func TestSlowServerIsGivenUpAfterTheTimeout(t *testing.T) {
	srv := start(t, smtptest.Options{})
	s := newSender(t, srv, func(c *Config) { c.Timeout = 100 * time.Millisecond })
	srv.Slow(time.Minute)
	began := time.Now()
	e := sendError(t, s, message("d-1"))
	if e.Permanent || !e.Uncertain || e.Stage != StageAnswer {
		t.Errorf("got %v, want temporary, uncertain, at the answer", e)
	}
	if errors.Is(e, context.DeadlineExceeded) {
		t.Error("the sender's own timeout looks like the caller's context")
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("took %s", took)
	}
}

func TestEndedContextEndsSending(t *testing.T) {
	for _, stage := range []string{"new connection", "idle connection"} {
		t.Run(stage, func(t *testing.T) {
			srv := start(t, smtptest.Options{})
			s := newSender(t, srv, nil)
			if stage == "idle connection" {
				if _, err := s.Send(t.Context(), message("d-0")); err != nil {
					t.Fatal(err)
				}
			}
			srv.Slow(time.Minute)
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(50*time.Millisecond, cancel)
			began := time.Now()
			_, err := s.Send(ctx, message("d-1"))
			var e *Error
			if !errors.As(err, &e) || e.Permanent || !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want a temporary *Error that wraps context.Canceled", err)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("took %s", took)
			}
		})
	}
}

func TestBadMessagesArePermanentAndNeverSent(t *testing.T) {
	srv := start(t, smtptest.Options{})
	s := newSender(t, srv, nil)
	for name, change := range map[string]func(*Message){
		"no address":           func(m *Message) { m.To = " " },
		"not an address":       func(m *Message) { m.To = "buyer.example.com" },
		"two addresses":        func(m *Message) { m.To = "a@example.com, b@example.com" },
		"address with CRLF":    func(m *Message) { m.To = "a@example.com\r\nRCPT TO:<b@example.com>" },
		"quoted CRLF":          func(m *Message) { m.To = "\"a\r\nb\"@example.com" },
		"long local part":      func(m *Message) { m.To = strings.Repeat("a", 65) + "@example.com" },
		"long address":         func(m *Message) { m.To = "a@" + strings.Repeat("a.", 150) + "com" },
		"needs SMTPUTF8":       func(m *Message) { m.To = "zoë@example.com" },
		"no body":              func(m *Message) { m.Text = "" },
		"no ID":                func(m *Message) { m.ID = "" },
		"ID with CRLF":         func(m *Message) { m.ID = "a\r\nBcc: x" },
		"ID with @":            func(m *Message) { m.ID = "a@b" },
		"header name":          func(m *Message) { m.Headers = map[string]string{"X:\r\nBcc": "x"} },
		"own header":           func(m *Message) { m.Headers = map[string]string{"message-id": "<x@y>"} },
		"Bcc":                  func(m *Message) { m.Headers = map[string]string{"bcc": "x@y.example"} },
		"Reply-To":             func(m *Message) { m.Headers = map[string]string{"Reply-To": "nobody"} },
		"header line too long": func(m *Message) { m.Headers = map[string]string{"X-Long": strings.Repeat("x", 1000)} },
		"attachment type":      func(m *Message) { m.Attachments = []Attachment{{Name: "a", ContentType: "x\r\nBcc: y"}} },
	} {
		t.Run(name, func(t *testing.T) {
			m := message("d-1")
			change(&m)
			if e := sendError(t, s, m); !e.Permanent || e.Code != 0 {
				t.Errorf("got %v, want permanent, without a code", e)
			}
		})
	}
	if n := srv.Count(); n != 0 {
		t.Errorf("%d messages were sent", n)
	}
}

func TestNamesAndSubjectsCannotAddHeaders(t *testing.T) {
	srv := start(t, smtptest.Options{})
	s := newSender(t, srv, nil)
	evil := []string{
		"x\r\nBcc: thief@example.net", "x\nBcc: thief@example.net", "x\rBcc: thief@example.net",
		"x\r\n\r\n<b>body</b>", "x\" <thief@example.net>, \"y", "x\u2028Bcc: thief@example.net", "ü\r\nBcc: thief@example.net",
		"x\x00y", "x\x1b[31my\x7f", "\xff\xfe\r\n.\r\nMAIL FROM:<>", strings.Repeat("x", 5000), strings.Repeat(" \t", 300) + "\r\n \r\nx",
		strings.Repeat("ü", 5000),
		strings.Repeat("🔑", 5000), "=?utf-8?q?=0D=0ABcc:_thief?=",
	}
	for i, text := range evil {
		m := message(fmt.Sprintf("d-%d", i))
		m.Subject, m.ToName = text, text
		m.Headers = map[string]string{"X-Product": shorten(text, 500)}
		m.Attachments = []Attachment{{Name: text, Data: []byte("x")}}
		if _, err := s.Send(t.Context(), m); err != nil {
			t.Errorf("%.40q: %v", text, err)
			continue
		}
		got := srv.Messages()
		last := got[len(got)-1]
		checkWire(t, last.Raw)
		if bcc := last.Header.Get("Bcc"); bcc != "" || len(last.To) != 1 || last.To[0] != buyer {
			t.Errorf("%.40q: Bcc %q, envelope %v", text, bcc, last.To)
		}
		to, err := last.Header.AddressList("To")
		if err != nil || len(to) != 1 || to[0].Address != buyer {
			t.Errorf("%.40q: To = %v, %v", text, to, err)
		}
		if last.Text != "KEY-1" {
			t.Errorf("%.40q: text = %q", text, last.Text)
		}
		for _, name := range []string{"Subject", "X-Product"} {
			if strings.HasPrefix(text, "=?") {
				continue // says of itself what a reader makes of it
			}
			if said, err := new(mime.WordDecoder).DecodeHeader(last.Header.Get(name)); err != nil || strings.ContainsFunc(said, unicode.IsControl) {
				t.Errorf("%.40q: %s says %.80q (%v)", text, name, said, err)
			}
		}
	}
}

// checkWire holds a message against RFC 5322, 2.1 and 2.2.3: 7 bit, CRLF only, short lines, no blank folded line.
func checkWire(t *testing.T, raw []byte) {
	t.Helper()
	header, _, ok := bytes.Cut(raw, []byte("\r\n\r\n"))
	if !ok {
		t.Error("the header does not end")
	}
	for line := range bytes.SplitSeq(header, []byte("\r\n")) {
		if len(bytes.TrimSpace(line)) == 0 {
			t.Errorf("blank line folded into the header: %q", line)
		}
	}
	for line := range bytes.SplitSeq(raw, []byte("\r\n")) {
		if len(line) > 998 {
			t.Errorf("line of %d bytes", len(line))
		}
		for _, b := range line {
			if b == '\r' || b == '\n' || b == 0 || b >= 0x80 {
				t.Errorf("byte %#x in %.80q", b, line)
				break
			}
		}
	}
}

func TestAddressOutsideASCIIIsSentWhereTheServerTakesIt(t *testing.T) {
	srv := start(t, smtptest.Options{UTF8: true})
	s := newSender(t, srv, nil)
	m := message("d-1")
	m.To = "zoë@example.com"
	if _, err := s.Send(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if n := len(srv.MessagesTo("zoë@example.com")); n != 1 {
		t.Errorf("%d messages, want 1", n)
	}
}

func TestHostileAnswersAreCleaned(t *testing.T) {
	for in, want := range map[string]string{
		"5.1.1 <Buyer@Example.com>: unknown":           "5.1.1 <(address)>: unknown",
		"no\r\nsuch\x1b[31m user\tbuyer@example.com.":  "no such [31m user (address)",
		"\"odd name\"@example.com is unknown":          "(address) is unknown",
		"5.7.1 see http://mx.example/why?to=a@b.c;x=1": "5.7.1 see http:(address);x=1",
		strings.Repeat("long ", 200):                   strings.Repeat("long ", 60)[:299] + "…",
		"5.1.1 caf\xe9":                                "5.1.1 caf?",
	} {
		if got := clean(in, "odd name@example.com"); got != want {
			t.Errorf("clean(%.60q) = %q, want %q", in, got, want)
		}
	}
}
