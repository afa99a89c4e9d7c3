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
	flag, fallback, help string
	value                *string
}

func (s *settings) variables() []variable {
	return []variable{
		{"database-url", "", "PostgreSQL 15 or newer; without one, an embedded PostgreSQL in --data-dir", &s.databaseURL},
		{"stripe-api-key", "", "sk_… or a restricted rk_…; its mode (test or live) is the daemon's", &s.stripeKey},
		{"stripe-webhook-secrets", "", "whsec_…, several separated by commas", &s.stripeSecrets},
		{"stripe-api-url", "", "another base URL than Stripe's, for a fake", &s.stripeURL},
		{"keyset", "", "the encryption and fingerprint keysets, as printed by: keytill keyset new", &s.keyset},
		{"keyset-file", "", "a file that holds them", &s.keysetFile},
		{"listen", "127.0.0.1:8080", "address of everything HTTP", &s.listen},
		{"smtp-url", "", "smtp://user:pass@host:587; without one, no mail", &s.smtpURL},
		{"mail-from", "", "sender of mails: Shop <shop@example.com>", &s.mailFrom},
		{"mail-reply-to", "", "where answers to mails go: Support <support@example.com>; the sender unless set", &s.mailReplyTo},
		{"mail-templates", "", "a directory of your own mail templates: en.txt and en.html, de.txt and de.html, …", &s.mailTemplates},
		{"hook-url", "", "where the storefront wants signed notices; without one, none", &s.hookURL},
		{"hook-secret", "", "whsec_… that signs them, during a rotation new,old", &s.hookSecret},
		{"hook-with-keys", "false", "true: hooks carry the text of the keys they are about", &s.hookWithKeys},
		{"public-url", "", "where buyers reach this daemon: https://keys.example.com; without one, no buyers' pages", &s.publicURL},
		{"tokens-file", "", "access tokens of the API, as printed by: keytill token new; without one, it is closed", &s.tokensFile},
		{"reconcile-every", "15m", "how often the sweep runs; off: only by hand", &s.sweepEvery},
		{"reconcile-grace", "5m", "how long a payment is left to the webhook before a sweep looks at it", &s.sweepGrace},
		{"reservation-ttl", "15m", "how long stock is held for a cart unless the reservation says otherwise", &s.reservationTTL},
		{"log", "info", "debug, info, warn or error", &s.logLevel},
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
		flags.StringVar(v.value, v.flag, value, v.help+" ("+name+")")
		if secrets[v.flag] {
			flags.Lookup(v.flag).DefValue = ""
		}
	}
	flags.StringVar(&s.dataDir, "data-dir", "keytill-data", "directory of the embedded PostgreSQL and its keyset")
	flags.StringVar(&s.merchant, "merchant", inventory.DefaultMerchant, "whose stock and orders")
	flags.BoolVar(&s.json, "json", false, "print JSON")
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
