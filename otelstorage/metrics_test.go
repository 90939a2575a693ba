package otelstorage_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/semconv/v1.43.0/httpconv"
	"go.opentelemetry.io/otel/semconv/v1.43.0/messagingconv"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/observe"
	"github.com/storageapi/storageapi/otelstorage"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/storageapitest"
	"github.com/storageapi/storageapi/webhooks"
)

func metering(t *testing.T) (*otelstorage.Telemetry, *sdkmetric.ManualReader) {
	t.Helper()
	reader := sdkmetric.NewManualReader()
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader), sdkmetric.WithCardinalityLimit(0))
	telemetry, err := otelstorage.New(otelstorage.Config{MeterProvider: provider, TracerProvider: tracenoop.NewTracerProvider()})
	if err != nil {
		t.Fatal(err)
	}
	return telemetry, reader
}

// feed passes one observation of each kind to the observer. Their IDs, addresses and accounts
// contain n.
func feed(o observe.Observer, n int) {
	ctx := context.Background()
	id := func(kind string) string { return fmt.Sprintf("%s_unbounded_%d", kind, n) }
	failure := errors.New(id("error"))
	for _, outcome := range observe.Outcomes() {
		o.Authenticated(ctx, observe.Authentication{Outcome: outcome, Account: id("acct"), KeyID: id("key"), Duration: 80 * time.Microsecond})
	}
	for _, err := range []error{nil, failure, context.Canceled} {
		p := observe.Publication{Account: id("acct"), Events: []observe.PublishedEvent{{ID: id("evt"), Type: "files.expiring", Bytes: 200}}, Duration: 3 * time.Millisecond, Err: err}
		if err == nil {
			p.Deliveries = 2
		}
		o.Published(ctx, p)
		o.Claimed(observe.Claim{Limit: 500, Claimed: 2, Duration: time.Millisecond, Err: err})
		o.Settled(observe.Settlement{Size: 2, Stale: 1, Duration: time.Millisecond, Err: err})
		o.Committed(observe.Commit{Steps: 5, Duration: 4 * time.Millisecond, Err: err})
	}
	for _, action := range audit.Actions() {
		o.Changed(audit.Entry{ID: id("ntc"), Account: id("acct"), Action: action, Target: audit.Target{Kind: audit.TargetKey, ID: id("key")}, Reason: id("reason")})
	}
	a := attempt()
	a.Account, a.WebhookID, a.EventID, a.Receiver, a.Number, a.TraceContext = id("acct"), id("wh"), id("evt"), "https://"+id("host")+".example:8443", n, id("trace")
	o.Attempted(a)
	a.Result, a.Status, a.Class, a.Error = observe.Retry, 100+n%900, "status", id("error")
	o.Attempted(a)
	a.Result, a.Status, a.Class = observe.Dead, 0, "timeout"
	o.Attempted(a)
	o.Lost(3)
}

func stats(context.Context) (webhooks.Stats, error) {
	return webhooks.Stats{
		Pending: 7, Held: 2, OldestDue: 1500 * time.Millisecond, LongestWait: 250 * time.Millisecond, InFlight: 3, Delivered: 10, Failed: 5, Dead: 4,
		FileBytes: 1 << 20, FreeBytes: 1 << 10, Halted: errors.New("the disk is gone"),
	}, nil
}

