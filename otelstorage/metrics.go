package otelstorage

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/observe"
	"github.com/storageapi/storageapi/webhooks"
)

// metrics holds the instruments.
type metrics struct {
	requests        metric.Float64Histogram // http.client.request.duration
	operations      metric.Float64Histogram // messaging.client.operation.duration
	sent, consumed  metric.Int64Counter
	attempts        metric.Int64Counter
	authentications metric.Float64Histogram
	outcomes        map[observe.Outcome][]metric.RecordOption // prepared, since every request needs one
	delays          metric.Float64Histogram
	publishedSize   metric.Int64Counter
	publishedFor    metric.Int64Counter // deliveries of published events
	settledResults  metric.Int64Counter
	settledStale    metric.Int64Counter
	commits         metric.Float64Histogram
	commitSteps     metric.Int64Counter
	changes         metric.Int64Counter
	lost            metric.Int64Counter
}

// Upper bounds of histograms, in seconds. The conventions recommend the first two.
var (
	requestBounds        = []float64{.005, .01, .025, .05, .075, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10}
	operationBounds      = requestBounds
	authenticationBounds = []float64{.00001, .0001, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1}
	commitBounds         = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	delayBounds          = []float64{.05, .25, 1, 5, 30, 60, 300, 1800, 3600, 6 * 3600, 24 * 3600, 3 * 24 * 3600}
)

func newMetrics(meter metric.Meter) (*metrics, error) {
	instruments := maker{meter: meter}
	m := &metrics{
		requests:        instruments.duration("http.client.request.duration", "Duration of HTTP client requests.", requestBounds),
		operations:      instruments.duration("messaging.client.operation.duration", "Duration of messaging operation initiated by a producer or consumer client.", operationBounds),
		sent:            instruments.counter("messaging.client.sent.messages", "{message}", "Number of messages producer attempted to send to the broker."),
		consumed:        instruments.counter("messaging.client.consumed.messages", "{message}", "Number of messages that were delivered to the application."),
		attempts:        instruments.counter("storageapi.attempts", "{attempt}", "Attempts to deliver an event."),
		authentications: instruments.duration("storageapi.authentication.duration", "Time to verify the API key of a request.", authenticationBounds),
		delays:          instruments.duration("storageapi.delivery.delay", "Time from the timestamp of an event to its arrival.", delayBounds),
		publishedSize:   instruments.counter("storageapi.published.size", "By", "Size of the bodies of published events, in bytes."),
		publishedFor:    instruments.counter("storageapi.published.deliveries", "{delivery}", "Deliveries of published events."),
		settledResults:  instruments.counter("storageapi.settled.deliveries", "{delivery}", "Results of attempts passed to the store."),
		settledStale:    instruments.counter("storageapi.settled.stale", "{delivery}", "Results dropped because another worker has the delivery."),
		commits:         instruments.duration("storageapi.commit.duration", "Time to write and sync a commit of the file.", commitBounds),
		commitSteps:     instruments.counter("storageapi.commit.steps", "{call}", "Calls of the store that share the commits of the file."),
		changes:         instruments.counter("storageapi.changes", "{change}", "Changes of keys and webhooks."),
		lost:            instruments.counter("storageapi.observations.lost", "{observation}", "Observations missing in the other metrics because the queue was full."),
	}
	m.outcomes = make(map[observe.Outcome][]metric.RecordOption)
	for _, outcome := range observe.Outcomes() {
		m.outcomes[outcome] = []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(outcomeKey.String(string(outcome))))}
	}
	return m, instruments.err
}

// A maker creates instruments and collects the errors.
type maker struct {
	meter metric.Meter
	err   error
}

func (m *maker) duration(name, description string, bounds []float64) metric.Float64Histogram {
	instrument, err := m.meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description), metric.WithExplicitBucketBoundaries(bounds...))
	m.err = errors.Join(m.err, err)
	return instrument
}

func (m *maker) counter(name, unit, description string) metric.Int64Counter {
	instrument, err := m.meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description))
	m.err = errors.Join(m.err, err)
	return instrument
}

func (m *metrics) authenticated(ctx context.Context, a observe.Authentication) {
	m.authentications.Record(ctx, a.Duration.Seconds(), m.outcomes[a.Outcome]...)
}

