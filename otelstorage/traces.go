package otelstorage

import (
	"context"
	"net/url"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/storageapi/storageapi/observe"
)

// Attributes outside of the conventions. Account, webhook and key are on spans only.
const (
	accountKey = attribute.Key("storageapi.account")
	keyIDKey   = attribute.Key("storageapi.key.id")
	webhookKey = attribute.Key("storageapi.webhook.id")
	resultKey  = attribute.Key("storageapi.result")
	outcomeKey = attribute.Key("storageapi.outcome")
	actionKey  = attribute.Key("storageapi.action")
)

var messagingSystem = semconv.MessagingSystemKey.String("storageapi")

// nameKey adds the key to the span of a request.
func nameKey(span trace.Span, a observe.Authentication) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(outcomeKey.String(string(a.Outcome)))
	if a.KeyID != "" {
		span.SetAttributes(accountKey.String(a.Account), keyIDKey.String(a.KeyID))
	}
}

// tracePublication creates the span of a finished publication.
func (t *Telemetry) tracePublication(ctx context.Context, p observe.Publication) {
	end := time.Now()
	name := "publish"
	attributes := []attribute.KeyValue{
		messagingSystem, semconv.MessagingOperationName("publish"), semconv.MessagingOperationTypeSend,
		accountKey.String(p.Account),
	}
	if destination := onlyType(p.Events); destination != "" {
		name += " " + destination
		attributes = append(attributes, semconv.MessagingDestinationName(destination))
	}
	if len(p.Events) == 1 {
		attributes = append(attributes, semconv.MessagingMessageID(p.Events[0].ID), semconv.MessagingMessageBodySize(p.Events[0].Bytes))
	} else {
		attributes = append(attributes, semconv.MessagingBatchMessageCount(len(p.Events)))
	}
	_, span := t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindProducer), trace.WithTimestamp(end.Add(-p.Duration)), trace.WithAttributes(attributes...))
	if p.Err != nil {
		span.SetAttributes(errorTypeOf(p.Err))
		span.SetStatus(codes.Error, "the store did not confirm the events")
	}
	span.End(trace.WithTimestamp(end))
}

// onlyType returns the common type of the events, or "" if they differ.
func onlyType(events []observe.PublishedEvent) string {
	only := ""
	for _, event := range events {
		if only != "" && event.Type != only {
			return ""
		}
		only = event.Type
	}
	return only
}

// traceAttempt creates the span of a finished attempt, and returns its context.
func (t *Telemetry) traceAttempt(a observe.Attempt) context.Context {
	options := []trace.SpanStartOption{
		trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(a.StartedAt),
		trace.WithAttributes(
			semconv.HTTPRequestMethodPost,
			messagingSystem, semconv.MessagingDestinationName(a.EventType), semconv.MessagingMessageID(a.EventID),
			accountKey.String(a.Account), webhookKey.String(a.WebhookID), resultKey.String(string(a.Result)),
		),
		trace.WithAttributes(receiverAttributes(a.Receiver)...),
	}
	if a.Number > 1 {
		options = append(options, trace.WithAttributes(semconv.HTTPRequestResendCount(a.Number-1)))
	}
	if a.Status != 0 {
		options = append(options, trace.WithAttributes(semconv.HTTPResponseStatusCode(a.Status)))
	}
	if publisher := parse(a.TraceContext); publisher.IsValid() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: publisher}))
	}
	ctx, span := t.tracer.Start(context.Background(), "POST", options...)
	if a.Class != "" {
		kind := a.Class
		if a.Class == classStatus {
			kind = strconv.Itoa(a.Status)
		}
		span.SetAttributes(semconv.ErrorTypeKey.String(kind))
		span.SetStatus(codes.Error, a.Error)
	}
	span.End(trace.WithTimestamp(a.StartedAt.Add(a.Duration)))
	return ctx
}

// parse decodes the result of [Telemetry.TraceContext]. It returns an invalid context for other
// strings.
func parse(kept string) trace.SpanContext {
	if kept == "" {
		return trace.SpanContext{}
	}
	ctx := traceContext.Extract(context.Background(), propagation.MapCarrier{traceparent: kept})
	return trace.SpanContextFromContext(ctx)
}

// receiverAttributes returns the attributes of "https://host" or "https://host:port". Observations
// omit the rest of the URL, which may be secret and which the conventions require to be redacted.
func receiverAttributes(receiver string) []attribute.KeyValue {
	address, err := url.Parse(receiver)
	if err != nil || address.Host == "" {
		return nil
	}
	port := 443
	if address.Scheme == "http" {
		port = 80
	}
	if n, err := strconv.Atoi(address.Port()); err == nil {
		port = n
	}
	return []attribute.KeyValue{
		semconv.ServerAddress(address.Hostname()), semconv.ServerPort(port), semconv.URLScheme(address.Scheme),
		semconv.URLFull(receiver + "/REDACTED"),
	}
}
