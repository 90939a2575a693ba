package auth

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/storageapi/storageapi/observe"
)

// served returns a request as net/http's server makes it.
func served() *http.Request {
	ctx := context.WithValue(context.Background(), http.ServerContextKey, &http.Server{})
	ctx = context.WithValue(ctx, http.LocalAddrContextKey, "")
	ctx = context.WithValue(ctx, callerKey{}, nil)
	return httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx)
}

// Without an Observer the guard does nothing for one.
func TestNoObserverCostsNothing(t *testing.T) {
	a, r := new(Authenticator), served()
	if allocated := testing.AllocsPerRun(1000, func() { unobserved(a, r) }); allocated > 0 {
		t.Errorf("%v allocations", allocated)
	}
}

func unobserved(a *Authenticator, r *http.Request) {
	v := a.verdict(r)
	v.become(observe.Limited)
	a.tell(r, v)
}

// The floor is a loop that does nothing.
func BenchmarkNoObserver(b *testing.B) {
	a, r := new(Authenticator), served()
	b.Run("authenticated", func(b *testing.B) {
		for b.Loop() {
			v := a.verdict(r)
			v.become(observe.Limited)
			a.tell(r, v)
		}
	})
	b.Run("floor", func(b *testing.B) {
		for b.Loop() {
		}
	})
}
