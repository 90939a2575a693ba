package storageapi

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/storageapi/storageapi/webhooks"
)

// A Health tells how a [Handler] does.
type Health struct {
	webhooks.Health

	// ClosedAt is when [Handler.Close] was called. Zero: it was not.
	ClosedAt time.Time
}

// Health tells how the Handler does, at any time: also before Run and after Close. It writes
// nothing and returns within a second, whatever the store does; see
// [webhooks.WebhookService.Health] for what it costs. Its WriteError is also that of
// [apikeys.KeyService.WriteError], whose end is found out within some minute. What follows from it is for
// [HealthThresholds.Judge].
func (h *Handler) Health(ctx context.Context) Health {
	health := Health{Health: h.Webhooks.Health(ctx)}
	if at := h.closedAt.Load(); at != nil {
		health.ClosedAt = *at
	}
	if health.WriteError == nil {
		health.WriteError = h.Keys.WriteError()
	}
	return health
}

// HealthThresholds say from when on a [Health] is a bad one. The zero value has the
// defaults.
type HealthThresholds struct {
	// Down is for how long Run may not be under way, at the start of a process and at its end,
	// before a restart is asked for: longer than both take. Default: a minute.
	Down time.Duration

	// Stuck is how long the loop that begins attempts may not go round; it does at least
	// every half minute, so less than 45 s count as that. Default: a minute.
	Stuck time.Duration

	// OldestDue is for how long a webhook whose receiver is up may wait while no attempt
	// begins at all. More than most attempts take. Default: 5 minutes.
	OldestDue time.Duration

	// NoRun is set in a process that serves requests and leaves it to others to deliver: it
	// never calls Run, and is not judged by it. Default: Run must be under way.
	NoRun bool
}

// A HealthProblem is something that is wrong, as probes are answered with it.
type HealthProblem string

// The problems, and what they make of a process. While it is not ready no requests should be
// sent to it; if it is not live a restart may help.
const (
	ProblemNotRunning  HealthProblem = "run_not_under_way"  // Run was never called, or has ended: not ready, and not live if that lasts.
	ProblemDraining    HealthProblem = "draining"           // Run is about to end: not ready.
	ProblemClosed      HealthProblem = "closed"             // Close was called: not ready, and not live if that lasts.
	ProblemStuck       HealthProblem = "dispatcher_stuck"   // The loop that begins attempts does not go round: not live.
	ProblemNoProgress  HealthProblem = "no_progress"        // Deliveries wait, and no attempt begins: not live.
	ProblemUnreadable  HealthProblem = "store_unreachable"  // The store does not answer: not ready.
	ProblemUnwritable  HealthProblem = "store_not_writable" // Claims or writes fail, on a full disk say: not ready.
	ProblemStoreHalted HealthProblem = "store_halted"       // A sync failed: the store writes nothing until it is opened again: not live.
)

// A HealthVerdict is what follows from a [Health]. What is not live is not ready either.
type HealthVerdict struct {
	Ready    bool            `json:"ready"`    // requests may be sent to this process
	Live     bool            `json:"live"`     // a restart would not help
	Problems []HealthProblem `json:"problems"` // not nil
}

// Judge returns what follows from the health now. Receivers that are down, and what is
// pending for them, are no problem.
func (t HealthThresholds) Judge(h Health) HealthVerdict {
	down := cmp.Or(t.Down, time.Minute)
	stuck := max(cmp.Or(t.Stuck, time.Minute), 45*time.Second)
	oldest := cmp.Or(t.OldestDue, 5*time.Minute)

	v := HealthVerdict{Ready: true, Live: true, Problems: []HealthProblem{}}
	add := func(p HealthProblem, live bool) {
		v.Ready, v.Live, v.Problems = false, v.Live && live, append(v.Problems, p)
	}
	closed := !h.ClosedAt.IsZero()
	switch {
	case closed:
		add(ProblemClosed, h.Run == webhooks.RunDraining || time.Since(h.ClosedAt) < down)
	case t.NoRun:
	case h.Run == webhooks.RunDraining:
		add(ProblemDraining, true)
	case h.Run != webhooks.RunUnderWay:
		add(ProblemNotRunning, time.Since(h.RunSince) < down)
	case time.Since(later(h.LastRound, h.RunSince)) > stuck:
		add(ProblemStuck, false)
	case h.OldestDue > oldest && time.Since(later(h.LastAttempt, h.RunSince)) > oldest && h.WriteError == nil:
		add(ProblemNoProgress, false)
	}
	switch {
	case h.Halted != nil:
		add(ProblemStoreHalted, false)
	case closed: // it may have closed the store
	case h.ReadError != nil:
		add(ProblemUnreadable, true)
	case h.WriteError != nil:
		add(ProblemUnwritable, true)
	}
	return v
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// HealthHandler answers probes of readiness: 200 while requests may be sent to this process,
// else 503. The answer is one JSON object, such as
//
//	{"ready":false,"live":true,"problems":["store_not_writable"],"run":"running","runSince":"…","lastClaim":"…","lastAttempt":null,"oldestDueSeconds":0}
//
// It has no secret, nothing of single accounts, and no text of an error, which may name the
// store's host or file: that is in [Handler.Health], and was logged. Any number of probes a
// second have the store asked once a second.
func (h *Handler) HealthHandler(t HealthThresholds) http.Handler {
	return h.probe(t, func(v HealthVerdict) bool { return v.Ready })
}

// LivenessHandler is HealthHandler for probes of liveness: 503 only if a restart may help.
func (h *Handler) LivenessHandler(t HealthThresholds) http.Handler {
	return h.probe(t, func(v HealthVerdict) bool { return v.Live })
}

func (h *Handler) probe(t HealthThresholds, good func(HealthVerdict) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		health := h.Health(r.Context())
		verdict := t.Judge(health)
		status := http.StatusOK
		if !good(verdict) {
			status = http.StatusServiceUnavailable
		}
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(struct { // the client may be gone
			HealthVerdict
			Run         webhooks.RunState `json:"run"`
			RunSince    *time.Time        `json:"runSince"`
			LastClaim   *time.Time        `json:"lastClaim"`
			LastAttempt *time.Time        `json:"lastAttempt"`
			OldestDue   float64           `json:"oldestDueSeconds"`
		}{verdict, health.Run, shown(health.RunSince), shown(health.LastClaim), shown(health.LastAttempt), health.OldestDue.Seconds()})
	})
}

// shown returns a time as the API shows it, or nil.
func shown(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC().Truncate(time.Millisecond)
	return &t
}
