package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// maxUnanswered is the maximum number of concurrent calls to Publish. It limits the memory used
// during a long stall. Waiting for a call to return counts as delay of the event.
const maxUnanswered = 50_000

// stage publishes at one rate, waits for the acknowledged events, and prints the figures.
func (h *host) stage(ctx context.Context, out io.Writer, rate int) error {
	total := int(float64(rate) * h.duration.Seconds())
	fmt.Fprintf(out, "\n%d events/s for %v, %d webhooks on %d hosts, %d bytes\n", rate, h.duration, h.webhooks, h.hosts, h.body)
	number := h.ledger.open(total)
	before := h.usage()
	began := time.Now()

	var unanswered sync.WaitGroup
	slots := make(chan struct{}, maxUnanswered)
	atRate(ctx, float64(rate), func(i int, due time.Time) bool {
		if i == total || h.ledger.over() != nil {
			return false
		}
		slots <- struct{}{}
		unanswered.Go(func() {
			begun := time.Now()
			err := h.api.Webhooks.Publish(context.WithoutCancel(ctx), h.event(number+i))
			h.ledger.published(number+i, due, begun, err)
			<-slots
		})
		return true
	})
	unanswered.Wait()
	took := time.Since(began)
	t, events := h.ledger.await(h.patience, h.recorded)
	used := h.usage().since(before)

	fmt.Fprintf(out, "%-9s%10s%10s%10s%10s%10s\n", "ms", "p50", "p90", "p99", "p99.9", "max")
	printPercentiles(out, "begun", events, func(e *event) time.Time { return e.begun })
	printPercentiles(out, "publish", events, func(e *event) time.Time { return e.acknowledged })
	printPercentiles(out, "arrival", events, func(e *event) time.Time { return e.arrived })
	fmt.Fprintf(out, "held %.0f events/s: %d acknowledged, %d failed, %d arrived, %d missing, %d more than once\n",
		float64(t.acknowledged)/took.Seconds(), t.acknowledged, t.failed, t.arrived, t.missing, t.repeated)
	fmt.Fprintf(out, "a delivery: %s\n", used.each(t.arrived))
	return h.ledger.check(t, events)
}

// atRate calls do with 0, 1, … and their due times, rate times per second, until do returns false
// or ctx ends. It makes overdue calls immediately.
func atRate(ctx context.Context, rate float64, do func(i int, due time.Time) bool) {
	began := time.Now()
	for i := 0; ctx.Err() == nil; i++ {
		due := began.Add(time.Duration(float64(i) / rate * float64(time.Second)))
		if wait := time.Until(due); wait > 0 {
			pause(ctx, wait)
			if ctx.Err() != nil {
				return
			}
		}
		if !do(i, due) {
			return
		}
	}
}

// printPercentiles prints percentiles of the delays from the due times of events.
func printPercentiles(out io.Writer, name string, events []event, when func(*event) time.Time) {
	var took []time.Duration
	for i := range events {
		if at := when(&events[i]); !at.IsZero() {
			took = append(took, at.Sub(events[i].due))
		}
	}
	if len(took) == 0 {
		return
	}
	slices.Sort(took)
	fmt.Fprintf(out, "%-9s", name)
	for _, part := range []float64{0.5, 0.9, 0.99, 0.999, 1} {
		fmt.Fprintf(out, "%10.3f", took[int(part*float64(len(took)-1))].Seconds()*1000)
	}
	fmt.Fprintln(out)
}
