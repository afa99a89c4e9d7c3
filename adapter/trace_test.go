package adapter_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/embedded"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/keytill/keytill/adapter"
	"github.com/keytill/keytill/internal/pgtest"
	"github.com/keytill/keytill/internal/stripefake"
	"github.com/keytill/keytill/inventory"
)

// spans notes the names of spans as they begin, with the name of the one around each.
type spans struct {
	embedded.TracerProvider
	mu   sync.Mutex
	seen []string
}

type spanMaker struct {
	embedded.Tracer
	*spans
}

type spanName struct{}

// Tracer makes its spans.
func (s *spans) Tracer(string, ...trace.TracerOption) trace.Tracer { return spanMaker{spans: s} }

// Start notes a span.
func (s spanMaker) Start(ctx context.Context, name string, _ ...trace.SpanStartOption) (context.Context, trace.Span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if around, ok := ctx.Value(spanName{}).(string); ok {
		s.seen = append(s.seen, around+" > "+name)
	} else {
		s.seen = append(s.seen, name)
	}
	return context.WithValue(ctx, spanName{}, name), noop.Span{}
}

func (s *spans) has(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.seen, func(seen string) bool { return strings.HasPrefix(seen, name) })
}

func TestWebhooksJobsAndCallsAreTraced(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	stripe := stripefake.Start(stripefake.Config{})
	t.Cleanup(stripe.Close)
	keyset, err := inventory.NewKeyset()
	must(t, err)
	tracer := &spans{}
	shop, err := adapter.New(t.Context(), adapter.Config{Pool: db, Keyset: keyset, Reconcile: adapter.Reconcile{Every: -1}, Tracer: tracer,
		Stripe: adapter.Stripe{APIKey: stripe.APIKey(), WebhookSecrets: stripe.Secrets(), URL: stripe.URL(), PerSecond: 10_000}})
	must(t, err)
	server := httptest.NewServer(shop.Handler())
	t.Cleanup(server.Close)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- shop.Run(ctx) }()
	t.Cleanup(func() { cancel(); must(t, <-ended) })

	items, err := stripefake.ParseItems("price_game*1@500")
	must(t, err)
	must(t, stripe.Session("cs_1", items, nil))
	event, err := stripe.Event("checkout.session.completed", "cs_1", stripefake.EventOptions{})
	must(t, err)
	status, body, err := stripe.Deliver(ctx, server.URL+"/webhooks/stripe", event)
	if must(t, err); status != http.StatusOK {
		t.Fatal(status, body)
	}
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if tracer.has("POST /webhooks/stripe") && tracer.has("job settle > stripe GET") {
			return
		}
	}
	t.Errorf("spans: %q", tracer.seen)
}
