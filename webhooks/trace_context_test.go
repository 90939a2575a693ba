package webhooks_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/observe"
	"github.com/storageapi/storageapi/webhooks"
)

const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

type traceKey struct{}

// traceOf is a Config.TraceContext that reads the trace from the context.
func traceOf(ctx context.Context) string {
	trace, _ := ctx.Value(traceKey{}).(string)
	if trace == "panic" {
		panic("SENTINEL")
	}
	return trace
}

// An event keeps the trace context of its publication, even for later attempts by other
// processes. The same holds for events that a report publishes. Invalid trace contexts are
// dropped.
func TestTraceContextIsKept(t *testing.T) {
	var mu sync.Mutex
	told := make(map[string][]string) // by event type
	config := webhooks.Config{
		TraceContext: traceOf, Retry: webhooks.RetryPolicy{Delays: []time.Duration{3 * day}},
		Observe: observe.Observer{Attempted: func(a observe.Attempt) {
			mu.Lock()
			defer mu.Unlock()
			told[a.EventType] = append(told[a.EventType], a.TraceContext)
		}},
	}
	var up atomic.Bool
	handler := func(w http.ResponseWriter, _ *http.Request) {
		if !up.Swap(true) {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}
	inBubble(t, config, handler, func(b *bubble) {
		must(b.service.Create(b.Context(), account, webhooks.CreateParams{
			URL: "https://a.example.com" + secretPath, Events: []webhooks.EventType{alerts.TypeBalanceLow, alerts.TypeBandwidthLimitReached, alerts.TypeFilesExpiring},
		}))
		in := func(trace string) context.Context { return context.WithValue(b.Context(), traceKey{}, trace) }
		stop := b.start()
		noError(t, b.service.Publish(in(traceparent), webhooks.Event{Account: account, Data: alerts.BalanceLow{Balance: 1, Threshold: 2}}))
		time.Sleep(time.Minute)
		stop = b.restart(stop, config) // another process
		time.Sleep(4 * day)
		noError(t, b.reports().ReportBandwidth(in(traceparent), account, 100, 100, "p1"))
		noError(t, b.reports().ReportFiles(in(traceparent), account, []alerts.ExpiringFile{{ID: "f", Name: "f", EnvironmentID: "e", ExpiresAt: time.Now().Add(time.Hour)}}))
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, trace := range []string{"", strings.Repeat("x", 65), "a b", "é", "a\nb", "panic"} {
			noError(t, b.service.Publish(in(trace), webhooks.Event{ID: "evt_" + string(rune('a'+len(trace)%26)), Account: account, Data: alerts.BalanceLow{Balance: 1, Threshold: 2}}))
		}
		time.Sleep(time.Minute)
		stop()
		if lines := b.logs.Lines("Config.TraceContext panicked"); len(lines) != 1 || strings.Contains(b.logs.String(), "SENTINEL") {
			t.Errorf("logged\n%s", b.logs)
		}
	})
	low := told["balance.low"]
	if len(low) < 3 || low[0] != traceparent || low[1] != traceparent || strings.Join(low[2:], "") != "" {
		t.Errorf("attempts are told with %q", low)
	}
	for _, reported := range []string{"bandwidth.limit_reached", "files.expiring"} {
		if got := told[reported]; len(got) != 1 || got[0] != traceparent {
			t.Errorf("%s is told with %q", reported, got)
		}
	}
}

// An event's TraceContext field takes precedence over the trace context of ctx, and is validated.
func TestTraceContext_EventField_TakesPrecedence(t *testing.T) {
	service := newClocked(t)
	event := webhooks.Event{Account: account, TraceContext: traceparent, Data: alerts.BalanceLow{Balance: 1, Threshold: 2}}
	if encoded, err := service.Encode(t.Context(), event); err != nil || encoded.TraceContext != traceparent || strings.Contains(string(encoded.Body), "4bf92") {
		t.Errorf("%+v, %v", encoded, err)
	}
	for _, wrong := range []string{strings.Repeat("x", 65), "a b", "é", "\x00"} {
		event.TraceContext = wrong
		wantInvalid(t, service.Publish(t.Context(), event), "traceContext")
	}
}

// Receivers get the traceparent only if this is configured and the traceparent is valid.
func TestTraceparent_SentOnlyIfConfigured(t *testing.T) {
	for name, test := range map[string]struct {
		send        bool
		trace, want string
	}{
		"not asked for":       {false, traceparent, ""},
		"asked for":           {true, traceparent, traceparent},
		"no trace":            {true, "", ""},
		"another form":        {true, "request-17", ""},
		"another version":     {true, "01" + traceparent[2:], ""},
		"upper case":          {true, strings.ToUpper(traceparent), ""},
		"no trace id":         {true, "00-00000000000000000000000000000000-00f067aa0ba902b7-01", ""},
		"no parent":           {true, "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", ""},
		"more behind it":      {true, traceparent + "-x", ""},
		"dashes out of place": {true, strings.Replace(traceparent, "-00f", "a-0f", 1), ""},
	} {
		t.Run(name, func(t *testing.T) {
			var got http.Header
			handler := func(_ http.ResponseWriter, r *http.Request) { got = r.Header }
			inBubble(t, webhooks.Config{Outbound: webhooks.Outbound{SendTraceparent: test.send}}, handler, func(b *bubble) {
				b.subscribe("a")
				stop := b.start()
				noError(t, b.service.Publish(b.Context(), webhooks.Event{Account: account, TraceContext: test.trace, Data: alerts.BalanceLow{Balance: 1, Threshold: 2}}))
				time.Sleep(time.Second)
				stop()
			})
			if got == nil || got.Get("traceparent") != test.want || len(got.Values("traceparent")) > 1 {
				t.Errorf("received %q", got)
			}
		})
	}
}
