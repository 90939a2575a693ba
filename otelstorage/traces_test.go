package otelstorage_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/observe"
	"github.com/storageapi/storageapi/otelstorage"
	"github.com/storageapi/storageapi/storageapitest"
	"github.com/storageapi/storageapi/webhooks"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// tracing returns telemetry, the exporter that receives its spans, and the host's tracer.
func tracing(t *testing.T, options ...sdktrace.TracerProviderOption) (*otelstorage.Telemetry, *tracetest.InMemoryExporter, trace.Tracer) {
	t.Helper()
	exporter := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(append(options, sdktrace.WithSyncer(exporter))...)
	telemetry, err := otelstorage.New(otelstorage.Config{TracerProvider: provider, MeterProvider: metricnoop.NewMeterProvider()})
	if err != nil {
		t.Fatal(err)
	}
	return telemetry, exporter, provider.Tracer("host")
}

func attempt() observe.Attempt {
	return observe.Attempt{
		Account: "acct_1", WebhookID: "wh_1", EventID: "evt_1", Receiver: "https://hooks.example:8443", EventType: "files.expiring",
		Number: 1, StartedAt: noon, Duration: 120 * time.Millisecond, Status: 204, Result: observe.Delivered, EventTimestamp: noon.Add(-time.Second),
	}
}

// The span of an attempt must be the root of its own trace. It must have a link to the span that
// published the event, even if the event was published days before in another process.
func TestAttempt_LinksToPublication(t *testing.T) {
	publisher, _, tracer := tracing(t)
	ctx, span := tracer.Start(t.Context(), "POST /v2/files")
	kept := publisher.TraceContext(ctx)
	span.End()
	if len(kept) != 55 {
		t.Fatalf("%q is kept with the event, want a traceparent", kept)
	}

	node, exporter, _ := tracing(t)
	a := attempt()
	a.TraceContext, a.StartedAt = kept, noon.Add(72*time.Hour)
	node.Observer().Attempted(a)
	got := only(t, exporter)
	if got.Parent.IsValid() || got.SpanContext.TraceID() == span.SpanContext().TraceID() {
		t.Errorf("the attempt is a child of %v in trace %v, want a trace of its own", got.Parent, got.SpanContext.TraceID())
	}
	if len(got.Links) != 1 || got.Links[0].SpanContext.TraceID() != span.SpanContext().TraceID() || got.Links[0].SpanContext.SpanID() != span.SpanContext().SpanID() {
		t.Fatalf("it has links %v, want one to %v", got.Links, span.SpanContext())
	}
	if link := got.Links[0].SpanContext; !link.IsRemote() || !link.IsSampled() {
		t.Errorf("the link is remote %v, sampled %v, want both", link.IsRemote(), link.IsSampled())
	}
	if !got.StartTime.Equal(a.StartedAt) || got.EndTime.Sub(got.StartTime) != a.Duration {
		t.Errorf("it lasts from %v to %v, want %v from %v on", got.StartTime, got.EndTime, a.Duration, a.StartedAt)
	}
}

// A Handler's attempts, including one two days later, must be linked to the span that published
// their event.
func TestHandler_LaterAttempts_LinkToPublication(t *testing.T) {
	telemetry, exporter, tracer := tracing(t)
	var published trace.SpanContext
	storageapitest.Bubble(t, func(t *testing.T) {
		kit := storageapitest.New(t, storageapitest.Config(storageapi.Config{
			Observe: telemetry.Observer(), Webhooks: webhooks.Config{TraceContext: telemetry.TraceContext},
		}))
		receiver := kit.Subscribe(alerts.TypeBandwidthLimitReached)
		receiver.Script(storageapitest.Status(503).For(48 * time.Hour))
		ctx, span := tracer.Start(t.Context(), "POST /v2/files")
		published = span.SpanContext()
		if err := kit.API.Webhooks.Publish(ctx, webhooks.Event{Account: kit.Account, Data: alerts.BandwidthLimitReached{}}); err != nil {
			t.Fatal(err)
		}
		span.End()
		kit.WaitIdle()
		if err := kit.API.Close(); err != nil {
			t.Fatal(err)
		}
	})
	attempts := 0
	var last time.Duration
	for _, span := range exporter.GetSpans() {
		if span.Name != "POST" {
			continue
		}
		attempts++
		if span.Parent.IsValid() || len(span.Links) != 1 || span.Links[0].SpanContext.SpanID() != published.SpanID() || span.Links[0].SpanContext.TraceID() != published.TraceID() {
			t.Errorf("attempt %d is a child of %v with links %v, want a root with one to %v", attempts, span.Parent, span.Links, published)
		}
		last = span.StartTime.Sub(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC))
	}
	if attempts < 2 || last < 48*time.Hour {
		t.Errorf("%d attempts, the last after %v", attempts, last)
	}
}

