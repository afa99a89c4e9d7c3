package cli

import (
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/keytill/keytill/inventory"
)

// settings are what flags and environment say, a flag before the variable of its name.
type settings struct {
	databaseURL    string
	dataDir        string
	stripeKey      string
	stripeSecrets  string
	stripeURL      string
	keyset         string
	keysetFile     string
	listen         string
	smtpURL        string
	mailFrom       string
	mailReplyTo    string
	mailTemplates  string
	hookURL        string
	hookSecret     string
	hookWithKeys   string
	publicURL      string
	tokensFile     string
	sweepEvery     string
	sweepGrace     string
	reservationTTL string
	logLevel       string
	merchant       string
	json           bool
}

// variable is a setting that the environment can hold.
type variable struct {
	flag, fallback, example, help string
	value                         *string
}

func (s *settings) variables() []variable {
	return []variable{
		{"database-url", "", "postgres://keytill:…@db/keytill", "PostgreSQL 15 or newer; without it, an embedded PostgreSQL in --data-dir", &s.databaseURL},
		{"stripe-api-key", "", "sk_test_…", "sk_… or a restricted rk_…; its mode (test or live) is the daemon's", &s.stripeKey},
		{"stripe-webhook-secrets", "", "whsec_…,whsec_…", "the endpoint's whsec_…; several separated by commas", &s.stripeSecrets},
		{"stripe-api-url", "", "http://127.0.0.1:12111", "another base URL than Stripe's, for a fake", &s.stripeURL},
		{"keyset", "", "\"$(cat keyset.json)\"", "the encryption and fingerprint keysets, as printed by: keytill keyset new", &s.keyset},
		{"keyset-file", "", "keyset.json", "a file that holds them", &s.keysetFile},
		{"listen", "127.0.0.1:8080", "0.0.0.0:8080", "address of everything HTTP", &s.listen},
		{"smtp-url", "", "smtp://user:…@mail.example.com:587", "the mail server; without it, no mail", &s.smtpURL},
		{"mail-from", "", "'Shop <shop@example.com>'", "sender of mails", &s.mailFrom},
		{"mail-reply-to", "", "'Support <support@example.com>'", "where answers to mails go; to the sender unless set", &s.mailReplyTo},
		{"mail-templates", "", "/etc/keytill/mails", "a directory of your own mail templates: en.txt and en.html, de.txt and de.html, …", &s.mailTemplates},
		{"hook-url", "", "https://shop.example.com/hooks", "where the storefront wants signed notices; without it, none", &s.hookURL},
		{"hook-secret", "", "whsec_…", "whsec_… that signs them, during a rotation new,old", &s.hookSecret},
		{"hook-with-keys", "false", "true", "true: hooks carry the text of the keys they are about", &s.hookWithKeys},
		{"public-url", "", "https://keys.example.com", "where buyers reach this daemon; without it, no buyers' pages", &s.publicURL},
		{"tokens-file", "", "tokens.txt", "access tokens of API and console, as printed by: keytill token new; without it, both are closed", &s.tokensFile},
		{"reconcile-every", "15m", "1h", "how often the sweep runs; off: only by hand", &s.sweepEvery},
		{"reconcile-grace", "5m", "10m", "how long a payment is left to the webhook before a sweep looks at it", &s.sweepGrace},
		{"reservation-ttl", "15m", "30m", "how long stock is held for a cart unless the reservation says otherwise", &s.reservationTTL},
		{"log", "info", "debug", "debug, info, warn or error", &s.logLevel},
	}
}

// secrets are settings whose value is not shown as a default in the help.
var secrets = map[string]bool{"database-url": true, "stripe-api-key": true, "stripe-webhook-secrets": true, "keyset": true,
	"smtp-url": true, "hook-url": true, "hook-secret": true}

// register makes the flags. What the environment holds is their default.
func (s *settings) register(flags *pflag.FlagSet, getenv func(string) string) {
	for _, v := range s.variables() {
		name := "KEYTILL_" + strings.ToUpper(strings.ReplaceAll(v.flag, "-", "_"))
		value := getenv(name)
		if value == "" {
			value = v.fallback
		}
		flags.StringVar(v.value, v.flag, value, v.help+" ("+name+") `"+v.example+"`")
		if secrets[v.flag] {
			flags.Lookup(v.flag).DefValue = ""
		}
	}
	flags.StringVar(&s.dataDir, "data-dir", "keytill-data", "directory of the embedded PostgreSQL and its keyset `/var/lib/keytill`")
	flags.StringVar(&s.merchant, "merchant", inventory.DefaultMerchant, "whose stock and orders, on a Connect platform `acme`")
	flags.BoolVar(&s.json, "json", false, "print JSON: for programs")
	flags.SortFlags = false
}

// logger writes text to a terminal and JSON elsewhere.
func (c *command) logger() (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.settings.logLevel)); err != nil {
		return nil, usage("the log level %q is none: use debug, info, warn or error", c.settings.logLevel)
	}
	options := &slog.HandlerOptions{Level: level}
	if isTerminal(c.Stderr) {
		return slog.New(slog.NewTextHandler(c.Stderr, options)), nil
	}
	return slog.New(slog.NewJSONHandler(c.Stderr, options)), nil
}

// isTerminal reports whether a writer or reader is a terminal.
func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}
