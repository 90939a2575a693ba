package webhooks

import (
	"context"
	"log/slog"
	"time"
)

const (
	maxSkew   = 5 * time.Second // between this node's clock and the store's, that is not worth a word
	skewEvery = time.Hour       // between words
)

// A storeClock is the clock of a store that may be on another machine. It says in the
// log when this node's differs: signatures, expiries of keys and the dates of events
// go by that.
type storeClock struct {
	store  Store
	logger *slog.Logger
	said   time.Time // when it last did
}

// now returns the time by the store's clock.
func (c *storeClock) now(ctx context.Context) (time.Time, error) {
	asked := time.Now()
	now, err := c.store.Now(ctx)
	if err != nil {
		return time.Time{}, err
	}
	// The answer is of some time since then.
	ahead, behind := asked.Sub(now), now.Sub(asked)-time.Since(asked)
	if max(ahead, behind) > maxSkew && (c.said.IsZero() || time.Since(c.said) >= skewEvery) {
		c.said = time.Now()
		way, by := "ahead of", ahead
		if behind > 0 {
			way, by = "behind", behind
		}
		c.logger.Warn("storageapi: this node's clock is "+way+" the store's: set it right", "by", by.Round(time.Millisecond))
	}
	return now, nil
}
