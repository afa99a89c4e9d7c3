package main_test

import (
	"bytes"
	"context"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keytill/keytill/cmd/keytill/cli"
	"github.com/keytill/keytill/internal/pgtest"
	"github.com/keytill/keytill/inventory"
)

// environment is the variables of a daemon, without their prefix.
type environment map[string]string

func (e environment) with(changes environment) environment {
	all := maps.Clone(e)
	maps.Copy(all, changes)
	return all
}

// get is os.Getenv for it.
func (e environment) get(name string) string {
	short, _ := strings.CutPrefix(name, "KEYTILL_")
	return e[short]
}

// working is a configuration that serves.
func working(databaseURL, keyset string) environment {
	return environment{
		"DATABASE_URL":           databaseURL,
		"STRIPE_API_KEY":         "sk_test_neverShown1",
		"STRIPE_WEBHOOK_SECRETS": "whsec_neverShown2",
		"KEYSET":                 keyset,
		"LISTEN":                 "127.0.0.1:0",
	}
}

// result is how a command ended.
type result struct {
	code           int
	stdout, stderr string
}

// run runs a command in this process. It is told to stop when ctx ends.
func run(ctx context.Context, env environment, dir string, args ...string) result {
	var stdout, stderr bytes.Buffer
	code := cli.Run(ctx, cli.Process{Args: args, Getenv: env.get, Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr,
		Now: time.Now, Dir: dir})
	return result{code, stdout.String(), stderr.String()}
}

func newKeyset(t *testing.T) string {
	t.Helper()
	keyset, err := inventory.NewKeyset()
	if err != nil {
		t.Fatal(err)
	}
	text, err := keyset.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestServeSaysWhatIsWrong holds that a configuration that cannot work ends the daemon at once, with one line that says what
// to do and shows no secret.
//
// A key's mode is what its prefix says, and one with neither mode is refused. Whether a key of test mode belongs to a
// shop that sells in live mode, only Stripe knows.
func TestServeSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	address := pgtest.NewURL(t)
	keyset := newKeyset(t)
	sealWith(t, address, keyset)
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "keyset.json"), keyset)
	writeFile(t, filepath.Join(dir, "other.json"), newKeyset(t))
	writeFile(t, filepath.Join(dir, "torn.json"), keyset[:len(keyset)/2])
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { busy.Close() })

	tests := []struct {
		name   string
		change environment
		args   []string
		want   string // in what it says
	}{
		{"no API key", environment{"STRIPE_API_KEY": ""}, nil, "set KEYTILL_STRIPE_API_KEY"},
		{"publishable API key", environment{"STRIPE_API_KEY": "pk_live_neverShown3"}, nil, "give a secret key (sk_…)"},
		{"API key of no mode", environment{"STRIPE_API_KEY": "sk_neverShown3"}, nil, "must begin with sk_live_, sk_test_"},
		{"API key that is a secret", environment{"STRIPE_API_KEY": "whsec_neverShown3"}, nil, "must begin with sk_live_, sk_test_"},
		{"API key with nothing in it", environment{"STRIPE_API_KEY": "sk_live_"}, nil, "must begin with sk_live_, sk_test_"},
		{"API address", environment{"STRIPE_API_URL": "localhost:12111"}, nil, "http://"},

		{"no secret", environment{"STRIPE_WEBHOOK_SECRETS": ""}, nil, "set KEYTILL_STRIPE_WEBHOOK_SECRETS"},
		{"empty secrets", environment{"STRIPE_WEBHOOK_SECRETS": " , "}, nil, "set KEYTILL_STRIPE_WEBHOOK_SECRETS"},
		{"secret without whsec_", environment{"STRIPE_WEBHOOK_SECRETS": "neverShown3"}, nil, "does not begin with whsec_"},
		{"second secret without whsec_", environment{"STRIPE_WEBHOOK_SECRETS": "whsec_a,neverShown3"}, nil, "secret 2 of 2 does not begin with whsec_"},
		{"secret with nothing in it", environment{"STRIPE_WEBHOOK_SECRETS": "whsec_"}, nil, "copy the whole secret"},
		{"secret that is an API key", environment{"STRIPE_WEBHOOK_SECRETS": "sk_test_neverShown3"}, nil, "give the endpoint's signing secret"},

		{"no keyset", environment{"KEYSET": ""}, nil, "keytill keyset new"},
		{"keyset twice", environment{"KEYSET_FILE": "keyset.json"}, nil, "unset KEYTILL_KEYSET or KEYTILL_KEYSET_FILE"},
		{"keyset that is none", environment{"KEYSET": `{"encryption":"neverShown3"}`}, nil, "keytill keyset new"},
		{"keyset file that is not there", environment{"KEYSET": "", "KEYSET_FILE": "nowhere.json"}, nil, "KEYTILL_KEYSET_FILE"},
		{"keyset file that is a directory", environment{"KEYSET": "", "KEYSET_FILE": "."}, nil, "KEYTILL_KEYSET_FILE"},
		{"keyset file that is torn", environment{"KEYSET": "", "KEYSET_FILE": "torn.json"}, nil, "keytill keyset new"},
		{"keyset of another database", environment{"KEYSET": "", "KEYSET_FILE": "other.json"}, nil, "did not encrypt this database: give the one that did"},

		{"database that does not answer", environment{"DATABASE_URL": "postgres://shop:neverShown3@127.0.0.1:1/shop"}, nil, "check KEYTILL_DATABASE_URL"},
		{"database that is not there", environment{"DATABASE_URL": withDatabase(t, address, "nowhere")}, nil, "check KEYTILL_DATABASE_URL"},
		{"database password", environment{"DATABASE_URL": withPassword(t, address, "neverShown3")}, nil, "check KEYTILL_DATABASE_URL"},
		{"database URL", environment{"DATABASE_URL": "postgres://shop:neverShown3@[::1/shop"}, nil, "postgres://user:password@host:5432/database"},
		{"database URL of another kind", environment{"DATABASE_URL": "mysql://shop:neverShown3@127.0.0.1/shop"}, nil, "postgres://user:password@host:5432/database"},

		{"mail without sender", environment{"SMTP_URL": "smtp://shop:neverShown3@127.0.0.1:25"}, nil, "KEYTILL_MAIL_FROM"},
		{"sender without mail", environment{"MAIL_FROM": "shop@example.com"}, nil, "KEYTILL_SMTP_URL"},
		{"mail sender", environment{"SMTP_URL": "smtp://127.0.0.1:25", "MAIL_FROM": "Shop shop@example"}, nil, "write Shop <shop@example.com>"},
		{"mail URL", environment{"SMTP_URL": "http://shop:neverShown3@127.0.0.1:25", "MAIL_FROM": "shop@example.com"}, nil, "smtp://"},
		{"hook without secret", environment{"HOOK_URL": "https://shop.example/keys"}, nil, "KEYTILL_HOOK_SECRET"},
		{"hook secret without hook", environment{"HOOK_SECRET": "whsec_neverShown3"}, nil, "KEYTILL_HOOK_URL"},
		{"hook secret", environment{"HOOK_URL": "https://shop.example/keys", "HOOK_SECRET": "neverShown3"}, nil, "whsec_"},
		{"hook URL", environment{"HOOK_URL": "shop.example/keys", "HOOK_SECRET": "whsec_bmV2ZXJTaG93bjNuZXZlclNob3duMw=="}, nil, "https://"},

		{"time between sweeps", environment{"RECONCILE_EVERY": "soon"}, nil, "such as 15m"},
		{"grace of sweeps", environment{"RECONCILE_GRACE": "soon"}, nil, "such as 5m"},
		{"time of reservations", environment{"RESERVATION_TTL": "soon"}, nil, "such as 15m"},

		{"log level", environment{"LOG": "chatty"}, nil, "use debug, info, warn or error"},
		{"busy address", environment{"LISTEN": busy.Addr().String()}, nil, "KEYTILL_LISTEN"},
		{"address that is none", environment{"LISTEN": "nonsense"}, nil, "KEYTILL_LISTEN"},
		{"schema that is not there", environment{"DATABASE_URL": withoutSchema(t)}, []string{"--no-migrate"}, "run `keytill migrate`"},
		{"two things wrong", environment{"STRIPE_API_KEY": "sk_neverShown3", "MAIL_FROM": "shop@example.com"}, nil, "; "},
		{"unknown flag", nil, []string{"--fast"}, "keytill serve --help"},
		{"an argument", nil, []string{"now"}, "keytill serve --help"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			env := working(address, keyset).with(tt.change)
			got := run(ctx, env, dir, append([]string{"serve"}, tt.args...)...)
			if ctx.Err() != nil {
				t.Fatalf("it serves, and says %q", got.stderr)
			}
			if got.code != 1 && got.code != 2 {
				t.Errorf("exit code %d, want 1 or 2", got.code)
			}
			if strings.Count(got.stderr, "\n") != 1 || !strings.HasSuffix(got.stderr, "\n") || !strings.HasPrefix(got.stderr, "keytill: ") {
				t.Errorf("it says, want one line:\n%s", got.stderr)
			}
			if !strings.Contains(got.stderr, tt.want) {
				t.Errorf("it says %q, want %q in it", got.stderr, tt.want)
			}
			if got.stdout != "" {
				t.Errorf("on standard output: %q", got.stdout)
			}
			if shown := secretIn(got.stderr, keyset); shown != "" {
				t.Errorf("it says %q, which shows the secret %q", got.stderr, shown)
			}
		})
	}
}

