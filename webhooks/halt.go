package webhooks

import (
	"log/slog"
	"sync/atomic"
)

// A Halter is a [Store] that stops writing when its disk has failed so that nobody
// knows what it holds, until it is opened again.
type Halter interface {
	// Halted returns why nothing is written or claimed any more; nil if it is.
	Halted() error
}

// A halt knows whether the store has halted, and logs that once.
type halt struct {
	store  Store
	logger *slog.Logger
	logged atomic.Bool
}

// cause returns why the store has halted, or nil.
func (h *halt) cause() error {
	if halter, ok := h.store.(Halter); ok {
		return halter.Halted()
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
