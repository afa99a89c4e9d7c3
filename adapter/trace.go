package adapter

import (
	"context"
	"net/http"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
)

// What is traced, where Config.Tracer is set: webhook requests, API requests, jobs, and calls to Stripe below them. Ids of
// events, orders and payments are in the spans; keys and addresses are not. Buyers' pages and questions about keys are left
// out, since their URLs can let somebody in.

const tracerName = "github.com/keytill/keytill/adapter"

// traced makes a span of each request.
func (s *Shop) traced(name string, next http.Handler) http.Handler {
	if s.config.Tracer == nil {
		return next
	}
	return otelhttp.NewHandler(next, name, otelhttp.WithTracerProvider(s.config.Tracer), otelhttp.WithMeterProvider(metricnoop.NewMeterProvider()))
}

// tracedCalls makes a span of each call to Stripe.
func (s *Shop) tracedCalls(next http.RoundTripper) http.RoundTripper {
	if s.config.Tracer == nil {
		return next
	}
	return otelhttp.NewTransport(next, otelhttp.WithTracerProvider(s.config.Tracer), otelhttp.WithMeterProvider(metricnoop.NewMeterProvider()),
		otelhttp.WithSpanNameFormatter(func(_ string, r *http.Request) string { return "stripe " + r.Method }))
}

// jobMiddleware is around each job.
func (s *Shop) jobMiddleware() []rivertype.Middleware {
	around := []rivertype.Middleware{&loggedJobs{}}
	if s.config.Tracer != nil {
		around = append(around, &tracedJobs{tracer: s.config.Tracer.Tracer(tracerName)})
	}
	return around
}

type tracedJobs struct {
	river.MiddlewareDefaults
	tracer trace.Tracer
}

// Work makes a span of a try of a job. Its arguments are ids and nothing else.
func (t *tracedJobs) Work(ctx context.Context, job *rivertype.JobRow, work func(context.Context) error) error {
	ctx, span := t.tracer.Start(ctx, "job "+job.Kind, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
		attribute.String("keytill.queue", job.Queue), attribute.Int64("keytill.job", job.ID), attribute.Int("keytill.attempt", job.Attempt),
		attribute.String("keytill.args", string(job.EncodedArgs))))
	defer span.End()
	err := work(ctx)
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	return err
}
