package webhooks

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/storageapi/storageapi/store/driver"
)

const (
	storeTimeout = 10 * time.Second      // for one call
	minBackoff   = 50 * time.Millisecond // after a failure of the store; doubles
	maxBackoff   = 5 * time.Second
)

// A halt finds out whether the store has halted, and logs this only once.
type halt struct {
	store    driver.WebhookStore
	logger   *slog.Logger
	activity *activity
	logged   atomic.Bool
	failed   atomic.Pointer[time.Time] // first failure of the store that has no audit entry yet
}

// cause returns why the store has halted, or nil.
func (h *halt) cause() error {
	if halted := h.store.Capabilities().Halted; halted != nil {
		return halted()
	}
	return nil
}

// explains reports whether the store has halted, in which case its failures need no log lines. It
// logs the halt once.
func (h *halt) explains() bool {
	cause := h.cause()
	if cause != nil && !h.logged.Swap(true) {
		h.logger.Error("storageapi: store is read-only after a failed sync; delivery stopped; restart after fixing the disk", "error", cause)
	}
	return cause != nil
}

// note records a failure of the store.
func (h *halt) note(step string, err error) *storeFailure {
	f := h.activity.failed(step, err)
	h.failed.CompareAndSwap(nil, &f.at)
	return f
}

// noteWrite records a failure to write, if it is the store's fault. The caller reports the error.
func (h *halt) noteWrite(ctx context.Context, step string, err error) {
	if isStoreFailure(ctx, err) {
		h.activity.write.Store(h.note(step, err))
	}
}

// log logs a failure of the store, unless the store has halted.
func (h *halt) log(step string, err error, again time.Duration) {
	h.note(step, err)
	if !h.explains() {
		h.logger.Error("storageapi: webhook store failed", "step", step, "error", err, "again_in", again)
	}
}

// backoff logs a failure of the store and returns the wait before the next try: 0 if err is nil,
// or else twice the last wait, within bounds.
func (h *halt) backoff(step string, last time.Duration, err error) time.Duration {
	if err == nil {
		return 0
	}
	next := min(max(2*last, minBackoff), maxBackoff)
	h.log(step, err, next)
	return next
}
