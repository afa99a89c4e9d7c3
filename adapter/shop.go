package adapter

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/riverqueue/river"

	"github.com/keytill/keytill/adapter/console"
	"github.com/keytill/keytill/adapter/hook"
	"github.com/keytill/keytill/adapter/mail"
	"github.com/keytill/keytill/adapter/metrics"
	"github.com/keytill/keytill/adapter/orderpage"
	"github.com/keytill/keytill/adapter/stripeapi"
	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/internal/jobs"
	"github.com/keytill/keytill/internal/logs"
	"github.com/keytill/keytill/internal/pg"
	"github.com/keytill/keytill/inventory"
	"github.com/keytill/keytill/migrations"
	"github.com/keytill/keytill/reconcile"
	"github.com/keytill/keytill/webhooks"
)

// A Shop is keytill, ready to be mounted and run.
type Shop struct {
	config   Config
	service  *fulfillment.Service
	sweeper  *reconcile.Sweeper
	stripe   *stripeapi.Client
	jobs     fulfillment.Jobs
	webhook  http.Handler
	senders  map[fulfillment.Channel]fulfillment.Sender
	mail     *mail.Sender
	links    *orderpage.Links // nil without a public URL
	metrics  *metrics.Metrics
	api      http.Handler     // nil without access tokens
	console  *console.Console // nil without access tokens
	livemode bool
	pooled   bool // a pooler stands before the database
}

// New puts a Shop together. It checks the configuration, the schema and that the keyset is the database's, and calls
// neither Stripe nor a mail server.
func New(ctx context.Context, config Config) (*Shop, error) {
	if err := config.check(); err != nil {
		return nil, err
	}
	config.Logger = logs.New(config.Logger)
	shop := &Shop{config: config, senders: make(map[fulfillment.Channel]fulfillment.Sender)}
	shop.livemode, _ = stripeapi.Livemode(config.Stripe.APIKey)
	if err := shop.makeLinks(); err != nil {
		return nil, err
	}
	if err := shop.makeSenders(); err != nil {
		return nil, err
	}
	if err := shop.checkDatabase(ctx); err != nil {
		return nil, err
	}
	if err := shop.makeParts(); err != nil {
		return nil, err
	}
	if err := shop.makeAPI(); err != nil {
		return nil, err
	}
	if err := shop.makeConsole(); err != nil {
		return nil, err
	}
	// Before anything can be settled: what is settled writes deliveries for the channels that are noted.
	return shop, shop.service.ServeChannels(ctx, shop.channels())
}

// makeParts makes what does the work, and what counts it.
func (s *Shop) makeParts() (err error) {
	c := s.config
	s.metrics, err = metrics.New(metrics.Config{DB: c.Pool, Registerer: c.Metrics, Now: c.Now, Logger: c.Logger,
		Claims: func() inventory.ClaimStats { return s.service.ClaimStats() }})
	if err != nil {
		return fmt.Errorf("register the metrics: %w", err)
	}
	if s.jobs, err = jobs.NewInserter(c.Pool, c.Now, c.Logger); err != nil {
		return err
	}
	s.stripe, err = stripeapi.New(stripeapi.Config{Key: c.Stripe.APIKey, URL: c.Stripe.URL, Logger: c.Logger, PerSecond: c.Stripe.PerSecond,
		Transport: s.tracedCalls(s.metrics.Stripe(stripeapi.NewTransport())),
		Account: func(ctx context.Context, merchant string) (string, error) {
			return inventory.StripeAccount(ctx, c.Pool, merchant)
		}})
	if err != nil {
		return err
	}
	s.service, err = fulfillment.New(fulfillment.Config{DB: c.Pool, Stripe: s.stripe, Jobs: s.jobs, Keyset: c.Keyset, Policy: c.Policy,
		HoldFor: c.ReservationTTL, HookKeys: c.Hook.WithKeys, InTx: c.Hooks.InTx, Observer: s.metrics.Observer(), Now: c.Now, Logger: c.Logger})
	if err != nil {
		return err
	}
	c.Reconcile.Reported = func(report reconcile.Report) {
		s.metrics.Swept(report)
		if s.config.Reconcile.Reported != nil {
			s.config.Reconcile.Reported(report)
		}
	}
	if s.sweeper, err = NewSweeper(c, s.stripe, s.service); err != nil {
		return err
	}
	if s.webhook, err = s.newWebhook(); err != nil {
		return err
	}
	s.webhook = logs.Requests(s.traced("webhook", s.webhook))
	return nil
}

func (s *Shop) makeSenders() error {
	c := s.config
	if c.Mail.URL != "" {
		sender, err := mail.New(mail.Config{URL: c.Mail.URL, From: c.Mail.From, Timeout: mailTimeout, Now: c.Now})
		if err != nil {
			return err
		}
		s.mail = sender
		if s.senders[fulfillment.ChannelEmail], err = newEmailSender(c.Mail, sender, s.link); err != nil {
			return err
		}
	}
	if c.Hook.URL != "" {
		sender, err := hook.New(hook.Config{URL: c.Hook.URL, Secrets: c.Hook.Secrets, Logger: c.Logger, Now: c.Now})
		if err != nil {
			return err
		}
		s.senders[fulfillment.ChannelHook] = hookSender{sender}
	}
	if c.Hooks.Told != nil {
		s.senders[fulfillment.ChannelProcess] = processSender(c.Hooks.Told)
	}
	return nil
}

