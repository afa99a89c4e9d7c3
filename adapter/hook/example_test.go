package hook_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/keytill/keytill/adapter/hook"
	"github.com/keytill/keytill/internal/hooktest"
)

func ExampleSender_Send() {
	receiver := hooktest.Start(hooktest.NewSecret())
	defer receiver.Close()

	sender, err := hook.New(hook.Config{URL: receiver.URL(), Secrets: []string{receiver.Secret()}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = sender.Close() }()

	notice := hook.Notice{
		ID: "delivery-7", Type: "key.revoked", At: time.Now(), Data: json.RawMessage(`{"order":"cs_1"}`),
	}
	answer, err := sender.Send(context.Background(), notice)
	fmt.Println(answer, err)
	fmt.Println(receiver.Count("key.revoked"), string(receiver.Notices()[0].Data))

	receiver.Fail(1, http.StatusGone)
	_, err = sender.Send(context.Background(), notice)
	var refused *hook.Error
	if errors.As(err, &refused) {
		fmt.Println(refused.Permanent, err)
	}
	// Output:
	// 204 No Content <nil>
	// 1 {"order":"cs_1"}
	// true hook "delivery-7" not taken (permanent): the receiver answered 410 Gone
}
