// Package metrics counts what keytill does, for Prometheus.
//
//	webhooks ─ OnOutcome ─┐
//	settles, deliveries ──┼──▶ counters and histograms of this process ─┐
//	sweeps, Stripe calls ─┘                                             ├──▶ GET /metrics
//	the database ── one query each, at most every ten seconds ──────────┘
//
// Counters are of one process, and add up over all. Gauges that come from the database are the same in every process: take
// the max over instances, not the sum. No label comes from outside: no order, event, buyer or token, and the number of
// pools that are named is bounded.
package metrics

import (
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/inventory"
	"github.com/keytill/keytill/reconcile"
)

// Config is what Metrics need. DB is required.
type Config struct {
	DB *pgxpool.Pool

	// Registerer is where they are registered; a registry of their own unless set, which Handler shows beside what Go and
	// the process tell.
	Registerer prometheus.Registerer

	// Claims tells what the inventory's claims have come to in this process.
	Claims func() inventory.ClaimStats

	CacheFor time.Duration // how old what was read of the database may be; ten seconds unless set, negative: no cache
	Now      func() time.Time
	Logger   *slog.Logger
}

// Metrics are keytill's.
type Metrics struct {
	gatherer prometheus.Gatherer // nil where somebody else's registry has them

	webhooks   *prometheus.CounterVec
	settles    *prometheus.HistogramVec
	deliveries *prometheus.CounterVec
	sweeps     *prometheus.CounterVec
	swept      *prometheus.CounterVec
	late       prometheus.Histogram
	stripe     *prometheus.CounterVec
	stripeTime prometheus.Histogram
}

const namespace = "keytill"

// New makes and registers them.
func New(c Config) (*Metrics, error) {
	if c.DB == nil {
		return nil, errors.New("metrics: Config needs DB")
	}
	m := &Metrics{}
	registerer := c.Registerer
	if registerer == nil {
		own := prometheus.NewRegistry()
		own.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
		registerer, m.gatherer = own, own
	}
	m.make()
	all := []prometheus.Collector{m.webhooks, m.settles, m.deliveries, m.sweeps, m.swept, m.late, m.stripe, m.stripeTime,
		newDatabase(c)}
	if c.Claims != nil {
		all = append(all, claims(c.Claims)...)
	}
	for _, collector := range all {
		if err := registerer.Register(collector); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *Metrics) make() {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	}
	m.webhooks = counter("webhooks_total", "Requests to the webhook endpoint, by what became of them.", "outcome")
	m.deliveries = counter("deliveries_total", "Tries to deliver a notice, by channel and what became of them.", "channel", "result")
	m.sweeps = counter("sweeps_total", "Sweeps that ended, by whether everything could be done.", "result")
	m.swept = counter("sweep_payments_total", "Payments that a sweep found to differ, by what became of them.", "result")
	m.stripe = counter("stripe_requests_total", "Calls to Stripe, each attempt for itself, by HTTP status; error: no answer.", "status")
	m.settles = prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: "settle_seconds",
		Help:    "How long settles took, with their reading of Stripe, by what became of them.",
		Buckets: []float64{.02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60}}, []string{"result"})
	m.late = prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Name: "sweep_late_seconds",
		Help:    "The latest repair of each sweep that repaired something: the time since the difference could be known.",
		Buckets: []float64{60, 300, 900, 1800, 3600, 4 * 3600, 24 * 3600, 7 * 24 * 3600}})
	m.stripeTime = prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Name: "stripe_request_seconds",
		Help: "How long Stripe took to answer one attempt.", Buckets: []float64{.05, .1, .2, .5, 1, 2, 5, 10}})
}

// Handler shows them, or nil where they are in somebody else's registry.
func (m *Metrics) Handler() http.Handler {
	if m.gatherer == nil {
		return nil
	}
	return promhttp.HandlerFor(m.gatherer, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: 4})
}

// Webhook counts a request to the webhook endpoint; see webhooks.Config.OnOutcome.
func (m *Metrics) Webhook(outcome string) { m.webhooks.WithLabelValues(outcome).Inc() }

// Observer is what counts what a fulfillment.Service does.
func (m *Metrics) Observer() fulfillment.Observer {
	return fulfillment.Observer{
		Settled: func(result fulfillment.SettleResult, took time.Duration) {
			m.settles.WithLabelValues(string(result)).Observe(took.Seconds())
		},
		Delivered: func(channel fulfillment.Channel, result fulfillment.DeliverResult) {
			m.deliveries.WithLabelValues(string(channel), string(result)).Inc()
		},
	}
}

// Swept counts a sweep; see reconcile.Config.Reported.
func (m *Metrics) Swept(r reconcile.Report) {
	result := "done"
	if !r.OK() {
		result = "failed"
	}
	m.sweeps.WithLabelValues(result).Inc()
	for name, n := range map[string]int{"repaired": r.Repaired, "unchanged": r.Unchanged, "ignored": r.Ignored, "failed": r.Failed} {
		m.swept.WithLabelValues(name).Add(float64(n))
	}
	if r.Repaired > 0 {
		m.late.Observe(float64(r.Late.MaxSeconds))
	}
}

// Stripe counts calls to Stripe and passes them on.
func (m *Metrics) Stripe(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		began := time.Now()
		resp, err := next.RoundTrip(req)
		status := "error"
		if err == nil {
			status = strconv.Itoa(resp.StatusCode)
			m.stripeTime.Observe(time.Since(began).Seconds())
		}
		m.stripe.WithLabelValues(status).Inc()
		return resp, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip makes a call.
func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// claims are the inventory's own counters.
func claims(stats func() inventory.ClaimStats) []prometheus.Collector {
	counter := func(name, help string, value func(inventory.ClaimStats) int64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help},
			func() float64 { return float64(value(stats())) })
	}
	return []prometheus.Collector{
		counter("claims_total", "Claims of keys: one for each pool of a settle that needs some, and one when a pool serves what waits.",
			func(s inventory.ClaimStats) int64 { return s.Claims }),
		counter("claimed_keys_total", "Keys that claims got.", func(s inventory.ClaimStats) int64 { return s.Keys }),
		counter("claims_empty_total", "Claims that got fewer keys than they asked for: the pool is sold out.",
			func(s inventory.ClaimStats) int64 { return s.Empty }),
		counter("claims_contended_total", "Claims that found the last keys locked, and were made again to wait for them.",
			func(s inventory.ClaimStats) int64 { return s.Contended }),
	}
}
