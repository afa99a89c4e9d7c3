package integration_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/keytill/keytill/cmd/keytill/cli"
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

// cliTimeout is far above what any command may take on a scenario's few orders.
const cliTimeout = 2 * time.Minute

// runKeytill runs the command line in this process, with the environment of an operator of this scenario's keytill.
func (c *call) runKeytill(ctx context.Context, args []string) (code int, err error) {
	env, err := c.environment()
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, cliTimeout)
	defer cancel()
	c.printed = true
	code = cli.Run(ctx, cli.Process{
		Args: args, Getenv: func(name string) string { return env[name] },
		Stdin: strings.NewReader(""), Stdout: &c.stdout, Stderr: &c.stderr,
		Now: c.clock.now, Dir: c.dir,
	})
	return code, nil
}

func (s *scenario) environment() (map[string]string, error) {
	keyset, err := s.keyset.Marshal()
	if err != nil {
		return nil, err
	}
	return map[string]string{
		"KEYTILL_DATABASE_URL":           s.url,
		"KEYTILL_STRIPE_API_KEY":         s.stripe.APIKey(),
		"KEYTILL_STRIPE_WEBHOOK_SECRETS": strings.Join(s.stripe.Secrets(), ","),
		"KEYTILL_STRIPE_API_URL":         s.stripe.URL(),
		"KEYTILL_KEYSET":                 string(keyset),
		"KEYTILL_SMTP_URL":               s.mail.URL(),
		"KEYTILL_MAIL_FROM":              mailFrom,
		"KEYTILL_HOOK_URL":               "http://" + s.receiver.addr() + hookPath,
		"KEYTILL_HOOK_SECRET":            s.hooks.Secret(),
	}, nil
}
