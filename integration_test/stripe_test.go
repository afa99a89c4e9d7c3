package integration_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/keytill/keytill/internal/stripefake"
)

// stripe WHAT …
func stripe(ctx context.Context, c *call) error {
	if len(c.words) == 0 {
		return errors.New("say what of Stripe")
	}
	forms := map[string]command{
		"session": stripeSession, "price": stripePrice, "intent": stripeIntent, "set": stripeSet,
		"refund": stripeRefund, "dispute": stripeDispute, "warning": stripeWarning, "review": stripeReview,
		"down": stripeDown, "hold": stripeHold, "held": stripeHeld, "let-go": stripeLetGo,
		"called": stripeCalled, "forget": stripeForget,
	}
	form := forms[c.words[0]]
	if form == nil {
		return fmt.Errorf("unknown: stripe %s", c.words[0])
	}
	inner := *c
	inner.words = c.words[1:]
	return form(ctx, &inner)
}

// object sorts the arguments of a form that makes or changes an object: ids, and fields of any name.
func (c *call) object(ids int) ([]string, stripefake.Fields, error) {
	a, err := sortWords(c.words)
	if err == nil && len(a.plain) != ids {
		err = fmt.Errorf("it takes %d ids, not %q", ids, a.plain)
	}
	return a.plain, stripefake.Fields(a.named), err
}

// stripe session ID PRICE*QTY[@AMOUNT][#LINE]… [k=v…]
func stripeSession(_ context.Context, c *call) error {
	a, err := sortWords(c.words)
	if err != nil {
		return err
	}
	if len(a.plain) == 0 {
		return errors.New("say the session's id")
	}
	items, err := stripefake.ParseItems(a.plain[1:]...)
	if err != nil {
		return err
	}
	return c.stripe.Session(a.plain[0], items, a.named)
}

// stripe price ID product=P
func stripePrice(_ context.Context, c *call) error {
	ids, fields, err := c.object(1)
	if err != nil {
		return err
	}
	return c.stripe.Price(ids[0], fields)
}

// stripe intent ID amount=N [k=v…]
func stripeIntent(_ context.Context, c *call) error {
	ids, fields, err := c.object(1)
	if err != nil {
		return err
	}
	return c.stripe.Intent(ids[0], fields)
}

// stripe set ID k=v…
func stripeSet(_ context.Context, c *call) error {
	ids, fields, err := c.object(1)
	if err == nil && len(fields) == 0 {
		err = errors.New("there is nothing to set")
	}
	if err != nil {
		return err
	}
	return c.stripe.Set(ids[0], fields)
}

// stripe refund ID PI amount=N [status=succeeded] [k=v…]
func stripeRefund(_ context.Context, c *call) error {
	ids, fields, err := c.object(2)
	if err != nil {
		return err
	}
	return c.stripe.Refund(ids[0], ids[1], fields)
}

// stripe dispute ID PI [amount=all] status=S
func stripeDispute(_ context.Context, c *call) error {
	ids, fields, err := c.object(2)
	if err != nil {
		return err
	}
	return c.stripe.Dispute(ids[0], ids[1], fields)
}

// stripe warning ID PI
func stripeWarning(_ context.Context, c *call) error {
	ids, fields, err := c.object(2)
	if err != nil {
		return err
	}
	return c.stripe.Warning(ids[0], ids[1], fields)
}

// stripe review ID PI [open=true]
func stripeReview(_ context.Context, c *call) error {
	ids, fields, err := c.object(2)
	if err != nil {
		return err
	}
	return c.stripe.Review(ids[0], ids[1], fields)
}

// stripe down N [status=500|429|hang] [path=/v1/…]
func stripeDown(_ context.Context, c *call) error {
	a, err := c.args("N", "status", "path")
	if err != nil {
		return err
	}
	n, err := readCount("down", a.plain[0], 0)
	if err != nil {
		return err
	}
	fault := stripefake.Fault{Path: a.text("path", "")}
	switch status := a.text("status", "500"); status {
	case "hang":
		fault.Hang = true
	default:
		fault.Status, err = strconv.Atoi(status)
		if err != nil || fault.Status < http.StatusBadRequest || fault.Status > 599 {
			return fmt.Errorf("status=%s: it is hang or a status of an error", status)
		}
	}
	c.stripe.Fail(n, fault)
	return nil
}

