package hostcode_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/webhooks/internal/hostcode"
)

// Drained ends as long after its context as attempts may take, and Grace.
func TestDrained(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		over, cancel := hostcode.Drained(ctx, time.Minute)
		defer cancel()
		time.Sleep(time.Hour)
		begun := time.Now()
		stop()
		<-over.Done()
		if took := time.Since(begun); took != time.Minute+hostcode.Grace {
			t.Errorf("over after %v", took)
		}
	})
}

// Go tells a function that returns from one that ends its goroutine.
func TestGo(t *testing.T) {
	if !<-hostcode.Go(func() {}) || <-hostcode.Go(runtime.Goexit) {
		t.Error("it does not tell which")
	}
}
