package promstorage_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/observe"
	"github.com/storageapi/storageapi/promstorage"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/storageapitest"
	"github.com/storageapi/storageapi/webhooks"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

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
	attempt := observe.Attempt{
		Account: id("acct"), WebhookID: id("wh"), EventID: id("evt"), Receiver: "https://" + id("host") + ".example:8443", EventType: "files.expiring",
		Number: n, StartedAt: noon, Duration: 120 * time.Millisecond, EventTimestamp: noon.Add(-2 * time.Second), TraceContext: id("trace"),
	}
	attempt.Result, attempt.Status = observe.Delivered, 204
	o.Attempted(attempt)
	attempt.Result, attempt.Status, attempt.Class, attempt.Error = observe.Retry, 100+n%900, "status", id("error")
	o.Attempted(attempt)
	attempt.Result, attempt.Status, attempt.Class = observe.Dead, 0, "timeout"
	o.Attempted(attempt)
	o.Lost(3)
}

func stats(context.Context) (webhooks.Stats, error) {
	return webhooks.Stats{
		Pending: 7, Held: 2, OldestDue: 1500 * time.Millisecond, LongestWait: 250 * time.Millisecond, InFlight: 3, Delivered: 10, Failed: 5, Dead: 4,
		FileBytes: 1 << 20, FreeBytes: 1 << 10, Halted: errors.New("the disk is gone"),
	}, nil
}

// TestMetrics checks, with a pedantic registry, that each observation changes the metrics that the
// package comment lists for it.
func TestMetrics(t *testing.T) {
	collector := promstorage.New()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector)
	feed(collector.Observer(), 404)
	collector.SetStats(stats)

	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
	got := scrape(t, registry)
	want := map[string]float64{
		`storageapi_authentication_duration_seconds_count{outcome="replaced"}`:                                  1,
		`storageapi_publish_duration_seconds_count{result="ok"}`:                                                1,
		`storageapi_publish_duration_seconds_count{result="failed"}`:                                            1,
		`storageapi_publish_duration_seconds_count{result="canceled"}`:                                          1,
		`storageapi_publish_duration_seconds_sum{result="ok"}`:                                                  .003,
		`storageapi_published_events_total{event_type="files.expiring"}`:                                        1,
		`storageapi_published_bytes_total{event_type="files.expiring"}`:                                         200,
		`storageapi_published_deliveries_total`:                                                                 2,
		`storageapi_claim_duration_seconds_count{result="failed"}`:                                              1,
		`storageapi_claimed_deliveries_total`:                                                                   6,
		`storageapi_attempts_total{class="", event_type="files.expiring", result="delivered", status="2xx"}`:    1,
		`storageapi_attempts_total{class="status", event_type="files.expiring", result="retry", status="5xx"}`:  1,
		`storageapi_attempts_total{class="timeout", event_type="files.expiring", result="dead", status="none"}`: 1,
		`storageapi_attempt_duration_seconds_bucket{le="0.1", result="delivered"}`:                              0,
		`storageapi_attempt_duration_seconds_bucket{le="0.25", result="delivered"}`:                             1,
		`storageapi_delivery_delay_seconds_sum`:                                                                 2.12,
		`storageapi_delivery_delay_seconds_count`:                                                               1,
		`storageapi_settle_duration_seconds_count{result="ok"}`:                                                 1,
		`storageapi_settled_deliveries_total`:                                                                   2,
		`storageapi_settled_stale_total`:                                                                        1,
		`storageapi_commit_duration_seconds_count{result="failed"}`:                                             1,
		`storageapi_commit_steps_total`:                                                                         5,
		`storageapi_changes_total{action="webhook.off"}`:                                                        1,
		`storageapi_observations_lost_total`:                                                                    3,
		`storageapi_stats_up`:                                                                                   1,
		`storageapi_store_halted`:                                                                               1,
		`storageapi_deliveries_pending`:                                                                         7,
		`storageapi_deliveries_oldest_due_seconds`:                                                              1.5,
		`storageapi_deliveries_longest_wait_seconds`:                                                            0.25,
		`storageapi_webhooks_held`:                                                                              2,
		`storageapi_attempts_in_flight`:                                                                         3,
		`storageapi_deliveries_dead_total`:                                                                      4,
		`storageapi_file_size_bytes`:                                                                            1 << 20,
		`storageapi_file_free_bytes`:                                                                            1 << 10,
	}
	for series, value := range want {
		if got[series] != value {
			t.Errorf("%s is %v, want %v", series, got[series], value)
		}
	}
	if t.Failed() {
		for series, value := range got {
			t.Log(series, value)
		}
	}
}

// The number of series must not depend on the number of customers.
func TestLabelsAreBounded(t *testing.T) {
	collector := promstorage.New()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector)
	collector.SetStats(stats)
	observer := collector.Observer()
	const all = 900 // number of different statuses
	for n := range all {
		feed(observer, n)
	}
	first := series(scrape(t, registry))
	for n := range 1100 {
		feed(observer, all+n)
	}
	after := series(scrape(t, registry))
	if diff := cmp.Diff(first, after); diff != "" {
		t.Errorf("more customers have made more series:\n%s", diff)
	}
	if len(after) > 500 {
		t.Errorf("%d series of one event type", len(after))
	}
	for name := range after {
		if strings.Contains(name, "unbounded") || strings.Contains(name, "example") {
			t.Errorf("%s has what is not for labels", name)
		}
	}
}

