package hostcode_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/storageapi/storageapi/internal/hostcode"
	"github.com/storageapi/storageapi/internal/testbubble"
)

func TestDrained_ContextEnds_EndsAfterTimeoutAndGrace(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		over, cancel := hostcode.Drained(ctx, time.Minute)
		defer cancel()
		time.Sleep(time.Hour)
		begun := time.Now()
		stop()
		<-over.Done()
		if took := time.Since(begun); took != time.Minute+hostcode.Grace {
			t.Errorf("ended after %v, want %v", took, time.Minute+hostcode.Grace)
		}
	})
}

func TestGo_ReturnOrGoexit_ReportsWhich(t *testing.T) {
	if !<-hostcode.Go(func() {}) {
		t.Error("after a return: got false, want true")
	}
	if <-hostcode.Go(runtime.Goexit) {
		t.Error("after Goexit: got true, want false")
	}
}
