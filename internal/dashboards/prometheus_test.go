package dashboards_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
)

// A server is the parser and the query engine of Prometheus, with the samples in a map.
type server struct {
	engine *promql.Engine
	parser parser.Parser
	series map[string]*series // by labels
}

type series struct {
	labels  labels.Labels
	samples []chunks.Sample
}

func newServer(t *testing.T) *server {
	p := parser.NewParser(parser.Options{})
	engine := promql.NewEngine(promql.EngineOpts{
		MaxSamples: 1e6, Timeout: time.Minute, Parser: p, EnableAtModifier: true, EnableNegativeOffset: true,
		NoStepSubqueryIntervalFn: func(int64) int64 { return time.Minute.Milliseconds() },
	})
	t.Cleanup(func() { engine.Close() })
	return &server{engine: engine, parser: p, series: make(map[string]*series)}
}

// scrape adds the metrics of a registry, as served over HTTP, timestamped at.
func (s *server) scrape(t *testing.T, registry *prometheus.Registry, at time.Time) {
	t.Helper()
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	if answer.Code != http.StatusOK {
		t.Fatalf("the scrape is answered %d: %s", answer.Code, answer.Body)
	}
	text, err := textparse.New(answer.Body.Bytes(), answer.Header().Get("Content-Type"), labels.NewSymbolTable(), textparse.ParserOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for {
		entry, err := text.Next()
		if err == io.EOF {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		if entry != textparse.EntrySeries {
			continue
		}
		var own labels.Labels
		text.Labels(&own)
		_, _, value := text.Series()
		all := labels.NewBuilder(own).Set("job", "host").Set("instance", "node-1:9090").Labels()
		of := s.series[all.String()]
		if of == nil {
			of = &series{labels: all}
			s.series[all.String()] = of
		}
		of.samples = append(of.samples, sample{at.UnixMilli(), value})
	}
}

// selected returns the series that match a selector.
func (s *server) selected(matchers []*labels.Matcher) (selected []storage.Series) {
	for _, one := range s.series {
		if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(one.labels.Get(m.Name)) }) {
			selected = append(selected, storage.NewListSeries(one.labels, one.samples))
		}
	}
	slices.SortFunc(selected, func(a, b storage.Series) int { return labels.Compare(a.Labels(), b.Labels()) })
	return selected
}

// query returns the graph of a query. It fails the test for warnings, and for selectors without a
// match.
func (s *server) query(t *testing.T, query string, from, to time.Time) promql.Matrix {
	t.Helper()
	expression, err := s.parser.ParseExpr(query)
	if err != nil {
		t.Errorf("%s: %v", query, err)
		return nil
	}
	for _, selector := range parser.ExtractSelectors(expression) {
		if len(s.selected(selector)) == 0 {
			t.Errorf("%s: there is nothing of %v", query, selector)
		}
	}
	queryable := &storage.MockQueryable{MockQuerier: &storage.MockQuerier{
		SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
			return &seriesSet{SeriesSet: storage.EmptySeriesSet(), series: s.selected(matchers)}
		},
	}}
	run, err := s.engine.NewRangeQuery(context.Background(), queryable, promql.NewPrometheusQueryOpts(false, 0), query, from, to, 15*time.Second)
	if err != nil {
		t.Errorf("%s: %v", query, err)
		return nil
	}
	defer run.Close()
	result := run.Exec(context.Background())
	if result.Err != nil || len(result.Warnings) > 0 {
		t.Errorf("%s: %v, %v", query, result.Err, result.Warnings)
		return nil
	}
	matrix, err := result.Matrix()
	if err != nil {
		t.Errorf("%s: %v", query, err)
	}
	// The engine reuses the matrix after the query is closed.
	kept := make(promql.Matrix, len(matrix))
	for i, one := range matrix {
		kept[i] = promql.Series{Metric: one.Metric.Copy(), Floats: slices.Clone(one.Floats)}
	}
	return kept
}

type seriesSet struct {
	storage.SeriesSet // an empty set, which has no errors or warnings
	series            []storage.Series
	next              int
}

func (s *seriesSet) Next() bool { s.next++; return s.next <= len(s.series) }

func (s *seriesSet) At() storage.Series { return s.series[s.next-1] }

type sample struct {
	t int64
	f float64
}

func (s sample) T() int64                      { return s.t }
func (s sample) ST() int64                     { return 0 }
func (s sample) F() float64                    { return s.f }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }
