package mail

import (
	"fmt"
	"net/smtp"
	"strings"
	"testing"

	"github.com/keytill/keytill/internal/smtptest"
)

func orderMail(id string) Message {
	return Message{
		ID: id, To: buyer, Subject: "Your keys", Text: strings.Repeat("Product: KEY-0000-0000\n", 20),
		HTML: strings.Repeat("<p>Product: <code>KEY-0000-0000</code></p>\n", 20),
	}
}

func BenchmarkSend(b *testing.B) {
	srv := smtptest.Start()
	defer srv.Close()
	s, err := New(Config{URL: srv.URL(), From: "keys@shop.example"})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for i := 0; b.Loop(); i++ {
		if _, err := s.Send(b.Context(), orderMail(fmt.Sprintf("d-%d", i))); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkBareLoop is what Send is to be compared with: rendered once, one connection, nothing but SMTP.
func BenchmarkBareLoop(b *testing.B) {
	srv := smtptest.Start()
	defer srv.Close()
	s, err := New(Config{URL: srv.URL(), From: "keys@shop.example"})
	if err != nil {
		b.Fatal(err)
	}
	env, err := s.compose(orderMail("d-1"))
	if err != nil {
		b.Fatal(err)
	}
	client, err := smtp.Dial(srv.Addr())
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = client.Quit() }()
	for b.Loop() {
		if err := client.Mail(env.from); err != nil {
			b.Fatal(err)
		}
		if err := client.Rcpt(env.to); err != nil {
			b.Fatal(err)
		}
		w, err := client.Data()
		if err != nil {
			b.Fatal(err)
		}
		if _, err := w.Write(env.raw); err != nil {
			b.Fatal(err)
		}
		if err := w.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