// stripe hold NAME path=/v1/…
func stripeHold(_ context.Context, c *call) error {
	a, err := c.args("NAME", "path")
	if err != nil {
		return err
	}
	path := a.text("path", "")
	if path == "" {
		return errors.New("say path=/v1/…")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holds[a.plain[0]] != nil {
		return fmt.Errorf("%s is held already", a.plain[0])
	}
	c.holds[a.plain[0]] = c.stripe.Hold(path)
	return nil
}

func (c *call) findHold() (*stripefake.Hold, error) {
	if err := c.exactly("NAME"); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	hold := c.holds[c.words[0]]
	if hold == nil {
		return nil, fmt.Errorf("nothing is held by the name %s", c.words[0])
	}
	return hold, nil
}

// stripe held NAME
func stripeHeld(ctx context.Context, c *call) error {
	hold, err := c.findHold()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := hold.Held(ctx); err != nil {
		return fmt.Errorf("no such call came within %s\n%s", patience, c.situation())
	}
	return nil
}

// stripe let-go NAME
func stripeLetGo(_ context.Context, c *call) error {
	hold, err := c.findHold()
	if err != nil {
		return err
	}
	hold.LetGo()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.holds, c.words[0])
	return nil
}

// held reports whether the script holds an answer of Stripe back.
func (s *scenario) held() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.holds) > 0
}

// stripe called [path=/v1/…] [min=N] [max=N]
func stripeCalled(ctx context.Context, c *call) error {
	a, err := c.args("", "path", "min", "max")
	if err != nil {
		return err
	}
	least, err := a.count("min", 0, 0)
	if err != nil {
		return err
	}
	most, err := a.count("max", -1, 0)
	if err != nil {
		return err
	}
	if len(a.named) == 0 || len(a.named) == 1 && a.text("path", "") != "" {
		return errors.New("say min= or max=")
	}
	return c.await(ctx, func(context.Context) error {
		n := c.stripe.Calls(a.text("path", ""))
		if n < least || most >= 0 && n > most {
			return fmt.Errorf("keytill made %d calls", n)
		}
		return nil
	})
}

// stripe forget
func stripeForget(_ context.Context, c *call) error {
	if err := c.exactly(""); err != nil {
		return err
	}
	c.stripe.ForgetCalls()
	return nil
}

// snapshot NAME ID
func snapshot(_ context.Context, c *call) error {
	if err := c.exactly("NAME ID"); err != nil {
		return err
	}
	object, err := c.stripe.Snapshot(c.words[1])
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.snapshots[c.words[0]] = object
	return nil
}

// patience is how long a reading command waits for what it expects.
const patience = 5 * time.Second

const pollEvery = 20 * time.Millisecond

// lasting marks an error that waiting will not mend.
type lasting struct{ error }

// Unwrap returns the error itself.
func (e lasting) Unwrap() error { return e.error }

// await asks again and again until the answer is right, or patience ends.
func (s *scenario) await(ctx context.Context, check func(ctx context.Context) error) error {
	deadline := time.Now().Add(patience)
	for {
		err := check(ctx)
		var final lasting
		switch {
		case err == nil:
			return nil
		case errors.As(err, &final), ctx.Err() != nil:
			return err
		case time.Now().After(deadline):
			return fmt.Errorf("%w\n%s", err, s.situation())
		}
		time.Sleep(pollEvery)
	}
}

// oneOf reports an error unless the word is among the known.
func oneOf[S ~string](what string, word S, known []S) error {
	if !slices.Contains(known, word) {
		return fmt.Errorf("unknown %s %q, known are %q", what, word, known)
	}
	return nil
}
