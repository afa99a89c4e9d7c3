package sweeps_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/keytill/keytill/cmd/keytill/cli"
	"github.com/keytill/keytill/integration_test/shoptest"
	"github.com/keytill/keytill/internal/stripefake"
	"github.com/keytill/keytill/reconcile"
)

// keytill runs the command line as an operator of this shop would.
func keytill(s *shoptest.Shop, args ...string) (code int, stdout, stderr string) {
	s.T.Helper()
	keyset, err := s.Keyset.Marshal()
	s.Must(err)
	env := map[string]string{"KEYTILL_DATABASE_URL": s.DB.Config().ConnString(), "KEYTILL_KEYSET": string(keyset),
		"KEYTILL_STRIPE_API_KEY": s.Stripe.APIKey(), "KEYTILL_STRIPE_API_URL": s.Stripe.URL()}
	var out, errs bytes.Buffer
	code = cli.Run(s.T.Context(), cli.Process{Args: args, Getenv: func(name string) string { return env[name] },
		Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Now: s.Now})
	return code, out.String(), errs.String()
}

func TestTheCommandSaysWhatItDid(t *testing.T) {
	t.Parallel()
	s := shoptest.Open(t, shoptest.Config{Keys: 10})
	item := []stripefake.Item{{Price: "price_game", Quantity: 1, Amount: unitAmount}}
	s.GoTo(s.Now().Add(time.Second))
	s.Must(s.Stripe.Session("cs_1", item, nil))
	s.Must(s.Stripe.Session("cs_2", item, nil))
	s.GoTo(s.Now().Add(time.Hour))

	code, stdout, stderr := keytill(s, "reconcile", "--dry-run")
	if code != 0 || !strings.Contains(stdout, "would settle cs_1: paid without order") || !strings.Contains(stdout, "nothing has changed") {
		t.Errorf("dry run: %d\n%s%s", code, stdout, stderr)
	}

	s.Stripe.Fail(5, stripefake.Fault{Path: "/v1/checkout/sessions/cs_2", Status: 500})
	code, stdout, stderr = keytill(s, "reconcile", "--json")
	var told struct {
		Walked, Differing, Repaired, Failed int
		Sweeps                              []reconcile.Report
	}
	if err := json.Unmarshal([]byte(stdout), &told); err != nil {
		t.Fatalf("%v\n%s", err, stdout)
	}
	if code != 1 || told.Walked != 4 || told.Differing != 2 || told.Repaired != 1 || told.Failed != 1 || len(told.Sweeps) != 1 ||
		!strings.Contains(stderr, "next sweep tries again") {
		t.Errorf("with a failure: %d, %+v\n%s", code, told, stderr)
	}

	code, stdout, stderr = keytill(s, "reconcile")
	if code != 0 || !strings.Contains(stdout, "Repaired 1h0m0s after it could be known") {
		t.Errorf("%d\n%s%s", code, stdout, stderr)
	}
	if got := s.UnitsOf("cs_2"); got != (shoptest.Units{Fulfilled: 1}) {
		t.Errorf("%+v", got)
	}
}

func TestTheCommandRefusesToSweepBesideAnother(t *testing.T) {
	t.Parallel()
	s := shoptest.Open(t, shoptest.Config{Keys: 10})
	s.GoTo(s.Now().Add(time.Hour))
	_, err := s.DB.Exec(t.Context(), `INSERT INTO keytill.sweep_leases (merchant_id, holder, taken_at, expires_at) VALUES ('default', 'x', $1, $2)`,
		s.Now(), s.Now().Add(time.Minute))
	s.Must(err)
	code, _, stderr := keytill(s, "reconcile")
	if code != 1 || !strings.Contains(stderr, "another process is sweeping this merchant") {
		t.Errorf("%d: %s", code, stderr)
	}
	s.GoTo(s.Now().Add(time.Minute)) // it has died
	if code, _, stderr := keytill(s, "reconcile"); code != 0 {
		t.Errorf("%d: %s", code, stderr)
	}
}

func TestTheCommandsFlags(t *testing.T) {
	t.Parallel()
	s := shoptest.Open(t, shoptest.Config{Keys: 10})
	for _, tt := range []struct {
		args string
		code int
	}{
		{"reconcile --since 72h", 0}, {"reconcile --since 30d", 0}, {"reconcile --merchant default", 0},
		{"reconcile --since tomorrow", 2}, {"reconcile --since -1h", 2}, {"reconcile now", 2}, {"reconcile --merchant nobody", 1},
		{"reconcile --reconcile-grace never", 2},
	} {
		if code, _, stderr := keytill(s, strings.Fields(tt.args)...); code != tt.code {
			t.Errorf("keytill %s: exit %d, want %d: %s", tt.args, code, tt.code, stderr)
		}
	}
}
