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

// newLimited returns an Authenticator with this rate limit, and its clock.
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
	type result struct {
		Status                             int
		Limit, Remaining, Reset, RetryWait string
	}
	ask := func(handler http.Handler, token string) result {
		response, _ := serve(t, handler, request(token))
		get := response.Header.Get
		return result{response.StatusCode, get("X-RateLimit-Limit"), get("X-RateLimit-Remaining"), get("X-RateLimit-Reset"), get("Retry-After")}
	}
	handler := a.Handler(nothing)
	steps := []struct {
		after time.Duration
		want  result
	}{
		{0, result{200, "3", "2", "2", ""}},
		{0, result{200, "3", "1", "4", ""}},
		{0, result{200, "3", "0", "6", ""}},
		{0, result{429, "3", "0", "6", "2"}},
		{0, result{429, "3", "0", "6", "2"}}, // rejected requests do not count
		{time.Millisecond, result{429, "3", "0", "6", "2"}},
		{998 * time.Millisecond, result{429, "3", "0", "6", "2"}},
		{time.Millisecond, result{429, "3", "0", "5", "1"}},
		{999 * time.Millisecond, result{429, "3", "0", "5", "1"}},
		{time.Millisecond, result{200, "3", "0", "6", ""}},
		{0, result{429, "3", "0", "6", "2"}},
		{4500 * time.Millisecond, result{200, "3", "1", "4", ""}},
		{time.Hour, result{200, "3", "2", "2", ""}},
	}
	for i, step := range steps {
		c.Add(step.after)
		if diff := cmp.Diff(step.want, ask(handler, "reader")); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", i, diff)
		}
	}

	// Another key has a separate limit. Forbidden requests count as well.
	if got := ask(a.Require(scopes.FilesRead, nothing), "writer"); got != (result{403, "3", "2", "2", ""}) {
		t.Errorf("forbidden request: %+v, want 403 that is counted", got)
	}
	if got := ask(handler, "writer"); got != (result{200, "3", "1", "4", ""}) {
		t.Errorf("next request: %+v, want 200 with one request remaining", got)
	}

	// Without a valid key the response has no quota headers, and no request is counted.
	for _, token := range []string{"nobody", "broken"} {
		if got := ask(handler, token); got.Limit+got.Remaining+got.Reset+got.RetryWait != "" {
			t.Errorf("%s: %+v, want no rate limit headers", token, got)
		}
	}
}

func TestRateLimit_Exceeded_AnswersWithErrorBody(t *testing.T) {
	a, _ := newLimited(t, 0.1, 1)
	handler := a.Handler(nothing)
	serve(t, handler, request("reader"))
	response, body := serve(t, a.Require(scopes.FilesRead, unreachable(t)), request("reader"))
	const want = `{"error":{"code":"RATE_LIMIT_EXCEEDED","message":"This API key has made too many requests. Retry in 10 s."}}`
	if response.StatusCode != http.StatusTooManyRequests || body != want {
		t.Errorf("got %d %s, want 429 %s", response.StatusCode, body, want)
	}
}

func TestHandler_WithoutRateLimit_SetsNoHeaders(t *testing.T) {
	a, _ := newAuthenticator(t)
	for range 1000 {
		response, _ := serve(t, a.Handler(nothing), request("reader"))
		if response.StatusCode != 200 || len(response.Header) > 0 {
			t.Fatalf("status = %d, headers = %v; want 200 without headers", response.StatusCode, response.Header)
		}
	}
}

// In no time span may more requests be admitted than the burst plus the tokens returned in that
// span. A client that stays below the rate must never be rejected.
func TestRateLimit_RandomRequests_EnforcesRate(t *testing.T) {
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
					t.Fatalf("%v per second, burst %d: %d requests in %v", perSecond, burst, j+1, to.Sub(from))
				}
			}
		}
		for range 200 {
			c.Add(interval + 1)
			if response, _ := serve(t, handler, request("writer")); response.StatusCode != 200 {
				t.Fatalf("%v per second, burst %d: client below the rate got %d", perSecond, burst, response.StatusCode)
			}
		}
	}
}

func TestRateLimit_ConcurrentRequests_AdmitsBurst(t *testing.T) {
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
		t.Errorf("%d requests admitted, want 50", admitted.Load())
	}
}

// Retry-After must not exceed the time in which a full burst returns.
func TestRateLimit_ClockSetBack_BoundsWait(t *testing.T) {
	a, c := newLimited(t, 1, 2)
	handler := a.Handler(nothing)
	for range 3 {
		serve(t, handler, request("reader"))
	}
	c.Add(-time.Hour)
	response, _ := serve(t, handler, request("reader"))
	if response.StatusCode != 429 || response.Header.Get("Retry-After") != "1" || response.Header.Get("X-RateLimit-Reset") != "2" {
		t.Errorf("status = %d, headers = %v; want 429, Retry-After 1, X-RateLimit-Reset 2", response.StatusCode, response.Header)
	}
	c.Add(time.Second)
	if response, _ := serve(t, handler, request("reader")); response.StatusCode != 200 {
		t.Errorf("got %d, want 200", response.StatusCode)
	}
}
