package otelstorage_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/otelstorage"
	"github.com/storageapi/storageapi/webhooks"
)

// The host creates the providers, and shuts them down after the Handler.
func Example() {
	dir, err := os.MkdirTemp("", "otelstorage")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()

	exported := tracetest.NewInMemoryExporter() // for example otlptracegrpc.New
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exported))
	collected := sdkmetric.NewManualReader() // for example sdkmetric.NewPeriodicReader with otlpmetricgrpc.New
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(collected))

	telemetry, err := otelstorage.New(otelstorage.Config{TracerProvider: tracers, MeterProvider: meters})
	if err != nil {
		log.Panic(err)
	}
	api, err := storageapi.NewHandler(storageapi.Config{
		Path: filepath.Join(dir, "storage.db"), Observe: telemetry.Observer(),
		Webhooks: webhooks.Config{TraceContext: telemetry.TraceContext},
	})
	if err != nil {
		log.Panic(err)
	}
	telemetry.SetStats(api.Webhooks.Stats)

	working, span := tracers.Tracer("host").Start(ctx, "POST /v2/uploads")
	event := webhooks.Event{Account: "acct_1", Data: alerts.BalanceLow{Balance: 99, Threshold: 100}}
	if err := api.Webhooks.Publish(working, event); err != nil {
		log.Panic(err)
	}
	span.End()

	if err := api.Close(); err != nil { // the last observations arrive
		log.Panic(err)
	}
	for _, span := range exported.GetSpans() {
		fmt.Println("span:", span.Name)
	}
	var metrics metricdata.ResourceMetrics
	if err := collected.Collect(ctx, &metrics); err != nil {
		log.Panic(err)
	}
	for _, metric := range metrics.ScopeMetrics[0].Metrics {
		if sum, ok := metric.Data.(metricdata.Sum[int64]); ok && metric.Name == "messaging.client.sent.messages" {
			fmt.Println("events:", sum.DataPoints[0].Value)
		}
	}
	if err := tracers.Shutdown(ctx); err != nil {
		log.Panic(err)
	}
	if err := meters.Shutdown(ctx); err != nil {
		log.Panic(err)
	}

	// Output:
	// span: publish balance.low
	// span: POST /v2/uploads
	// events: 1
}
