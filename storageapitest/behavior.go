package storageapitest

import (
	"net/http"
	"strconv"
	"time"
)

// A Behavior is how a receiver takes requests, for a while or for ever.
type Behavior struct {
	down  bool         // connections are refused
	serve http.Handler // nil: as if there was no script

	period time.Duration // 0: for ever
	times  int           // 0: any number
}

// OK is how a receiver behaves without a script: 200, or 401 if a signature is not valid.
func OK() Behavior { return Behavior{} }

// Status answers each request with a status: 500 is tried again, 410 turns the webhook off.
func Status(code int) Behavior {
	return Handle(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }))
}

// RetryAfter answers 503 with a Retry-After header of so many whole seconds.
func RetryAfter(d time.Duration) Behavior {
	return Handle(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", strconv.Itoa(int(d/time.Second)))
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
}

// Slow answers 200 after d. Longer than Config.Outbound.Timeout of package webhooks, by default 15
// seconds, no answer comes in time.
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

// Reset takes each request, and breaks its connection without a response.
func Reset() Behavior {
	return Handle(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
}

// Down refuses connections.
func Down() Behavior { return Behavior{down: true} }

// Handle leaves what is signed as it should be to a handler, which may read the body. What
// is not is answered 401.
func Handle(handler http.Handler) Behavior { return Behavior{serve: handler} }

// For ends the behavior after d, from when it began: when the one before it ended, or with
// the first request after that if it was ended by Times.
func (b Behavior) For(d time.Duration) Behavior {
	b.period = d
	return b
}

// Times ends the behavior after n requests, or connections that were refused.
func (b Behavior) Times(n int) Behavior {
	b.times = n
	return b
}

// A script is what a receiver does, one behavior after the other.
type script struct {
	steps []Behavior
	since time.Time // of the first step
	used  int       // of its times
}

// next returns the behavior for a request that comes now.
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

// end goes on to the next step.
func (s *script) end(at time.Time) { s.steps, s.since, s.used = s.steps[1:], at, 0 }
