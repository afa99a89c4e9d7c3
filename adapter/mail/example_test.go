package mail_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/keytill/keytill/adapter/mail"
	"github.com/keytill/keytill/internal/smtptest"
)

func ExampleSender_Send() {
	server := smtptest.Start()
	defer server.Close()

	sender, err := mail.New(mail.Config{URL: server.URL(), From: "Shop <keys@shop.example>"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = sender.Close() }()

	message := mail.Message{ID: "delivery-7", To: "buyer@example.com", Subject: "Your key", Text: "AAAA-BBBB"}
	answer, err := sender.Send(context.Background(), message)
	fmt.Println(answer, err)
	fmt.Println(server.MessagesTo("buyer@example.com")[0].Header.Get("Message-ID"))

	server.Refuse(550)
	_, err = sender.Send(context.Background(), message)
	var refused *mail.Error
	if errors.As(err, &refused) {
		fmt.Println(refused.Permanent, refused.Code, err)
	}
	// Output:
	// 250 2.0.0 OK: queued <nil>
	// <delivery-7@shop.example>
	// true 550 mail "delivery-7" not sent (recipient, permanent): 550 5.1.1 <(address)>: Recipient address rejected
}
