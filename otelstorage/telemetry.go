package otelstorage

import (
	"context"
	"fmt"
	"sync/atomic"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/observe"
	"github.com/storageapi/storageapi/webhooks"
)

// scope is the name of the tracer and the meter.
const scope = "github.com/storageapi/storageapi/otelstorage"

// Config sets the providers. The zero Config uses the providers of the process.
type Config struct {
	// MeterProvider creates the meter. Default: otel.GetMeterProvider. To export no metrics, for
	// example because package promstorage exports them, set a provider of OpenTelemetry's package
	// metric/noop.
	MeterProvider metric.MeterProvider

	// TracerProvider creates the tracer. Default: otel.GetTracerProvider.
	TracerProvider trace.TracerProvider
}

// Telemetry creates spans and metrics from observations. Create it with [New]. All methods are safe
// for concurrent use.
type Telemetry struct {
	tracer  trace.Tracer
	metrics *metrics
	stats   atomic.Pointer[func(context.Context) (webhooks.Stats, error)]
}

// New returns the telemetry of one Handler. It fails if the provider rejects an instrument.
func New(config Config) (*Telemetry, error) {
	if config.MeterProvider == nil {
		config.MeterProvider = otel.GetMeterProvider()
	}
	if config.TracerProvider == nil {
		config.TracerProvider = otel.GetTracerProvider()
	}
	t := &Telemetry{tracer: config.TracerProvider.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL))}
	meter := config.MeterProvider.Meter(scope, metric.WithSchemaURL(semconv.SchemaURL))
	var err error
	if t.metrics, err = newMetrics(meter); err == nil {
		err = t.registerStats(meter)
	}
	if err != nil {
		return nil, fmt.Errorf("otelstorage: create instruments: %w", err)
	}
	return t, nil
}

// Observer returns the Observer for storageapi.Config.Observe. Use [observe.Join] to add others.
func (t *Telemetry) Observer() observe.Observer {
	return observe.Observer{
		Authenticated: func(ctx context.Context, a observe.Authentication) {
			t.metrics.authenticated(ctx, a)
			nameKey(trace.SpanFromContext(ctx), a)
		},
		Published: func(ctx context.Context, p observe.Publication) {
			t.metrics.published(ctx, p)
			t.tracePublication(ctx, p)
		},
		Changed: func(n audit.Entry) { t.metrics.changed(n) },
		Claimed: func(c observe.Claim) { t.metrics.claimed(c) },
		Attempted: func(a observe.Attempt) {
			t.metrics.attempted(t.traceAttempt(a), a)
		},
		Settled:   func(s observe.Settlement) { t.metrics.settled(s) },
		Committed: func(c observe.Commit) { t.metrics.committed(c) },
		Lost:      func(n int) { t.metrics.lost.Add(context.Background(), int64(n)) },
	}
}

// traceContext encodes and decodes W3C trace contexts. The API has no functions for them.
var traceContext propagation.TraceContext

const traceparent = "traceparent"

// TraceContext returns the traceparent of the context's span, such as
// "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", or "" if there is none. Set it as
// webhooks.Config.TraceContext. The result is stored with an event, and links attempts to the
// span that published the event.
func (t *Telemetry) TraceContext(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	traceContext.Inject(ctx, carrier)
	return carrier[traceparent]
}
