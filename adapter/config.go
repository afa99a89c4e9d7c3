package adapter

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/keytill/keytill/adapter/access"
	"github.com/keytill/keytill/adapter/stripeapi"
	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/inventory"
	"github.com/keytill/keytill/reconcile"
)

// Config is what a Shop needs. Pool, Keyset and Stripe are required.
type Config struct {
	// Pool is the database: PostgreSQL 15 or newer, migrated (see package migrations). A pooler in transaction mode may
	// stand before it; then the pool's DefaultQueryExecMode is CacheDescribe, unless the pooler bears prepared statements.
	Pool   *pgxpool.Pool
	Stripe Stripe
	Keyset *inventory.Keyset // made by `keytill keyset new`, read by inventory.ParseKeyset
	Policy fulfillment.Policy

	Mail Mail // no mail unless set
	Hook Hook // no hooks unless set

	Reconcile Reconcile // a sweep every 15 minutes unless set

	Hooks Hooks // functions of a storefront in this process

	// PublicURL is where buyers reach this Shop's routes: https://keys.example.com. Without it there are no buyers' pages,
	// and mails have no link.
	PublicURL string

	Tokens *access.Tokens // who may use the API; it is closed unless set

	ReservationTTL time.Duration // how long a reservation lasts unless it says otherwise; 15 minutes unless set

	// Metrics is where metrics are registered; a registry of their own unless set, which Shop.Metrics shows.
	Metrics prometheus.Registerer

	// Tracer makes spans of webhook and API requests, jobs and calls to Stripe; none unless set. Spans of statements come from a
	// tracer that Pool has, otelpgx for one.
	Tracer trace.TracerProvider

	Workers int              // settles at once; 32 unless set
	Now     func() time.Time // the clock; time.Now unless set
	Logger  *slog.Logger     // slog.Default unless set
}

// Stripe is the account that is sold through.
type Stripe struct {
	APIKey         string   // sk_… or a restricted rk_…; its mode (test or live) is the shop's
	WebhookSecrets []string // whsec_…: one for each endpoint, and during a rotation the old one too
	URL            string   // another base URL than Stripe's, for a fake
	PerSecond      float64  // calls a second for each account; somewhat below Stripe's limit of the key's mode unless set
}

// Mail says how buyers get their keys by e-mail.
type Mail struct {
	URL  string // smtp://user:pass@host:587 or smtps://…
	From string // Shop <shop@example.com>

	ReplyTo   string // Support <support@example.com>; the sender unless set
	Templates fs.FS  // the merchant's own, beside and before those that package letter has
}

// Hook says where the storefront wants signed notices, by Standard Webhooks.
type Hook struct {
	URL     string
	Secrets []string // whsec_…, the newest first

	// WithKeys puts the text of the keys into the notices that are about them. Unless set, nothing that is sent to the
	// storefront lets anyone use a key.
	WithKeys bool
}

// Reconcile says how payments are found that no event told of; see package reconcile.
type Reconcile struct {
	Every        time.Duration // 15 minutes unless set; negative: no schedule
	Grace        time.Duration // how long a payment is left to the webhook; 5 minutes unless set
	Window       time.Duration // how far behind its cursor a sweep looks again; 7 days unless set
	SilenceAfter time.Duration // how long no event may come while payments are made; 6 hours unless set

	// Reported, if set, is called with the report of each scheduled sweep.
	Reported func(reconcile.Report)
}

const defaultEvery = 15 * time.Minute

const defaultWorkers = 32

// check validates what can be without the database, and fills in what was left out.
func (c *Config) check() error {
	var problems []error
	if c.Pool == nil {
		problems = append(problems, errors.New("adapter: Config.Pool is missing"))
	}
	if c.Keyset == nil {
		problems = append(problems, errors.New("adapter: Config.Keyset is missing: make one with `keytill keyset new`"))
	}
	if _, err := stripeapi.Livemode(c.Stripe.APIKey); err != nil {
		problems = append(problems, err)
	}
	if (c.Mail.URL == "") != (c.Mail.From == "") {
		problems = append(problems, errors.New("mail needs both the URL of an SMTP server and a sender (From)"))
	}
	if c.Hook.URL == "" && len(c.Hook.Secrets) > 0 {
		problems = append(problems, errors.New("there is a hook secret, and no hook URL"))
	}
	if c.Workers == 0 {
		c.Workers = defaultWorkers
	}
	if c.Workers < 0 {
		problems = append(problems, fmt.Errorf("%d workers: it must be more than none", c.Workers))
	}
	if c.Reconcile.Every == 0 {
		c.Reconcile.Every = defaultEvery
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return errors.Join(problems...)
}

// SplitList splits a comma-separated list of secrets, as the environment has them.
func SplitList(list string) []string {
	var parts []string
	for part := range strings.SplitSeq(list, ",") {
		if part = strings.TrimSpace(part); part != "" {
			parts = append(parts, part)
		}
	}
	return parts
}
