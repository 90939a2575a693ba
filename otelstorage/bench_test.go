package otelstorage_test

import (
	"context"
	"testing"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/storageapi/storageapi/observe"
	"github.com/storageapi/storageapi/otelstorage"
)

// BenchmarkAuthenticated measures the cost of metrics on the goroutine of a guarded request without
// a span.
func BenchmarkAuthenticated(b *testing.B) {
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
	telemetry, err := otelstorage.New(otelstorage.Config{MeterProvider: provider, TracerProvider: tracenoop.NewTracerProvider()})
	if err != nil {
		b.Fatal(err)
	}
	authenticated := telemetry.Observer().Authenticated
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		authenticated(ctx, observe.Authentication{Outcome: observe.OK, Account: "acct_1", KeyID: "key_1", Duration: 80 * time.Microsecond})
	}
}
