package webhooks_test

import (
	"context"
	"testing"
	"time"

	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/store/capability"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

// slowPurge is a store that always has more to purge, and takes 10 ms for each step.
type slowPurge struct {
	driver.WebhookStore
	steps int
}

func (s *slowPurge) Purge(context.Context, driver.Purge) (bool, error) {
	time.Sleep(10 * time.Millisecond)
	s.steps++
	return true, nil
}

type concurrentPurge struct{ slowPurge }

func (*concurrentPurge) Capabilities() capability.Set {
	return capability.Set{PurgesConcurrently: true}
}

// Purges take a fifth of the time if they block other callers, and half of it otherwise.
func TestPauseBetweenPurges(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		run := func(store driver.WebhookStore) {
			service, err := webhooks.New(store, webhooks.Config{})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if err := service.Run(ctx); err != nil {
				t.Fatal(err)
			}
		}
		slow, concurrent := &slowPurge{WebhookStore: memory.New()}, &concurrentPurge{slowPurge{WebhookStore: memory.New()}}
		run(slow)
		run(concurrent)
		for name, got := range map[string][2]int{"that others wait for": {slow.steps, 200}, "that run beside others": {concurrent.steps, 500}} {
			if n, want := got[0], got[1]; n < want*9/10 || n > want*11/10 {
				t.Errorf("%d purges %s in 10 s, want about %d", n, name, want)
			}
		}
	})
}