// Stored text that is not a traceparent must not create a link.
func TestAttempt_InvalidTraceparent_HasNoLink(t *testing.T) {
	telemetry, exporter, tracer := tracing(t)
	if kept := telemetry.TraceContext(t.Context()); kept != "" {
		t.Errorf("%q of a context without a span, want none", kept)
	}
	sampled, span := tracer.Start(t.Context(), "request")
	kept := telemetry.TraceContext(sampled)
	span.End()
	exporter.Reset()
	for _, kept := range []string{"", "host:42", kept[:54], kept + "0", "00-00000000000000000000000000000000-0000000000000000-01", "ff" + kept[2:]} {
		a := attempt()
		a.TraceContext = kept
		telemetry.Observer().Attempted(a)
		if got := only(t, exporter); len(got.Links) != 0 {
			t.Errorf("%q: links %v", kept, got.Links)
		}
	}
}

func TestAttemptSpan(t *testing.T) {
	tests := []struct {
		name    string
		change  func(a *observe.Attempt)
		want    map[attribute.Key]any // in addition to the common attributes
		status  sdktrace.Status
		without []attribute.Key
	}{
		{"delivered", func(*observe.Attempt) {}, map[attribute.Key]any{"http.response.status_code": int64(204), "storageapi.result": "delivered"}, sdktrace.Status{}, []attribute.Key{"error.type", "http.request.resend_count"}},
		{"refused", func(a *observe.Attempt) {
			a.Number, a.Status, a.Class, a.Error, a.Result = 3, 599, "status", "answered 599", observe.Retry
		}, map[attribute.Key]any{"http.response.status_code": int64(599), "error.type": "599", "http.request.resend_count": int64(2), "storageapi.result": "retry"},
			sdktrace.Status{Code: codes.Error, Description: "answered 599"}, nil},
		{"no answer", func(a *observe.Attempt) {
			a.Receiver, a.Status, a.Class, a.Error, a.Result = "https://hooks.example", 0, "timeout", "no response in 15 s", observe.Dead
		}, map[attribute.Key]any{"error.type": "timeout", "server.port": int64(443), "url.full": "https://hooks.example/REDACTED", "storageapi.result": "dead"},
			sdktrace.Status{Code: codes.Error, Description: "no response in 15 s"}, []attribute.Key{"http.response.status_code"}},
		{"IPv6", func(a *observe.Attempt) { a.Receiver = "http://[2001:db8::1]" },
			map[attribute.Key]any{"server.address": "2001:db8::1", "server.port": int64(80), "storageapi.result": "delivered", "url.scheme": "http", "url.full": "http://[2001:db8::1]/REDACTED"}, sdktrace.Status{}, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			telemetry, exporter, _ := tracing(t)
			a := attempt()
			test.change(&a)
			telemetry.Observer().Attempted(a)
			got := only(t, exporter)
			if got.Name != "POST" || got.SpanKind != trace.SpanKindClient || got.InstrumentationScope.SchemaURL != semconv.SchemaURL {
				t.Errorf("it is %q of kind %v by %s", got.Name, got.SpanKind, got.InstrumentationScope.SchemaURL)
			}
			if diff := cmp.Diff(test.status, got.Status); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			want := map[attribute.Key]any{
				"http.request.method": "POST", "server.address": "hooks.example", "server.port": int64(8443), "url.scheme": "https", "url.full": "https://hooks.example:8443/REDACTED",
				"messaging.system": "storageapi", "messaging.destination.name": "files.expiring", "messaging.message.id": "evt_1",
				"storageapi.account": "acct_1", "storageapi.webhook.id": "wh_1", "http.response.status_code": int64(a.Status),
			}
			maps.Copy(want, test.want)
			for _, key := range test.without {
				delete(want, key)
			}
			if diff := cmp.Diff(want, attributes(got.Attributes)); diff != "" {
				t.Errorf("attributes (-want +got):\n%s", diff)
			}
		})
	}
}

