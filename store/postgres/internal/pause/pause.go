// Package pause waits for a time, or until it is woken.
package pause

import (
	"context"
	"time"
)

// Wake ends the current or the next Sleep on the channel, which must have a buffer of one value.
func Wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Sleep waits for d, until it is woken, or until ctx ends. It reports whether ctx has not ended.
func Sleep(ctx context.Context, woken <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-woken:
	case <-timer.C:
	}
	return ctx.Err() == nil
}
