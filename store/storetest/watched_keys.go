package storetest

import (
	"context"
	"time"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/driver"
)

// watchedKeys tests [capability.Set.WatchKeys] within one process. The backend's own tests must
// cover changes by other processes.
func watchedKeys(run runner) {
	run("is offered if and only if other processes can use the store", func(t *tester) {
		set := t.store.Capabilities()
		if offered := set.WatchKeys != nil; offered != set.Shared {
			t.Errorf("the store has WatchKeys: %v, want %v, the value of Shared", offered, set.Shared)
		}
	})

	type change struct{ account, id string }

	// watch calls WatchKeys. The channel done is closed when WatchKeys has returned.
	watch := func(ctx context.Context, t *tester) (changes chan change, done chan struct{}) {
		changes, done = make(chan change, 1000), make(chan struct{})
		watchKeys := t.store.Capabilities().WatchKeys
		if watchKeys == nil {
			t.Skip("no other process can use the store")
		}
		go func() {
			defer close(done)
			watchKeys(ctx, func(account, id string) { changes <- change{account, id} })
		}()
		return changes, done
	}
	wait := func(t *tester, done chan struct{}, after string) {
		t.Helper()
		select {
		case <-done:
		case <-time.After(eventTimeout):
			t.Fatalf("WatchKeys did not return within %v after %s", eventTimeout, after)
		}
	}

	run("reports only keys that were changed, and returns when its context ends", func(t *tester) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		t.createKeys(newKey("acct", "unchanged"), newKey("other", "unchanged"))
		changes, done := watch(ctx, t)
		t.createKeys(newKey("acct", "a"), newKey("acct", "b"), newKey("erased", "c"))
		t.updateKey("a", func(key *driver.Key) { key.Name = "new" })
		t.must(t.store.DeleteKey(t.Context(), "acct", "b", nil, audit.Entry{}))
		_, _, err := t.store.EraseAccount(t.Context(), "erased", 100)
		t.must(err)
		cancel()
		wait(t, done, "its context ended")
		close(changes)
		for got := range changes {
			if got.account == "other" || got.id == "unchanged" {
				t.Errorf("got a change of %q in account %q, which did not change", got.id, got.account)
			}
		}
	})

	run("returns when the store is closed, and at once afterwards", func(t *tester) {
		_, done := watch(t.Context(), t)
		t.must(t.store.Close())
		wait(t, done, "the store was closed")
		_, done = watch(t.Context(), t)
		wait(t, done, "it was called on a closed store")
	})

	run("returns at once if its context has ended", func(t *tester) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, done := watch(ctx, t)
		wait(t, done, "it was called with a context that had ended")
	})
}
