package metrics

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
)

const (
	defaultCache  = 10 * time.Second
	scrapeTimeout = 5 * time.Second // of all queries of a scrape
)

// database reads gauges from the database when they are asked for, each with one query that a short index answers. What it
// read last is shown for a while, so that several who scrape cost what one does.
type database struct {
	db       *pgxpool.Pool
	cacheFor time.Duration
	now      func() time.Time
	log      *slog.Logger
	failures prometheus.Counter

	mu     sync.Mutex
	read   time.Time
	cached []prometheus.Metric
}

func newDatabase(c Config) *database {
	d := &database{db: c.DB, cacheFor: c.CacheFor, now: c.Now, log: c.Logger}
	d.failures = prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: "scrape_failures_total",
		Help: "Queries of gauges that failed; their gauges are missing then."})
	if d.cacheFor == 0 {
		d.cacheFor = defaultCache
	}
	if d.now == nil {
		d.now = time.Now
	}
	if d.log == nil {
		d.log = slog.Default()
	}
	return d
}

// Describe lists the gauges.
func (d *database) Describe(ch chan<- *prometheus.Desc) {
	d.failures.Describe(ch)
	for _, g := range gauges {
		for _, desc := range g.descs {
			ch <- desc
		}
	}
}

// Collect reads the gauges, or shows what was read a moment ago. A query that fails leaves its gauges out, which an alert
// on their absence notices; a zero would look like good news.
func (d *database) Collect(ch chan<- prometheus.Metric) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cached == nil || time.Since(d.read) >= d.cacheFor {
		d.cached, d.read = d.query(), time.Now()
	}
	for _, m := range d.cached {
		ch <- m
	}
	d.failures.Collect(ch)
}

func (d *database) query() []prometheus.Metric {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	metrics := []prometheus.Metric{}
	for _, g := range gauges {
		found, err := g.collect(ctx, d.db, d.now())
		if err != nil {
			d.failures.Inc()
			d.log.WarnContext(ctx, "could not read a gauge", "gauge", g.name, "error", err)
			continue
		}
		metrics = append(metrics, found...)
	}
	return metrics
}

// A gauge is one query. Its rows are the labels and then a value for each of the descriptions; a null value is none.
type gauge struct {
	name   string
	labels int
	descs  []*prometheus.Desc
	sql    string
	timed  bool // the query takes the time
}

func (g gauge) collect(ctx context.Context, db *pgxpool.Pool, now time.Time) ([]prometheus.Metric, error) {
	var args []any
	if g.timed {
		args = append(args, now)
	}
	rows, err := db.Query(ctx, g.sql, args...)
	if err != nil {
		return nil, err
	}
	labels, values := make([]string, g.labels), make([]*float64, len(g.descs))
	var into []any
	for i := range labels {
		into = append(into, &labels[i])
	}
	for i := range values {
		into = append(into, &values[i])
	}
	var found []prometheus.Metric
	_, err = pgx.ForEachRow(rows, into, func() error {
		for i, desc := range g.descs {
			if values[i] == nil {
				continue
			}
			m, err := prometheus.NewConstMetric(desc, prometheus.GaugeValue, *values[i], labels...)
			if err != nil {
				return err
			}
			found = append(found, m)
		}
		return nil
	})
	return found, err
}
