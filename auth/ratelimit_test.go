package auth_test

import (
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/testclock"
	"github.com/storageapi/storageapi/scopes"
)

// newLimited returns an Authenticator with that limit, and the clock it goes by.
func newLimited(t *testing.T, perSecond float64, burst int) (*auth.Authenticator, *testclock.Clock) {
	t.Helper()
	c := testclock.At(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	a, err := auth.New(allKeys, auth.Config{
		RateLimit: auth.RateLimit{PerSecond: perSecond, Burst: burst}, Logger: slog.New(slog.DiscardHandler), Now: c.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	return a, c
}

var nothing = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

func TestRateLimit(t *testing.T) {
	a, c := newLimited(t, 0.5, 3)
	type answer struct {
		Status                             int
		Limit, Remaining, Reset, RetryWait string
	}
	ask := func(handler http.Handler, token string) answer {
		response, _ := serve(t, handler, request(token))
		get := response.Header.Get
		return answer{response.StatusCode, get("X-RateLimit-Limit"), get("X-RateLimit-Remaining"), get("X-RateLimit-Reset"), get("Retry-After")}
	}
	handler := a.Handler(nothing)
	steps := []struct {
		after time.Duration
		want  answer
	}{
		{0, answer{200, "3", "2", "2", ""}},
		{0, answer{200, "3", "1", "4", ""}},
		{0, answer{200, "3", "0", "6", ""}},
		{0, answer{429, "3", "0", "6", "2"}},
		{0, answer{429, "3", "0", "6", "2"}}, // what is rejected does not count
		{time.Millisecond, answer{429, "3", "0", "6", "2"}},
		{998 * time.Millisecond, answer{429, "3", "0", "6", "2"}},
		{time.Millisecond, answer{429, "3", "0", "5", "1"}},
		{999 * time.Millisecond, answer{429, "3", "0", "5", "1"}},
		{time.Millisecond, answer{200, "3", "0", "6", ""}},
		{0, answer{429, "3", "0", "6", "2"}},
		{4500 * time.Millisecond, answer{200, "3", "1", "4", ""}},
		{time.Hour, answer{200, "3", "2", "2", ""}},
	}
	for i, step := range steps {
		c.Add(step.after)
		if diff := cmp.Diff(step.want, ask(handler, "reader")); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", i, diff)
		}
	}

	// Another key has its own; and all that is guarded counts, also what is
	// forbidden.
	if got := ask(a.Require(scopes.FilesRead, nothing), "writer"); got != (answer{403, "3", "2", "2", ""}) {
		t.Errorf("got %+v", got)
	}
	if got := ask(handler, "writer"); got != (answer{200, "3", "1", "4", ""}) {
		t.Errorf("got %+v", got)
	}

	// Without a live key nothing is told or counted.
	for _, token := range []string{"nobody", "broken"} {
		if got := ask(handler, token); got.Limit+got.Remaining+got.Reset+got.RetryWait != "" {
			t.Errorf("%s: got %+v", token, got)
		}
	}
}

func TestTooManyRequestsIsAnError(t *testing.T) {
	a, _ := newLimited(t, 0.1, 1)
	handler := a.Handler(nothing)
	serve(t, handler, request("reader"))
	response, body := serve(t, a.Require(scopes.FilesRead, unreachable(t)), request("reader"))
	const want = `{"error":{"code":"RATE_LIMIT_EXCEEDED","message":"This API key has made too many requests. Retry in 10 s."}}`
	if response.StatusCode != http.StatusTooManyRequests || body != want {
		t.Errorf("got %d %s, want 429 %s", response.StatusCode, body, want)
	}
}

func TestNoRateLimitTellsNothing(t *testing.T) {
	a, _ := newAuthenticator(t)
	for range 1000 {
		response, _ := serve(t, a.Handler(nothing), request("reader"))
		if response.StatusCode != 200 || len(response.Header) > 0 {
			t.Fatalf("got %d %v", response.StatusCode, response.Header)
		}
	}
}

// However requests are spread, in no span of time are there more than the burst and
// what returns in the meantime; and a client that keeps to it is never rejected.
func TestRateHolds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		perSecond, burst := 0.01+100*random.Float64(), 1+random.IntN(20)
		a, c := newLimited(t, perSecond, burst)
		handler := a.Handler(nothing)
		interval := time.Duration(float64(time.Second) / perSecond)
		var admitted []time.Time
		for range 500 {
			c.Add(time.Duration(random.ExpFloat64() * float64(interval) * []float64{0, 0.3, 1, 5}[random.IntN(4)]))
			if response, _ := serve(t, handler, request("reader")); response.StatusCode == 200 {
				admitted = append(admitted, c.Now())
			}
		}
		for i, from := range admitted {
			for j, to := range admitted[i:] {
				if most := burst + int(to.Sub(from)/interval); j+1 > most {
					t.Fatalf("%v a second, burst %d: %d requests in %v", perSecond, burst, j+1, to.Sub(from))
				}
			}
		}
		for range 200 {
			c.Add(interval + 1)
			if response, _ := serve(t, handler, request("writer")); response.StatusCode != 200 {
				t.Fatalf("%v a second, burst %d: a client that keeps to it is answered %d", perSecond, burst, response.StatusCode)
			}
		}
	}
}

func TestRateLimitAtOnce(t *testing.T) {
	a, _ := newLimited(t, 1, 50)
	handler := a.Handler(nothing)
	var admitted atomic.Int32
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for range 20 {
				if response, _ := serve(t, handler, request("reader")); response.StatusCode == 200 {
					admitted.Add(1)
				}
			}
		})
	}
	clients.Wait()
	if admitted.Load() != 50 {
		t.Errorf("%d were admitted, want 50", admitted.Load())
	}
}

// A clock that is set back rejects no request for longer than a burst takes.
func TestRateLimitAfterClockWasSetBack(t *testing.T) {
	a, c := newLimited(t, 1, 2)
	handler := a.Handler(nothing)
	for range 3 {
		serve(t, handler, request("reader"))
	}
	c.Add(-time.Hour)
	response, _ := serve(t, handler, request("reader"))
	if response.StatusCode != 429 || response.Header.Get("Retry-After") != "1" || response.Header.Get("X-RateLimit-Reset") != "2" {
		t.Errorf("got %d %v", response.StatusCode, response.Header)
	}
	c.Add(time.Second)
	if response, _ := serve(t, handler, request("reader")); response.StatusCode != 200 {
		t.Errorf("got %d", response.StatusCode)
	}
}
