// Package dashboards_test runs the queries of the Grafana dashboards, and of promstorage's alerts,
// with the query engine of Prometheus.
package dashboards_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/observe"
	"github.com/storageapi/storageapi/otelstorage"
	"github.com/storageapi/storageapi/promstorage"
	"github.com/storageapi/storageapi/webhooks"
)

const (
	interval = 15 * time.Second
	scrapes  = 16
)

var start = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// A host is the source of the scraped metrics.
type host struct {
	registry *prometheus.Registry
	observer observe.Observer
	setStats func(func(context.Context) (webhooks.Stats, error))
}

func withPrometheus(*testing.T) host {
	collector, registry := promstorage.New(), prometheus.NewPedanticRegistry()
	registry.MustRegister(collector)
	return host{registry, collector.Observer(), collector.SetStats}
}

func withOpenTelemetry(t *testing.T) host {
	registry := prometheus.NewRegistry()
	reader, err := otelprometheus.New(otelprometheus.WithRegisterer(registry))
	if err != nil {
		t.Fatal(err)
	}
	telemetry, err := otelstorage.New(otelstorage.Config{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
	if err != nil {
		t.Fatal(err)
	}
	return host{registry, telemetry.Observer(), telemetry.SetStats}
}

// run repeats the same activity in each interval, followed by a scrape.
func (h host) run(t *testing.T, s *server) {
	t.Helper()
	for n := range scrapes {
		h.setStats(func(context.Context) (webhooks.Stats, error) {
			return webhooks.Stats{
				Pending: 7, Held: 2, OldestDue: 90 * time.Second, LongestWait: 3 * time.Second, InFlight: 3, Dead: uint64(30 * n), FileBytes: 1 << 20, FreeBytes: 1 << 10,
			}, nil
		})
		s.scrape(t, h.registry, start.Add(time.Duration(n)*interval))
		h.work(start.Add(time.Duration(n) * interval))
	}
}

// work creates the activity of an interval.
func (h host) work(at time.Time) {
	ctx, failure, o := context.Background(), errors.New("the disk is full"), h.observer
	for i := range 30 {
		outcome := observe.OK
		if i%10 == 0 {
			outcome = observe.Unknown
		}
		o.Authenticated(ctx, observe.Authentication{Outcome: outcome, Duration: 80 * time.Microsecond})
	}
	for range 15 {
		o.Published(ctx, observe.Publication{
			Events:     []observe.PublishedEvent{{Type: "files.expiring", Bytes: 200}, {Type: "balance.low", Bytes: 100}},
			Deliveries: 4, Duration: 3 * time.Millisecond,
		})
		o.Claimed(observe.Claim{Limit: 500, Claimed: 6, Duration: 3 * time.Millisecond})
		o.Settled(observe.Settlement{Size: 5, Stale: 1, Duration: 3 * time.Millisecond})
		o.Committed(observe.Commit{Steps: 8, Duration: 3 * time.Millisecond})
		o.Changed(audit.Entry{Action: audit.KeyCreated})
		o.Lost(2)
	}
	o.Published(ctx, observe.Publication{Events: []observe.PublishedEvent{{Type: "files.expiring"}}, Duration: 3 * time.Millisecond, Err: failure})
	o.Claimed(observe.Claim{Limit: 500, Duration: 3 * time.Millisecond, Err: failure})
	o.Settled(observe.Settlement{Size: 5, Duration: 3 * time.Millisecond, Err: failure})
	o.Committed(observe.Commit{Steps: 8, Duration: 3 * time.Millisecond, Err: failure})
	for i := range 60 {
		a := observe.Attempt{EventType: "files.expiring", Number: 1, StartedAt: at, Duration: 30 * time.Millisecond, Status: 200, Result: observe.Delivered, EventTimestamp: at.Add(-2 * time.Second)}
		switch {
		case i%4 == 0:
			a.Status, a.Result, a.Class = 503, observe.Retry, "status"
		case i == 1:
			a.Status, a.Result, a.Class, a.Duration = 0, observe.Dead, "timeout", 15*time.Second
		}
		o.Attempted(a)
	}
}

type dashboard struct {
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
	Panels []struct {
		ID         int
		Type       string
		Title      string
		Datasource struct{ Type, UID string }
		GridPos    struct{ H, W, X, Y int }
		Targets    []struct {
			Expr       string
			Datasource struct{ Type, UID string }
		}
	}
}

// TestDashboards checks that each query of each panel returns the expected values for a working
// host, and that each metric is in a panel.
func TestDashboards(t *testing.T) {
	for name, newHost := range map[string]func(*testing.T) host{"promstorage": withPrometheus, "otelstorage": withOpenTelemetry} {
		t.Run(name, func(t *testing.T) {
			var d dashboard
			content, err := os.ReadFile("../../" + name + "/dashboard.json")
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(content, &d); err != nil {
				t.Fatal(err)
			}
			s := newServer(t)
			newHost(t).run(t, s)

			shown := families(s)
			shows := map[string]float64{} // final value by title and legend
			for _, panel := range d.Panels {
				for _, target := range panel.Targets {
					if target.Datasource.UID != "${datasource}" || panel.Datasource.UID != "${datasource}" {
						t.Errorf("%s does not ask the chosen data source", panel.Title)
					}
					query := strings.NewReplacer("$__rate_interval", "1m", "$job", ".*").Replace(target.Expr)
					if strings.Contains(query, "$") {
						t.Errorf("%s: %s has a variable that is not known here", panel.Title, query)
					}
					matrix := s.query(t, query, start.Add(2*time.Minute), start.Add((scrapes-1)*interval))
					if len(matrix) == 0 {
						t.Errorf("%s shows nothing: %s", panel.Title, query)
					}
					for _, one := range matrix {
						last := one.Floats[len(one.Floats)-1].F
						if math.IsNaN(last) || math.IsInf(last, 0) {
							t.Errorf("%s shows %v: %s", panel.Title, last, query)
						}
						shows[panel.Title+legend(one.Metric)] += last
					}
					for metric := range shown {
						if strings.Contains(query, metric) {
							shown[metric] = true
						}
					}
				}
			}
			for metric, is := range shown {
				if !is {
					t.Errorf("no panel shows %s", metric)
				}
			}
			for what, want := range map[string]float64{
				"Pending deliveries": 7, "Longest wait": 90 + 3, // the panel shows both values
				"Attempts that succeed": 44. / 60, "Store answers": 1, "Store halted": 0, "Webhooks on hold": 2,
				"Attempts by result delivered": 44. / 15, "Attempts by result retry": 1, "Attempts by result dead": 1. / 15,
				"Failures by class status": 1, "Failures by class timeout": 1. / 15,
				"Events published files.expiring": 1, "Events published balance.low": 1, "Bytes published files.expiring": 200, "Bytes published balance.low": 100,
				"Authentications by outcome ok": 27. / 15, "Authentications by outcome unknown": 3. / 15,
				"Changes of keys and webhooks key.created": 60,
				"Calls that failed":                        4. / 15,
				"Size of a call":                           (4 + 6 + 5 + 8) * 15. / 16,
				"Dead deliveries, dropped results":         2 + 1, "Observations lost": 2,
				"Waiting and under way": 7 + 3, "File": 1<<20 + 1<<10,
			} {
				if got, there := shows[what]; !there || math.Abs(got-want) > .02*want {
					t.Errorf("%s: %v (%v), want %v", what, got, there, want)
				}
			}
			// Quantiles are only as precise as the histogram's bounds. Each value is the sum of a
			// panel's series.
			for what, between := range map[string][2]float64{
				"Time of an attempt":            {.05, 20},        // three quantiles; attempts take 0.03 s, one in 60 takes 15 s
				"From the event to its arrival": {3, 15},          // three quantiles; each delay is 2 s
				"Time to verify a key":          {.00002, .0002},  // two quantiles; each verification takes 80 µs
				"Time of a call, 99 %":          {4 * .0025, .02}, // the quantile of four calls; each takes 3 ms
			} {
				if got := shows[what]; got < between[0] || got > between[1] {
					t.Errorf("%s: %v, want from %v to %v", what, got, between[0], between[1])
				}
			}
			for _, variable := range d.Templating.List {
				metric, _, of := strings.Cut(strings.TrimPrefix(variable.Definition, "label_values("), ", job)")
				if _, there := shown[metric]; variable.Type == "query" && (!of || !there) {
					t.Errorf("the variable %s is %s, of what is not there", variable.Name, variable.Definition)
				}
			}
			if t.Failed() {
				for _, what := range slices.Sorted(maps.Keys(shows)) {
					t.Log(what, shows[what])
				}
			}
		})
	}
}

// TestLayout checks that panels have unique IDs and do not overlap.
func TestLayout(t *testing.T) {
	for _, name := range []string{"promstorage", "otelstorage"} {
		var d dashboard
		content, err := os.ReadFile("../../" + name + "/dashboard.json")
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(content, &d); err != nil {
			t.Fatal(err)
		}
		ids, taken := map[int]string{}, map[[2]int]string{}
		for _, panel := range d.Panels {
			if other, there := ids[panel.ID]; there {
				t.Errorf("%s: %q has the id of %q", name, panel.Title, other)
			}
			ids[panel.ID] = panel.Title
			at := panel.GridPos
			if at.X+at.W > 24 || at.W == 0 || at.H == 0 {
				t.Errorf("%s: %q lies outside", name, panel.Title)
			}
			for x := range at.W {
				for y := range at.H {
					place := [2]int{at.X + x, at.Y + y}
					if other, there := taken[place]; there {
						t.Fatalf("%s: %q lies on %q", name, panel.Title, other)
					}
					taken[place] = panel.Title
				}
			}
		}
	}
}

// TestAlerts checks that the queries of promstorage's alerts are valid.
func TestAlerts(t *testing.T) {
	rules, err := os.ReadFile("../../promstorage/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	alerts := regexp.MustCompile("(?m)^ +expr: (.+)$").FindAllSubmatch(rules, -1)
	if len(alerts) < 8 {
		t.Fatalf("%d alerts were found", len(alerts))
	}
	s := newServer(t)
	withPrometheus(t).run(t, s)
	for _, alert := range alerts {
		s.query(t, string(alert[1]), start.Add(2*time.Minute), start.Add((scrapes-1)*interval))
	}
}

// families returns the names of the library's metrics on a server. Histograms are listed by their
// base names, without a suffix.
func families(s *server) map[string]bool {
	all := make(map[string]bool)
	for _, one := range s.series {
		name := one.labels.Get(model.MetricNameLabel)
		if one.labels.Has("le") || strings.HasSuffix(name, "_seconds_sum") || strings.HasSuffix(name, "_seconds_count") {
			name = name[:strings.LastIndex(name, "_")]
		}
		if name != "target_info" && name != "otel_scope_info" {
			all[name] = false
		}
	}
	return all
}

// legend returns the labels that distinguish a series from the others of its query.
func legend(of labels.Labels) (text string) {
	of.Range(func(l labels.Label) { text += " " + l.Value })
	return text
}