// The span of a publication must be a child of the caller's span.
func TestPublicationSpan(t *testing.T) {
	telemetry, exporter, tracer := tracing(t)
	ctx, caller := tracer.Start(t.Context(), "POST /v2/files")
	event := observe.PublishedEvent{ID: "evt_1", Type: "files.expiring", Bytes: 200}
	telemetry.Observer().Published(ctx, observe.Publication{Account: "acct_1", Events: []observe.PublishedEvent{event}, Deliveries: 2, Duration: 3 * time.Millisecond})
	got := only(t, exporter)
	if got.Name != "publish files.expiring" || got.SpanKind != trace.SpanKindProducer || got.Parent.SpanID() != caller.SpanContext().SpanID() {
		t.Errorf("it is %q of kind %v, child of %v", got.Name, got.SpanKind, got.Parent.SpanID())
	}
	if took := got.EndTime.Sub(got.StartTime); took != 3*time.Millisecond {
		t.Errorf("it took %v", took)
	}
	if diff := cmp.Diff(map[attribute.Key]any{
		"messaging.system": "storageapi", "messaging.operation.name": "publish", "messaging.operation.type": "send", "messaging.destination.name": "files.expiring",
		"messaging.message.id": "evt_1", "messaging.message.body.size": int64(200), "storageapi.account": "acct_1",
	}, attributes(got.Attributes)); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}

	failure := fmt.Errorf("write evt_1 of acct_1: %w", errors.New("no space left"))
	telemetry.Observer().Published(ctx, observe.Publication{Account: "acct_1", Events: []observe.PublishedEvent{event, {ID: "evt_2", Type: "balance.low"}}, Err: failure})
	got = only(t, exporter)
	if diff := cmp.Diff(map[attribute.Key]any{
		"messaging.system": "storageapi", "messaging.operation.name": "publish", "messaging.operation.type": "send", "messaging.batch.message_count": int64(2),
		"storageapi.account": "acct_1", "error.type": "_OTHER",
	}, attributes(got.Attributes)); diff != "" || got.Name != "publish" || got.Status.Code != codes.Error {
		t.Errorf("%q with status %v, attributes (-want +got):\n%s", got.Name, got.Status, diff)
	}
}

// The key and its account must be added to the span that the host's middleware created for a
// request.
func TestRequestSpan(t *testing.T) {
	telemetry, exporter, tracer := tracing(t)
	ctx, span := tracer.Start(t.Context(), "GET /v2/files")
	telemetry.Observer().Authenticated(ctx, observe.Authentication{Outcome: observe.ScopeMissing, Account: "acct_1", KeyID: "key_1"})
	span.End()
	if diff := cmp.Diff(map[attribute.Key]any{"storageapi.outcome": "scope_missing", "storageapi.account": "acct_1", "storageapi.key.id": "key_1"}, attributes(only(t, exporter).Attributes)); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
	ctx, span = tracer.Start(t.Context(), "GET /v2/files")
	telemetry.Observer().Authenticated(ctx, observe.Authentication{Outcome: observe.Missing})
	span.End()
	if diff := cmp.Diff(map[attribute.Key]any{"storageapi.outcome": "missing"}, attributes(only(t, exporter).Attributes)); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
	telemetry.Observer().Authenticated(context.Background(), observe.Authentication{Outcome: observe.OK, Account: "acct_1", KeyID: "key_1"})
	if got := exporter.GetSpans(); len(got) != 0 {
		t.Errorf("a request without a span made %v", got)
	}
}

// Attempts must be sampled like root spans, whether or not their publishers were sampled.
func TestSampler(t *testing.T) {
	unsampled := "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
	for _, test := range []struct {
		root sdktrace.Sampler
		want int
	}{{sdktrace.AlwaysSample(), 1}, {sdktrace.NeverSample(), 0}} {
		telemetry, exporter, _ := tracing(t, sdktrace.WithSampler(sdktrace.ParentBased(test.root)))
		a := attempt()
		a.TraceContext = unsampled
		telemetry.Observer().Attempted(a)
		if got := len(exporter.GetSpans()); got != test.want {
			t.Errorf("%s: %d spans, want %d", test.root.Description(), got, test.want)
		}
	}
}

// only returns the only exported span, and resets the exporter.
func only(t *testing.T, exporter *tracetest.InMemoryExporter) tracetest.SpanStub {
	t.Helper()
	spans := exporter.GetSpans()
	exporter.Reset()
	if len(spans) != 1 {
		t.Fatalf("%d spans, want 1: %v", len(spans), spans)
	}
	return spans[0]
}

func attributes(list []attribute.KeyValue) map[attribute.Key]any {
	m := make(map[attribute.Key]any)
	for _, kv := range list {
		m[kv.Key] = kv.Value.AsInterface()
	}
	return m
}
