package storageapi

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/storageapi/storageapi/webhooks"
)

// A Health is the state of a [Handler].
type Health struct {
	webhooks.Health

	// ClosedAt is when [Handler.Close] was called, or zero if it was not.
	ClosedAt time.Time
}

// Health returns the state of the Handler. It can be called at any time, including before Run and
// after Close. It writes nothing and returns within a second even if the store hangs; see
// [webhooks.WebhookService.Health] for its cost. If the webhook service has no WriteError, the
// result has the key service's, see [apikeys.KeyService.WriteError]; that error clears within about
// a minute of recovery. [HealthThresholds.Judge] evaluates the result.
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

// HealthThresholds are the limits beyond which [HealthThresholds.Judge] reports a problem. The
// zero value has the defaults.
type HealthThresholds struct {
	// Down is how long the process may be without a running Run, as during startup and shutdown,
	// before it counts as not live. Set it longer than startup and shutdown take. Default: a
	// minute.
	Down time.Duration

	// Stuck is how long one round of the dispatch loop may take. The loop completes a round at
	// least every half minute, so values below 45 s count as 45 s. Default: a minute.
	Stuck time.Duration

	// OldestDue is how long a delivery to a working receiver may be due while the process begins no
	// attempt at all. Set it longer than most attempts take. Default: 5 minutes.
	OldestDue time.Duration

	// NoRun is for a process that serves requests but never calls Run, because other processes
	// deliver. If set, Judge ignores whether Run is running. Default: Run must be running.
	NoRun bool
}

// A HealthProblem is the code of a problem, as probes report it.
type HealthProblem string

// Health problems. A process that is not ready should receive no requests. Restarting a process
// that is not live may help.
const (
	ProblemNotRunning  HealthProblem = "run_not_under_way"  // Run was never called, or has ended: not ready, and not live beyond Down.
	ProblemDraining    HealthProblem = "draining"           // Run is about to end: not ready.
	ProblemClosed      HealthProblem = "closed"             // Close was called: not ready, and not live beyond Down.
	ProblemStuck       HealthProblem = "dispatcher_stuck"   // The dispatch loop makes no rounds: not live.
	ProblemNoProgress  HealthProblem = "no_progress"        // Deliveries are due, but no attempt begins: not live.
	ProblemUnreadable  HealthProblem = "store_unreachable"  // The store does not answer: not ready.
	ProblemUnwritable  HealthProblem = "store_not_writable" // Claims or writes fail, for example on a full disk: not ready.
	ProblemStoreHalted HealthProblem = "store_halted"       // A sync failed, and the store is read-only until reopened: not live.
)

// A HealthVerdict is the evaluation of a [Health]. A process that is not live is never ready.
type HealthVerdict struct {
	Ready    bool            `json:"ready"`    // the process may receive requests
	Live     bool            `json:"live"`     // a restart would not help
	Problems []HealthProblem `json:"problems"` // not nil
}

// Judge evaluates h at the current time. It does not count receivers that are down, or the
// deliveries pending for them, as a problem.
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
	case closed: // Close may have closed the store
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

// HealthHandler answers readiness probes: 200 if this process may receive requests, otherwise 503.
// The response is a JSON object, such as
//
//	{"ready":false,"live":true,"problems":["store_not_writable"],"run":"running","runSince":"…","lastClaim":"…","lastAttempt":null,"oldestDueSeconds":0}
//
// The response contains no secrets, no data about individual accounts, and no error texts, because
// those may name the store's host or file; [Handler.Health] and the log have the texts. The store
// is queried at most once a second, no matter how often probes come.
func (h *Handler) HealthHandler(t HealthThresholds) http.Handler {
	return h.probe(t, func(v HealthVerdict) bool { return v.Ready })
}

// LivenessHandler answers liveness probes as [Handler.HealthHandler] does readiness probes, but
// with 503 only if a restart may help.
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
		_ = json.NewEncoder(w).Encode(struct { // an error means that the client is gone
			HealthVerdict
			Run         webhooks.RunState `json:"run"`
			RunSince    *time.Time        `json:"runSince"`
			LastClaim   *time.Time        `json:"lastClaim"`
			LastAttempt *time.Time        `json:"lastAttempt"`
			OldestDue   float64           `json:"oldestDueSeconds"`
		}{verdict, health.Run, shown(health.RunSince), shown(health.LastClaim), shown(health.LastAttempt), health.OldestDue.Seconds()})
	})
}

// shown returns t in the API's format, or nil if t is zero.
func shown(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC().Truncate(time.Millisecond)
	return &t
}