func (s *Shop) checkDatabase(ctx context.Context) error {
	pending, err := migrations.Pending(ctx, s.config.Pool)
	if err != nil {
		return err
	}
	if pending {
		return errors.New("the database's schema is older than this version: run `keytill migrate`, or migrations.Up")
	}
	if s.pooled, err = pg.Pooled(ctx, s.config.Pool); err != nil {
		return fmt.Errorf("look for a pooler: %w", err)
	}
	return inventory.CheckKeyset(ctx, s.config.Pool, s.config.Keyset)
}

func (s *Shop) newWebhook() (http.Handler, error) {
	verifier, err := webhooks.NewVerifier(webhooks.VerifierConfig{Secrets: s.config.Stripe.WebhookSecrets, Now: s.config.Now})
	if err != nil {
		return nil, err
	}
	inbox, err := webhooks.NewStore(webhooks.StoreConfig{DB: s.config.Pool, Jobs: s.jobs, Livemode: s.livemode, Now: s.config.Now})
	if err != nil {
		return nil, err
	}
	return webhooks.NewHandler(webhooks.Config{Verifier: verifier, Inbox: inbox, Logger: s.config.Logger,
		OnOutcome: s.metrics.Webhook})
}

// Mount adds keytill's routes to a router: POST /webhooks/stripe, GET /healthz and GET /readyz; with a public URL the
// buyers' pages below /orders/, with access tokens the API below /v1/ and the console below /console.
func (s *Shop) Mount(router chi.Router) {
	router.Method(http.MethodPost, "/webhooks/stripe", s.webhook)
	router.Get("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	router.Get("/readyz", s.ready)
	s.mountPages(router)
	s.mountLicence(router)
	s.mountAPI(router)
	s.mountConsole(router)
}

// Handler is keytill's routes as a handler of its own, for routers other than chi's.
func (s *Shop) Handler() http.Handler {
	router := chi.NewRouter()
	s.Mount(router)
	return router
}

const readyTimeout = 2 * time.Second

// ready answers whether this process can record an event, which is what it must be able to do.
func (s *Shop) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	if err := s.config.Pool.Ping(ctx); err != nil {
		s.config.Logger.WarnContext(ctx, "not ready: the database does not answer", "error", err)
		http.Error(w, "the database does not answer", http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write([]byte("ready\n"))
}

// Settle brings an order of the default merchant to what Stripe says now and returns it: the thank-you page, and whoever
// asks to check again. See fulfillment.Service.Settle.
func (s *Shop) Settle(ctx context.Context, ref string) (fulfillment.Order, error) {
	return s.SettleFor(ctx, inventory.DefaultMerchant, ref)
}

// SettleFor is Settle for another merchant.
func (s *Shop) SettleFor(ctx context.Context, merchant, ref string) (fulfillment.Order, error) {
	return s.service.Settle(ctx, merchant, ref)
}

// Service is the part that settles, for those who need more of it than a Shop offers.
func (s *Shop) Service() *fulfillment.Service { return s.service }

// mailTimeout bounds one mail; it is well below the time that a job may take.
const mailTimeout = 45 * time.Second

// stopTimeout is how long running jobs may take to end once Run's context has ended; then they are told to give up, and
// another process does them.
const stopTimeout = 8 * time.Second

// Run works jobs and periodic work until ctx ends, and returns when they have stopped: running jobs end, or return to
// the queue. Any number of processes may run on one database.
func (s *Shop) Run(ctx context.Context) error {
	for {
		err := s.runJobs(ctx)
		if err != nil || ctx.Err() != nil {
			if s.mail != nil {
				_ = s.mail.Close()
			}
			return err
		}
		s.config.Logger.WarnContext(ctx, "the clock was set back: the job queue starts anew")
	}
}

// runJobs works jobs until ctx ends or the clock is set back.
func (s *Shop) runJobs(ctx context.Context) error {
	workers := river.NewWorkers()
	s.service.AddWorkers(workers, s.senders)
	s.addSweeps(workers)
	runner, err := jobs.NewRunner(s.config.Pool, jobs.RunnerConfig{Workers: workers, Periodic: s.periodic(),
		Queues: s.queues(), Middleware: s.jobMiddleware(), PollOnly: s.pooled, Now: s.config.Now, Logger: s.config.Logger})
	if err != nil {
		return err
	}
	if err := s.service.RightTime(ctx); err != nil {
		s.config.Logger.WarnContext(ctx, "could not look for what a wrong clock has put off", "error", err)
	}
	era, end := jobs.Era(ctx, s.config.Now)
	defer end()
	return jobs.Run(era, runner, stopTimeout)
}

func (s *Shop) channels() []fulfillment.Channel {
	var channels []fulfillment.Channel
	for _, c := range []fulfillment.Channel{fulfillment.ChannelEmail, fulfillment.ChannelHook, fulfillment.ChannelProcess} {
		if s.senders[c] != nil {
			channels = append(channels, c)
		}
	}
	return channels
}

func (s *Shop) queues() map[string]river.QueueConfig {
	return map[string]river.QueueConfig{
		fulfillment.QueueSettle:  {MaxWorkers: s.config.Workers},
		fulfillment.QueueStock:   {MaxWorkers: 4},
		fulfillment.QueueEmail:   {MaxWorkers: 3 * mailLines}, // while some mail, others read and note
		fulfillment.QueueHook:    {MaxWorkers: 8},
		fulfillment.QueueProcess: {MaxWorkers: 8},
		queueSweep:               {MaxWorkers: 2},
	}
}