// secretIn finds a secret of these tests in a text.
func secretIn(text, keyset string) string {
	if i := strings.Index(text, "neverShown"); i >= 0 {
		return text[i:min(len(text), i+len("neverShown")+1)]
	}
	if i := strings.Index(keyset, `"value":"`); i < 0 || strings.Contains(text, keyset[i:i+30]) {
		return "of the keyset"
	}
	return ""
}

// sealWith makes a keyset the one of a database.
func sealWith(t *testing.T, address, text string) {
	t.Helper()
	keyset, err := inventory.ParseKeyset([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := inventory.CheckKeyset(t.Context(), pgtest.Pool(t, address), keyset); err != nil {
		t.Fatal(err)
	}
}

// withoutSchema is the URL of a database that has nothing of keytill.
func withoutSchema(t *testing.T) string {
	t.Helper()
	address := pgtest.NewURL(t)
	if _, err := pgtest.Pool(t, address).Exec(t.Context(), `DROP SCHEMA keytill CASCADE`); err != nil {
		t.Fatal(err)
	}
	return address
}

func withDatabase(t *testing.T, address, database string) string {
	return changeURL(t, address, func(u *url.URL) { u.Path = "/" + database })
}

func withPassword(t *testing.T, address, password string) string {
	return changeURL(t, address, func(u *url.URL) { u.User = url.UserPassword(u.User.Username(), password) })
}

func changeURL(t *testing.T, address string, change func(u *url.URL)) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	change(u)
	return u.String()
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