// If the store does not answer, a scrape must lack only the metrics based on stats.
func TestStats_Fail_OmitsOnlyTheirMetrics(t *testing.T) {
	collector := promstorage.New()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector)
	before := scrape(t, registry)
	if _, there := before["storageapi_stats_up"]; there {
		t.Error("there are figures before SetStats")
	}
	collector.SetStats(func(ctx context.Context) (webhooks.Stats, error) {
		if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > 10*time.Second {
			t.Error("a store that hangs would hold up the scrape for longer than Prometheus waits")
		}
		return webhooks.Stats{Pending: 1}, errors.New("the store is gone")
	})
	got := scrape(t, registry)
	if up, there := got["storageapi_stats_up"]; !there || up != 0 {
		t.Errorf("storageapi_stats_up is %v (%v), want 0", up, there)
	}
	delete(got, "storageapi_stats_up")
	if diff := cmp.Diff(before, got); diff != "" {
		t.Errorf("besides it:\n%s", diff)
	}
	collector.SetStats(nil)
	if diff := cmp.Diff(before, scrape(t, registry)); diff != "" {
		t.Errorf("after SetStats(nil):\n%s", diff)
	}
}

// Labels added by registerers must separate the metrics of two Handlers.
func TestTwoHandlers(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	for _, name := range []string{"a", "b"} {
		collector := promstorage.New()
		prometheus.WrapRegistererWith(prometheus.Labels{"store": name}, registry).MustRegister(collector)
		collector.Observer().Lost(1)
	}
	got := scrape(t, registry)
	if got[`storageapi_observations_lost_total{store="a"}`] != 1 || got[`storageapi_observations_lost_total{store="b"}`] != 1 {
		t.Errorf("got %v", got)
	}
}

// Concurrent observations and scrapes must not lose any observation.
func TestConcurrentUse(t *testing.T) {
	collector := promstorage.New()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector)
	collector.SetStats(stats)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for n := range 50 {
				feed(collector.Observer(), n)
			}
		})
		all.Go(func() {
			for range 5 {
				if _, err := registry.Gather(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if got := scrape(t, registry)["storageapi_delivery_delay_seconds_count"]; got != 200 {
		t.Errorf("%v deliveries were counted, want 200", got)
	}
}

// When Close has returned, all activity of the Handler must have been recorded.
func TestHandler(t *testing.T) {
	collector := promstorage.New()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector)
	storageapitest.Bubble(t, func(t *testing.T) {
		kit := storageapitest.New(t, storageapitest.Config(storageapi.Config{Observe: collector.Observer()}))
		collector.SetStats(kit.API.Webhooks.Stats)
		kit.Key(scopes.AccountRead).Do(kit.API, "GET", "/v2/notifications/webhooks", "")
		kit.API.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/v2/notifications/webhooks", http.NoBody))
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
	got := scrape(t, registry)
	for series, value := range map[string]float64{
		`storageapi_authentication_duration_seconds_count{outcome="ok"}`:                                                1,
		`storageapi_authentication_duration_seconds_count{outcome="missing"}`:                                           1,
		`storageapi_published_events_total{event_type="bandwidth.limit_reached"}`:                                       1,
		`storageapi_published_deliveries_total`:                                                                         1,
		`storageapi_attempts_total{class="status", event_type="bandwidth.limit_reached", result="retry", status="5xx"}`: 1,
		`storageapi_attempts_total{class="", event_type="bandwidth.limit_reached", result="delivered", status="2xx"}`:   1,
		`storageapi_settled_deliveries_total`:                                                                           2,
		`storageapi_claimed_deliveries_total`:                                                                           2,
		`storageapi_changes_total{action="key.created"}`:                                                                1,
		`storageapi_changes_total{action="webhook.created"}`:                                                            1,
		`storageapi_observations_lost_total`:                                                                            0,
		`storageapi_stats_up`:                                                                                           1,
	} {
		if v, there := got[series]; !there || v != value {
			t.Errorf("%s is %v (%v), want %v", series, v, there, value)
		}
	}
	if t.Failed() {
		for series, value := range got {
			if value != 0 && !strings.Contains(series, "_bucket") {
				t.Log(series, value)
			}
		}
	}
}

// scrape returns the values of all series in the response to a scrape, by name.
func scrape(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	if answer.Code != http.StatusOK {
		t.Fatalf("the scrape is answered %d: %s", answer.Code, answer.Body)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	values := make(map[string]float64)
	for _, family := range families {
		samples, err := expfmt.ExtractSamples(&expfmt.DecodeOptions{}, family)
		if err != nil {
			t.Fatal(err)
		}
		for _, sample := range samples {
			values[sample.Metric.String()] = float64(sample.Value)
		}
	}
	return values
}

func series(values map[string]float64) map[string]bool {
	names := make(map[string]bool)
	for name := range values {
		names[name] = true
	}
	return names
}
