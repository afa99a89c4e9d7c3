package metrics_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/keytill/keytill/adapter/metrics"
	"github.com/keytill/keytill/internal/pgtest"
	"github.com/keytill/keytill/webhooks"
)

// Counters are of this process; what waits is read from the database when somebody looks.
func Example() {
	db, done := pgtest.Example()
	defer done()
	m, err := metrics.New(metrics.Config{DB: db, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	m.Webhook(webhooks.OutcomeRecorded)
	m.Webhook(webhooks.OutcomeRecorded)

	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "keytill_webhooks_total") || strings.HasPrefix(line, "keytill_events_pending ") {
			fmt.Print(line)
		}
	}
	// Output:
	// keytill_events_pending 0
	// keytill_webhooks_total{outcome="recorded"} 2
}
