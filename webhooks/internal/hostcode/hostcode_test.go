package hostcode_test

import (
	"context"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/webhooks/internal/hostcode"
)

// A hook that panics, ends its goroutine or never returns keeps only itself.
func TestCaller(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		var log strings.Builder
		caller := hostcode.NewCaller(slog.New(slog.NewTextHandler(&log, nil)))
		ctx, stop := context.WithCancel(t.Context())
		over, cancel := hostcode.Drained(ctx, time.Minute)
		defer cancel()
		made := ""
		hang := make(chan struct{})
		defer close(hang)
		begun := time.Now()
		stop()
		caller.Call(over, []hostcode.Call{
			{Name: "A", Func: func() { made += "a" }},
			{Name: "B", Func: func() { made += "b"; panic("secret") }},
			{Name: "C", Func: func() { made += "c"; runtime.Goexit() }},
			{Name: "D", Func: func() { made += "d"; <-hang }},
			{Name: "E", Func: func() { made += "e" }},
		})
		took := time.Since(begun)
		synctest.Wait()
		if made != "abcd" || took != time.Minute+hostcode.Grace {
			t.Errorf("called %q within %v", made, took)
		}
		caller.Call(over, []hostcode.Call{{Name: "F", Func: func() { made += "f" }}})
		for _, want := range []string{"panicked\" hook=B", "ended its goroutine\" hook=C", "does not return"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("no line says %s", want)
			}
		}
		if made != "abcd" || strings.Contains(log.String(), "secret") {
			t.Errorf("called %q; logged:\n%s", made, log.String())
		}
	})
}
