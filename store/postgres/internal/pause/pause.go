// Package pause waits for a time, or until it is woken.
package pause

import (
	"context"
	"time"
)

// Wake ends a Sleep on the channel, which has room for one value: this one, or the next.
func Wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Sleep waits for the duration, or until it is woken, and reports whether ctx goes on.
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
