package auth

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/storageapi/storageapi/observe"
)

// served returns a request like those that net/http's server makes.
func served() *http.Request {
	ctx := context.WithValue(context.Background(), http.ServerContextKey, &http.Server{})
	ctx = context.WithValue(ctx, http.LocalAddrContextKey, "")
	ctx = context.WithValue(ctx, callerKey{}, nil)
	return httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx)
}

func TestOutcome_WithoutObserver_DoesNotAllocate(t *testing.T) {
	a, r := new(Authenticator), served()
	if allocated := testing.AllocsPerRun(1000, func() { unobserved(a, r) }); allocated > 0 {
		t.Errorf("%v allocations, want 0", allocated)
	}
}

func unobserved(a *Authenticator, r *http.Request) {
	v := a.verdict(r)
	v.setOutcome(observe.Limited)
	a.report(r, v)
}

// The benchmark "floor" is an empty loop, for comparison.
func BenchmarkNoObserver(b *testing.B) {
	a, r := new(Authenticator), served()
	b.Run("authenticated", func(b *testing.B) {
		for b.Loop() {
			v := a.verdict(r)
			v.setOutcome(observe.Limited)
			a.report(r, v)
		}
	})
	b.Run("floor", func(b *testing.B) {
		for b.Loop() {
		}
	})
}
