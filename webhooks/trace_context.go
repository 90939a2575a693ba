package webhooks

import (
	"context"
	"strings"
)

const (
	maxTraceContext   = 64
	headerTraceparent = "Traceparent"
)

// traceContext returns the trace context to store with an event that is published with ctx.
func (s *WebhookService) traceContext(ctx context.Context) (trace string) {
	if s.trace == nil {
		return ""
	}
	defer func() {
		if recover() != nil {
			s.logger.Error("storageapi: Config.TraceContext panicked") // the value could hold secrets
			trace = ""
		}
	}()
	if trace = s.trace(ctx); !validTraceContext(trace) {
		return ""
	}
	return trace
}

func validTraceContext(trace string) bool {
	return len(trace) <= maxTraceContext && !strings.ContainsFunc(trace, func(r rune) bool { return r <= ' ' || r > '~' })
}

// isTraceparent reports whether a trace context is a traceparent of version 00 (W3C Trace Context,
// section 3.2): 00-<trace id>-<parent id>-<flags>, in lower-case hex, without an ID of only zeros.
func isTraceparent(trace string) bool {
	if len(trace) != 55 || trace[:3] != "00-" || trace[35] != '-' || trace[52] != '-' {
		return false
	}
	for _, hex := range []string{trace[3:35], trace[36:52], trace[53:]} {
		if strings.ContainsFunc(hex, func(r rune) bool { return (r < '0' || r > '9') && (r < 'a' || r > 'f') }) {
			return false
		}
	}
	return strings.Trim(trace[3:35], "0") != "" && strings.Trim(trace[36:52], "0") != ""
}
