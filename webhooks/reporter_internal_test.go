package webhooks

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/observe"
	"github.com/storageapi/storageapi/store/driver"
)

// unobserved holds the reporter's functions that do nothing without an Observer, by name.
var unobserved = map[string]func(*reporter){
	"published": func(r *reporter) { r.published(ctx, observe.Publication{}) },
	"claimed":   func(r *reporter) { r.claimed(began(r.observer.Claimed != nil), 1, 1, nil) },
	"attempted": func(r *reporter) { r.attempted(&arrived) },
	"settled":   func(r *reporter) { r.called(began(r.observer.Settled != nil), 1, 0, nil) },
	"changed":   func(r *reporter) { r.Changed(&entry) },
}

var (
	ctx     = context.Background()
	arrived = settlement{Effect: driver.Deliver, Attempt: Attempt{StartedAt: time.Now()}, Task: task{Webhook: &Webhook{URL: "https://example.com"}}}
	entry   = audit.Entry{ID: "aud_1"}
)

// Without an Observer these functions cost nothing.
func TestNoObserverCostsNothing(t *testing.T) {
	r := newReporter(nil, Config{})
	for name, tell := range unobserved {
		if allocated := testing.AllocsPerRun(1000, func() { tell(r) }); allocated > 0 {
			t.Errorf("%s: %v allocations", name, allocated)
		}
	}
}

// The log line must omit the status if there was no response, and the wait if there is no next
// attempt.
func TestLogAttempt_LastAttemptWithoutResponse_OmitsStatusAndRetryAfter(t *testing.T) {
	var out bytes.Buffer
	r := newReporter(nil, Config{Logger: slog.New(slog.NewTextHandler(&out, nil))})
	lost := arrived
	lost.Effect, lost.Attempt.Error = driver.GiveUp, "timed out"
	r.logAttempt(&lost)
	line := out.String()
	if !strings.Contains(line, `error="timed out"`) || strings.Contains(line, "status=") || strings.Contains(line, "retry_after=") {
		t.Errorf("got %s", line)
	}
	out.Reset()
	lost.Attempt.Status, lost.RetryAfter = 503, time.Minute
	r.logAttempt(&lost)
	if line := out.String(); !strings.Contains(line, "status=503") || !strings.Contains(line, "retry_after=1m0s") {
		t.Errorf("got %s", line)
	}
}

// BenchmarkNoObserver calls the functions directly, as the service does: a call through a variable
// would take as long as everything else. For comparison, the floor is an empty loop.
func BenchmarkNoObserver(b *testing.B) {
	r := newReporter(nil, Config{})
	b.Run("published", func(b *testing.B) {
		for b.Loop() {
			r.published(ctx, observe.Publication{})
		}
	})
	b.Run("claimed", func(b *testing.B) {
		for b.Loop() {
			r.claimed(began(r.observer.Claimed != nil), 1, 1, nil)
		}
	})
	b.Run("attempted", func(b *testing.B) {
		for b.Loop() {
			r.attempted(&arrived)
		}
	})
	b.Run("settled", func(b *testing.B) {
		for b.Loop() {
			r.called(began(r.observer.Settled != nil), 1, 0, nil)
		}
	})
	b.Run("changed", func(b *testing.B) {
		for b.Loop() {
			r.Changed(&entry)
		}
	})
	b.Run("floor", func(b *testing.B) {
		for b.Loop() {
		}
	})
}