func (m *metrics) published(ctx context.Context, p observe.Publication) {
	m.operation(ctx, semconv.MessagingOperationTypeSend, "publish", p.Duration, p.Err)
	for _, event := range p.Events {
		destination := semconv.MessagingDestinationName(event.Type)
		attributes := []attribute.KeyValue{messagingSystem, semconv.MessagingOperationName("publish"), destination}
		if p.Err != nil {
			attributes = append(attributes, errorTypeOf(p.Err))
		}
		m.sent.Add(ctx, 1, metric.WithAttributes(attributes...))
		if p.Err == nil {
			m.publishedSize.Add(ctx, int64(event.Bytes), metric.WithAttributes(destination))
		}
	}
	m.publishedFor.Add(ctx, int64(p.Deliveries))
}

func (m *metrics) claimed(c observe.Claim) {
	ctx := context.Background()
	m.operation(ctx, semconv.MessagingOperationTypeReceive, "claim", c.Duration, c.Err)
	m.consumed.Add(ctx, int64(c.Claimed), metric.WithAttributes(messagingSystem, semconv.MessagingOperationName("claim")))
}

func (m *metrics) settled(s observe.Settlement) {
	ctx := context.Background()
	m.operation(ctx, semconv.MessagingOperationTypeSettle, "settle", s.Duration, s.Err)
	if s.Err == nil {
		m.settledResults.Add(ctx, int64(s.Size))
		m.settledStale.Add(ctx, int64(s.Stale))
	}
}

// operation records a call of the store.
func (m *metrics) operation(ctx context.Context, kind attribute.KeyValue, name string, took time.Duration, err error) {
	attributes := []attribute.KeyValue{messagingSystem, semconv.MessagingOperationName(name), kind}
	if err != nil {
		attributes = append(attributes, errorTypeOf(err))
	}
	m.operations.Record(ctx, took.Seconds(), metric.WithAttributes(attributes...))
}

// attempted records an attempt. ctx is the context of its span, for exemplars.
func (m *metrics) attempted(ctx context.Context, a observe.Attempt) {
	request := []attribute.KeyValue{semconv.HTTPRequestMethodPost, messagingSystem} // distinguishes attempts from the host's other requests
	counted := []attribute.KeyValue{semconv.MessagingDestinationName(a.EventType), resultKey.String(string(a.Result))}
	status := knownStatus(a.Status)
	if status != 0 {
		request = append(request, semconv.HTTPResponseStatusCode(status))
	}
	if a.Class != "" {
		kind := a.Class
		if a.Class == classStatus && status != 0 {
			kind = strconv.Itoa(status)
		}
		request = append(request, semconv.ErrorTypeKey.String(kind))
		counted = append(counted, semconv.ErrorTypeKey.String(a.Class))
	}
	m.requests.Record(ctx, a.Duration.Seconds(), metric.WithAttributes(request...))
	m.attempts.Add(ctx, 1, metric.WithAttributes(counted...))
	if a.Result == observe.Delivered && !a.EventTimestamp.IsZero() {
		arrived := a.StartedAt.Add(a.Duration)
		m.delays.Record(ctx, max(0, arrived.Sub(a.EventTimestamp).Seconds())) // negative if clocks differ
	}
}

func (m *metrics) committed(c observe.Commit) {
	ctx := context.Background()
	if c.Err != nil {
		m.commits.Record(ctx, c.Duration.Seconds(), metric.WithAttributes(errorTypeOf(c.Err)))
		return
	}
	m.commits.Record(ctx, c.Duration.Seconds())
	m.commitSteps.Add(ctx, int64(c.Steps))
}

func (m *metrics) changed(n audit.Entry) {
	m.changes.Add(context.Background(), 1, metric.WithAttributes(actionKey.String(string(n.Action))))
}

const classStatus = string(webhooks.ClassStatus)

// knownStatus returns a status that HTTP defines, or the x00 status of its class, which RFC 9110
// declares equivalent to an unknown status. This limits the number of series, because receivers
// could return 900 different statuses. It returns 0 for a status without a class.
func knownStatus(status int) int {
	switch {
	case http.StatusText(status) != "":
		return status
	case status >= 100 && status < 600:
		return status / 100 * 100
	}
	return 0
}

// errorTypeOf returns the error.type of a call of the store. Errors of stores have no common types.
func errorTypeOf(err error) attribute.KeyValue {
	switch {
	case errors.Is(err, context.Canceled):
		return semconv.ErrorTypeKey.String("canceled")
	case errors.Is(err, context.DeadlineExceeded):
		return semconv.ErrorTypeKey.String("timeout")
	}
	return semconv.ErrorTypeOther
}