// TestMetrics checks that each observation changes the metrics that the package comment lists for
// it.
func TestMetrics(t *testing.T) {
	telemetry, reader := metering(t)
	feed(telemetry.Observer(), 599-100)
	telemetry.SetStats(stats)
	got := collect(t, reader)
	for series, value := range map[string]float64{
		`http.client.request.duration{http.request.method=POST,http.response.status_code=204,messaging.system=storageapi}`:                                     1,
		`http.client.request.duration{error.type=500,http.request.method=POST,http.response.status_code=500,messaging.system=storageapi}`:                      1, // the status was 599
		`http.client.request.duration{error.type=timeout,http.request.method=POST,messaging.system=storageapi}`:                                                1,
		`messaging.client.operation.duration{messaging.operation.name=publish,messaging.operation.type=send,messaging.system=storageapi}`:                      1,
		`messaging.client.operation.duration{error.type=_OTHER,messaging.operation.name=publish,messaging.operation.type=send,messaging.system=storageapi}`:    1,
		`messaging.client.operation.duration{error.type=canceled,messaging.operation.name=claim,messaging.operation.type=receive,messaging.system=storageapi}`: 1,
		`messaging.client.operation.duration{messaging.operation.name=settle,messaging.operation.type=settle,messaging.system=storageapi}`:                     1,
		`messaging.client.sent.messages{messaging.destination.name=files.expiring,messaging.operation.name=publish,messaging.system=storageapi}`:               1,
		`messaging.client.consumed.messages{messaging.operation.name=claim,messaging.system=storageapi}`:                                                       6,
		`storageapi.attempts{messaging.destination.name=files.expiring,storageapi.result=delivered}`:                                                           1,
		`storageapi.attempts{error.type=status,messaging.destination.name=files.expiring,storageapi.result=retry}`:                                             1,
		`storageapi.attempts{error.type=timeout,messaging.destination.name=files.expiring,storageapi.result=dead}`:                                             1,
		`storageapi.authentication.duration{storageapi.outcome=replaced}`:                                                                                      1,
		`storageapi.delivery.delay{}`:                                          1,
		`storageapi.published.size{messaging.destination.name=files.expiring}`: 200,
		`storageapi.published.deliveries{}`:                                    2,
		`storageapi.settled.deliveries{}`:                                      2,
		`storageapi.settled.stale{}`:                                           1,
		`storageapi.commit.duration{}`:                                         1,
		`storageapi.commit.duration{error.type=_OTHER}`:                        1,
		`storageapi.commit.steps{}`:                                            5,
		`storageapi.changes{storageapi.action=webhook.off}`:                    1,
		`storageapi.observations.lost{}`:                                       3,
		`storageapi.stats.up{}`:                                                1,
		`storageapi.store.halted{}`:                                            1,
		`storageapi.deliveries.pending{}`:                                      7,
		`storageapi.deliveries.oldest_due{}`:                                   1.5,
		`storageapi.deliveries.longest_wait{}`:                                 0.25,
		`storageapi.webhooks.held{}`:                                           2,
		`storageapi.attempts.in_flight{}`:                                      3,
		`storageapi.deliveries.dead{}`:                                         4,
		`storageapi.file.size{}`:                                               1 << 20,
		`storageapi.file.free{}`:                                               1 << 10,
	} {
		if v, there := got[series]; !there || v != value {
			t.Errorf("%s is %v (%v), want %v", series, v, there, value)
		}
	}
	if t.Failed() {
		for series, value := range got {
			t.Log(series, value)
		}
	}
}

// Instruments with names from the conventions must have the unit, the description and the kind that
// the conventions define.
func TestConventions(t *testing.T) {
	telemetry, reader := metering(t)
	feed(telemetry.Observer(), 1)
	var data metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &data); err != nil {
		t.Fatal(err)
	}
	type convention interface {
		Name() string
		Unit() string
		Description() string
	}
	want := map[string]convention{}
	for _, c := range []convention{httpconv.ClientRequestDuration{}, messagingconv.ClientOperationDuration{}, messagingconv.ClientSentMessages{}, messagingconv.ClientConsumedMessages{}} {
		want[c.Name()] = c
	}
	for _, m := range data.ScopeMetrics[0].Metrics {
		c, there := want[m.Name]
		if !there {
			if !strings.HasPrefix(m.Name, "storageapi.") {
				t.Errorf("%s is neither a convention's name nor our own", m.Name)
			}
			continue
		}
		delete(want, m.Name)
		if m.Unit != c.Unit() || m.Description != c.Description() {
			t.Errorf("%s is in %s: %s, want %s: %s", m.Name, m.Unit, m.Description, c.Unit(), c.Description())
		}
	}
	if len(want) > 0 {
		t.Errorf("without %v", want)
	}
}

// The number of series must not depend on the number of customers.
func TestAttributesAreBounded(t *testing.T) {
	telemetry, reader := metering(t)
	telemetry.SetStats(stats)
	observer := telemetry.Observer()
	const all = 900 // number of different statuses
	for n := range all {
		feed(observer, n)
	}
	first := names(collect(t, reader))
	for n := range 1100 {
		feed(observer, all+n)
	}
	after := names(collect(t, reader))
	if diff := cmp.Diff(first, after); diff != "" {
		t.Errorf("more customers have made more series:\n%s", diff)
	}
	if len(after) > 200 {
		t.Errorf("%d series of one event type", len(after))
	}
	for name := range after {
		if strings.Contains(name, "unbounded") || strings.Contains(name, "example") {
			t.Errorf("%s has what is not for metrics", name)
		}
	}
}

// If the store does not answer, as after a shutdown, a collection must lack only the metrics based
// on stats.
func TestStats_Fail_OmitsOnlyTheirMetrics(t *testing.T) {
	telemetry, reader := metering(t)
	feed(telemetry.Observer(), 1)
	before := collect(t, reader)
	if _, there := before["storageapi.stats.up{}"]; there {
		t.Error("there are figures before SetStats")
	}
	telemetry.SetStats(func(ctx context.Context) (webhooks.Stats, error) {
		if _, ok := ctx.Deadline(); !ok {
			t.Error("a store that hangs would hold up the collection for ever")
		}
		return webhooks.Stats{Pending: 1}, errors.New("the store is gone")
	})
	got := collect(t, reader)
	if up, there := got["storageapi.stats.up{}"]; !there || up != 0 {
		t.Errorf("storageapi.stats.up is %v (%v), want 0", up, there)
	}
	delete(got, "storageapi.stats.up{}")
	if diff := cmp.Diff(before, got); diff != "" {
		t.Errorf("besides it:\n%s", diff)
	}
	telemetry.SetStats(nil)
	if diff := cmp.Diff(before, collect(t, reader)); diff != "" {
		t.Errorf("after SetStats(nil):\n%s", diff)
	}
}

// Concurrent observations and collections must not lose any observation.
func TestConcurrentUse(t *testing.T) {
	telemetry, reader := metering(t)
	telemetry.SetStats(stats)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for n := range 50 {
				feed(telemetry.Observer(), n)
			}
		})
		all.Go(func() {
			for range 5 {
				if err := reader.Collect(context.Background(), &metricdata.ResourceMetrics{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if got := collect(t, reader)["storageapi.delivery.delay{}"]; got != 200 {
		t.Errorf("%v deliveries were counted, want 200", got)
	}
}

// When Close has returned, all activity of the Handler must have been recorded.
func TestHandler(t *testing.T) {
	telemetry, reader := metering(t)
	storageapitest.Bubble(t, func(t *testing.T) {
		kit := storageapitest.New(t, storageapitest.Config(storageapi.Config{Observe: telemetry.Observer()}))
		telemetry.SetStats(kit.API.Webhooks.Stats)
		kit.Key(scopes.AccountRead).Do(kit.API, http.MethodGet, "/v2/notifications/webhooks", "")
		receiver := kit.Subscribe(alerts.TypeBandwidthLimitReached)
		receiver.Script(storageapitest.Status(503).Times(1))
		if err := kit.API.Webhooks.Publish(t.Context(), webhooks.Event{Account: kit.Account, Data: alerts.BandwidthLimitReached{}}); err != nil {
			t.Fatal(err)
		}
		kit.WaitIdle()
		if err := kit.API.Close(); err != nil {
			t.Fatal(err)
		}
	})
	got := collect(t, reader)
	for series, value := range map[string]float64{
		`storageapi.authentication.duration{storageapi.outcome=ok}`:                                                                                       1,
		`messaging.client.sent.messages{messaging.destination.name=bandwidth.limit_reached,messaging.operation.name=publish,messaging.system=storageapi}`: 1,
		`storageapi.attempts{error.type=status,messaging.destination.name=bandwidth.limit_reached,storageapi.result=retry}`:                               1,
		`storageapi.attempts{messaging.destination.name=bandwidth.limit_reached,storageapi.result=delivered}`:                                             1,
		`http.client.request.duration{error.type=503,http.request.method=POST,http.response.status_code=503,messaging.system=storageapi}`:                 1,
		`storageapi.settled.deliveries{}`:                       2,
		`storageapi.changes{storageapi.action=webhook.created}`: 1,
	} {
		if v, there := got[series]; !there || v != value {
			t.Errorf("%s is %v (%v), want %v", series, v, there, value)
		}
	}
}

// collect returns the values of all series. For histograms the value is the count.
func collect(t *testing.T, reader *sdkmetric.ManualReader) map[string]float64 {
	t.Helper()
	var data metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &data); err != nil {
		t.Fatal(err)
	}
	values := make(map[string]float64)
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			set := func(attributes attribute.Set, value float64) {
				values[m.Name+"{"+attributes.Encoded(attribute.DefaultEncoder())+"}"] = value
			}
			switch points := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range points.DataPoints {
					set(p.Attributes, float64(p.Value))
				}
			case metricdata.Gauge[float64]:
				for _, p := range points.DataPoints {
					set(p.Attributes, p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range points.DataPoints {
					set(p.Attributes, float64(p.Count))
				}
			default:
				t.Errorf("%s is %T", m.Name, m.Data)
			}
		}
	}
	return values
}

func names(values map[string]float64) map[string]bool {
	all := make(map[string]bool)
	for name := range values {
		all[name] = true
	}
	return all
}
