package storageapitest

import (
	"net/http"
	"strconv"
	"time"
)

// A Behavior is how a receiver responds to requests, for a limited or unlimited time.
type Behavior struct {
	down  bool         // connections are refused
	serve http.Handler // nil means the default behavior, see OK

	period time.Duration // 0 means unlimited
	times  int           // 0 means unlimited
}

// OK returns the default behavior: 200, or 401 if the signature is not valid.
func OK() Behavior { return Behavior{} }

// Status answers each request with code. 500 is retried, 410 disables the webhook.
func Status(code int) Behavior {
	return Handle(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }))
}

// RetryAfter answers 503 with a Retry-After header of d in whole seconds, rounded down.
func RetryAfter(d time.Duration) Behavior {
	return Handle(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", strconv.Itoa(int(d/time.Second)))
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
}

// Slow answers 200 after d. If d exceeds Config.Outbound.Timeout of package webhooks, 15 seconds by
// default, the attempt times out.
func Slow(d time.Duration) Behavior {
	return Handle(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
	}))
}

// Reset reads each request and closes its connection without a response.
func Reset() Behavior {
	return Handle(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
}

// Down refuses connections.
func Down() Behavior { return Behavior{down: true} }

// Handle passes correctly signed requests to handler, which may read the body. All other requests
// are answered 401.
func Handle(handler http.Handler) Behavior { return Behavior{serve: handler} }

// For ends the behavior d after its start. It starts when the previous behavior ends, or with the
// next request if Times ended the previous behavior.
func (b Behavior) For(d time.Duration) Behavior {
	b.period = d
	return b
}

// Times ends the behavior after n requests or refused connections.
func (b Behavior) Times(n int) Behavior {
	b.times = n
	return b
}

// A script is a sequence of behaviors of a receiver.
type script struct {
	steps []Behavior
	since time.Time // start of the first step
	used  int       // requests counted towards the first step's times
}

// next returns the behavior for a request at the given time.
func (s *script) next(now time.Time) Behavior {
	for len(s.steps) > 0 {
		step := s.steps[0]
		switch end := s.since.Add(step.period); {
		case step.period > 0 && !now.Before(end):
			s.end(end)
		case step.times > 0 && s.used == step.times:
			s.end(now)
		default:
			s.used++
			return step
		}
	}
	return OK()
}

// end moves on to the next step.
func (s *script) end(at time.Time) { s.steps, s.since, s.used = s.steps[1:], at, 0 }
