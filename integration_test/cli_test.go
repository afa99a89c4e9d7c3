package integration_test

import (
	"context"
	"errors"
	"fmt"
)

// keytill ARGS…
func keytill(ctx context.Context, c *call) error {
	code, err := c.runKeytill(ctx, c.words)
	switch {
	case err != nil:
		return err
	case c.neg && code == 0:
		return errors.New("it succeeded, and should have failed")
	case !c.neg && code != 0:
		return fmt.Errorf("exit code %d", code)
	}
	return nil
}

// reconcile [ARGS…]
func reconcile(ctx context.Context, c *call) error {
	code, err := c.runKeytill(ctx, append([]string{"reconcile"}, c.words...))
	if err != nil {
		return err
	}
	want := 0
	if c.neg {
		want = 1
	}
	if code != want {
		return fmt.Errorf("exit code %d, and it should be %d", code, want)
	}
	return c.settle(ctx)
}

// runKeytill runs the command line in this process.
func (c *call) runKeytill(context.Context, []string) (code int, err error) {
	return 0, errors.New("the command line: not supported yet")
}
