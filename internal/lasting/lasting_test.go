package lasting_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/storageapi/storageapi/internal/lasting"
	"github.com/storageapi/storageapi/internal/testbubble"
)

type key struct{}

func TestContext_ClientClosesItsHalf_LastsUntilDeadline(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		served := context.WithValue(context.WithValue(t.Context(), key{}, "value"), http.ServerContextKey, &http.Server{})
		parent, leave := context.WithCancel(served)
		ctx, cancel := lasting.Context(parent)
		defer cancel()
		leave()
		if ctx.Err() != nil || ctx.Value(key{}) != "value" {
			t.Errorf("after the client closed its half: error %v, value %v; want none and the request's", ctx.Err(), ctx.Value(key{}))
		}

		parent, leave = context.WithCancel(t.Context())
		ctx, cancel = lasting.Context(parent)
		defer cancel()
		leave()
		if ctx.Err() == nil {
			t.Error("context without a server: still active after its cancellation")
		}

		parent, leave = context.WithTimeout(served, time.Minute)
		ctx, cancel = lasting.Context(parent)
		defer cancel()
		leave()
		synctest.Wait()
		if ctx.Err() != nil {
			t.Errorf("before the deadline: error %v, want none", ctx.Err())
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			t.Errorf("after the deadline: error %v, want %v", ctx.Err(), context.DeadlineExceeded)
		}
	})
}
