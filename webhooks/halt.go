package webhooks

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

const (
	storeTimeout = 10 * time.Second      // for one call
	minBackoff   = 50 * time.Millisecond // after a failure of the store: the pauses double
	maxBackoff   = 5 * time.Second
)

// A halt knows whether the store has halted, and logs that once.
type halt struct {
	store    Store
	logger   *slog.Logger
	activity *activity
	logged   atomic.Bool
	failed   atomic.Pointer[time.Time] // when the store failed first, unless that is told of already
}

// cause returns why the store has halted, or nil.
func (h *halt) cause() error {
	if halted := h.store.Capabilities().Halted; halted != nil {
		return halted()
	}
	return nil
}

// explains reports whether a failure of the store is one of a store that has halted:
// it needs no line of its own.
func (h *halt) explains() bool {
	cause := h.cause()
	if cause != nil && !h.logged.Swap(true) {
		h.logger.Error("storageapi: the store writes nothing any more, and nothing is delivered: restart once the disk is sound", "error", cause)
	}
	return cause != nil
}

// note notes a failure of the store.
func (h *halt) note(step string, err error) *storeFailure {
	f := h.activity.failed(step, err)
	h.failed.CompareAndSwap(nil, &f.at)
	return f
}

// noteWrite notes a failure to write, if it is the store's. The caller is told of it.
func (h *halt) noteWrite(ctx context.Context, step string, err error) {
	if isStoreFailure(ctx, err) {
		h.activity.write.Store(h.note(step, err))
	}
}

// log logs a failure of the store, unless it is one of a store that has halted.
func (h *halt) log(step string, err error, again time.Duration) {
	h.note(step, err)
	if !h.explains() {
		h.logger.Error("storageapi: webhook store failed", "step", step, "error", err, "again_in", again)
	}
}

// backoff logs a failure of the store and returns how long to wait after it: 0 without
// one, twice as long as the last time, up to a bound, with one.
func (h *halt) backoff(step string, last time.Duration, err error) time.Duration {
	if err == nil {
		return 0
	}
	next := min(max(2*last, minBackoff), maxBackoff)
	h.log(step, err, next)
	return next
}
