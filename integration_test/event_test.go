package integration_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/keytill/keytill/internal/stripefake"
)

const webhookPath = "/webhooks/stripe"

// event TYPE ID|@NAME [id=evt_x] [times=N] [at_once=N] [secret=1|2|wrong] [age=10m] [api_version=…] [account=acct_x]
// [livemode=true|false] [want=200]
func event(ctx context.Context, c *call) error {
	a, err := c.args("TYPE ID", "id", "times", "at_once", "secret", "age", "api_version", "account", "livemode", "want")
	if err != nil {
		return err
	}
	options, err := readEventOptions(a)
	if err != nil {
		return err
	}
	id := a.plain[1]
	if name, ok := strings.CutPrefix(id, "@"); ok {
		c.mu.Lock()
		options.Snapshot, ok = c.snapshots[name]
		c.mu.Unlock()
		if !ok {
			return fmt.Errorf("there is no snapshot %s", name)
		}
		id = ""
	}
	times, err1 := a.count("times", 1, 1)
	atOnce, err2 := a.count("at_once", 1, 1)
	want, err3 := a.count("want", http.StatusOK, 100)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	ev, err := c.stripe.Event(a.plain[0], id, options)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for range times {
		group.Go(func() error {
			status, body, err := c.stripe.Deliver(ctx, c.life.url+webhookPath, ev)
			if err != nil {
				return err
			}
			return wantStatus(want, status, body)
		})
	}
	return group.Wait()
}

func readEventOptions(a args) (stripefake.EventOptions, error) {
	o := stripefake.EventOptions{ID: a.text("id", ""), APIVersion: a.text("api_version", ""), Account: a.text("account", "")}
	switch secret := a.text("secret", "1"); secret {
	case "wrong":
		o.Secret = stripefake.WrongSecret
	default:
		n, err := readCount("secret", secret, 1)
		if err != nil {
			return o, err
		}
		o.Secret = n
	}
	if text, ok := a.named["age"]; ok {
		age, err := time.ParseDuration(text)
		if err != nil {
			return o, fmt.Errorf("age: %w", err)
		}
		o.Age = age
	}
	if text, ok := a.named["livemode"]; ok {
		live, err := strconv.ParseBool(text)
		if err != nil {
			return o, fmt.Errorf("livemode: %w", err)
		}
		o.Livemode = &live
	}
	return o, nil
}

func wantStatus(want, status int, body []byte) error {
	if status != want {
		return fmt.Errorf("keytill answered %d, not %d: %s", status, want, bytes.TrimSpace(body))
	}
	return nil
}

// post FILE [signed=true] [want=400]: unless said, what is signed is answered 200 and what is not 400.
func post(ctx context.Context, c *call) error {
	a, err := c.args("FILE", "signed", "want")
	if err != nil {
		return err
	}
	signed, err := strconv.ParseBool(a.text("signed", "false"))
	if err != nil {
		return fmt.Errorf("signed: %w", err)
	}
	unless := http.StatusBadRequest
	if signed {
		unless = http.StatusOK
	}
	want, err := a.count("want", unless, 100)
	if err != nil {
		return err
	}
	body, err := c.file(a.plain[0])
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.life.url+webhookPath, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	if signed {
		signature, err := c.stripe.Sign(body, 1, 0)
		if err != nil {
			return err
		}
		req.Header.Set("Stripe-Signature", signature)
	}
	// A transport of its own: a connection kept from before a restart is none of this.
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	return wantStatus(want, resp.StatusCode, answer)
}
