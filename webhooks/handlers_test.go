package webhooks_test

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// status returns a handler that responds with only a status.
func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// body returns a handler that answers with the text.
func body(code int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, text)
	}
}

// failing returns a handler that fails the given number of times and then succeeds.
func failing(times int) http.HandlerFunc {
	var requests atomic.Int64
	return func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) <= int64(times) {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}
}

// sleeping returns a handler that responds after d, or when the request is canceled.
func sleeping(d time.Duration) http.HandlerFunc { return sleepingThen(d, http.StatusOK) }

// sleepingThen is like sleeping, but responds with the given status.
func sleepingThen(d time.Duration, code int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(d):
			w.WriteHeader(code)
		case <-r.Context().Done():
		}
	}
}

// An outage is a receiver that fails until a test ends the outage.
type outage struct {
	over  atomic.Bool
	hangs bool          // no response at all until the outage is over
	takes time.Duration // time to answer
	gauge *gauge
}

func newOutage() *outage { return &outage{gauge: newGauge(), takes: roundTrip / 2} }

func (o *outage) handle(w http.ResponseWriter, r *http.Request) {
	defer o.gauge.enter(r.Host)()
	time.Sleep(o.takes)
	switch {
	case o.over.Load():
	case o.hangs:
		<-r.Context().Done()
	default:
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// hangers is a handler that responds at once. While hang is set, it leaves requests for hosts whose
// names begin with "slow" unanswered.
type hangers struct {
	hang  atomic.Bool
	gauge *gauge
}

func newHangers() *hangers { return &hangers{gauge: newGauge()} }

func (h *hangers) handle(w http.ResponseWriter, r *http.Request) {
	if h.hang.Load() && strings.HasPrefix(r.Host, "slow") {
		defer h.gauge.enter("slow")()
		<-r.Context().Done()
	}
}

// A gauge counts the requests in flight.
type gauge struct {
	mu        sync.Mutex
	now, most map[string]int // by host; "" counts all hosts
}

func newGauge() *gauge { return &gauge{now: make(map[string]int), most: make(map[string]int)} }

// enter counts a request until leave is called.
func (g *gauge) enter(host string) (leave func()) {
	g.count(host, 1)
	return func() { g.count(host, -1) }
}

func (g *gauge) count(host string, change int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, key := range []string{host, ""} {
		g.now[key] += change
		g.most[key] = max(g.most[key], g.now[key])
	}
}

// current returns the number of requests to the host that are in flight.
func (g *gauge) current(host string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.now[host]
}

// peak returns the maximum number of concurrent requests to the host.
func (g *gauge) peak(host string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.most[host]
}
