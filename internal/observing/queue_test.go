package observing_test

import (
	"bytes"
	"context"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/storageapi/storageapi/internal/observing"
	"github.com/storageapi/storageapi/internal/testbubble"
)

// A log collects log output, and is safe for concurrent use.
type log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *log) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

func (l *log) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func TestQueue_CallsPanicAndExit_MakesAllCallsInOrder(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		log, made := new(log), ""
		q := observing.NewQueue(log.logger(), nil)
		for range 3 {
			q.Add(func() { made += "a" })
			q.Add(func() { made += "b"; panic("SENTINEL") })
			q.Add(func() { made += "c"; runtime.Goexit() })
			q.Add(func() { made += "d" })
			q.Drain(t.Context())
			made += "."
		}
		if made != "abcd.abcd.abcd." {
			t.Errorf("calls = %q, want abcd three times", made)
		}
		if log.count("panicked") != 3 || log.count("ended its goroutine") != 3 || log.count("SENTINEL") != 0 {
			t.Errorf("got log %s\nwant three panics and three ended goroutines, without values", &log.b)
		}
	}) // the bubble fails if a goroutine is left
}

// Dropped calls are counted, logged once a minute, and reported to lost before the next call.
func TestQueue_CallDoesNotReturn_DropsCallsAboveLimit(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		log, lost, made := new(log), []int(nil), 0
		q := observing.NewQueue(log.logger(), func(n int) { lost = append(lost, n) })
		end := make(chan struct{})
		q.Add(func() { <-end })
		synctest.Wait()
		const waiting, more = 8192, 1000
		for i := range waiting + more {
			q.Add(func() { made++ })
			if i == waiting+more/2 {
				time.Sleep(time.Minute)
			}
		}
		close(end)
		q.Drain(t.Context())
		if made != waiting || len(lost) != 1 || lost[0] != more {
			t.Errorf("%d calls made, lost called with %v; want %d, [%d]", made, lost, waiting, more)
		}
		if log.count("too slow") != 2 {
			t.Errorf("got log %s\nwant two warnings", &log.b)
		}
	})
}

func TestDrain_ContextEnds_DropsQueuedCalls(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		log, made, lost := new(log), "", 0
		q := observing.NewQueue(log.logger(), func(n int) { lost += n })
		end := make(chan struct{})
		q.Add(func() { made += "a"; <-end })
		q.Add(func() { made += "b" })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begun := time.Now()
		q.Drain(ctx)
		if took := time.Since(begun); took != time.Minute || log.count("has not returned") != 1 {
			t.Errorf("drained in %v with log %s\nwant 1m and one error", took, &log.b)
		}
		close(end)
		q.Add(func() { made += "c" })
		q.Close()
		if made != "ac" || lost != 1 {
			t.Errorf("calls = %q, lost %d; want ac, 1", made, lost)
		}
	})
}

func TestQueue_AlwaysOneCallBehind_DoesNotGrow(t *testing.T) {
	q := observing.NewQueue(slog.New(slog.DiscardHandler), nil)
	turn := make(chan struct{})
	await := func() { <-turn }
	q.Add(await)
	step := func() { q.Add(await); turn <- struct{}{} }
	for range 50_000 {
		step()
	}
	if allocated := testing.AllocsPerRun(20_000, step); allocated > 0 {
		t.Errorf("%v allocations per call, want 0", allocated)
	}
	turn <- struct{}{}
	q.Close()
}
