package auth

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

const (
	checkTimeout  = 10 * time.Second
	watchInterval = 400 * time.Millisecond // between checks of running requests; a request ends at most twice this time after its key
	watchWorkers  = 64
)

// A Watcher is a [Verifier] that reports changes of keys, so that running requests end when their
// key does. With any other Verifier, they end only when the key expires or [Authenticator.Changed]
// is called.
type Watcher interface {
	// OnChange registers a function that is called after this process changes a key, and also after
	// an attempt that failed but may have taken effect.
	OnChange(changed func(account, keyID string))

	// Watch calls changed after each change to a key by another process, until ctx ends. An empty
	// keyID means that all keys of the account have changed. Calls may be lost: while Watch runs,
	// the Authenticator also verifies the keys of running requests every 0.4 s. If no other process
	// can change keys, Watch returns at once.
	Watch(ctx context.Context, changed func(account, keyID string))
}

// A watch runs a Watcher from the first guarded request to Close.
type watch struct {
	watcher Watcher
	started atomic.Bool
	once    sync.Once
	ctx     context.Context
	stop    context.CancelFunc
	group   sync.WaitGroup
}

func (a *Authenticator) initWatch() {
	w := &a.watch
	w.ctx, w.stop = context.WithCancel(context.Background())
	if w.watcher, _ = a.verifier.(Watcher); w.watcher != nil {
		w.watcher.OnChange(a.Changed)
	} else {
		w.started.Store(true)
	}
}

func (a *Authenticator) startWatch() {
	w := &a.watch
	w.once.Do(func() {
		w.group.Go(func() {
			ctx, stop := context.WithCancel(w.ctx)
			w.group.Go(func() { a.poll(ctx) })
			defer stop()
			w.watcher.Watch(ctx, a.Changed)
		})
	})
	w.started.Store(true)
}

func (w *watch) close() {
	w.once.Do(func() {})
	w.stop()
	w.group.Wait()
}

// Changed ends the running requests of a key that has ended, or of all ended keys of the account if
// keyID is empty. Call it after the change is stored. It returns once the contexts of the requests
// are canceled. With a [Watcher], such as apikeys.KeyService, you need not call it.
func (a *Authenticator) Changed(account, keyID string) {
	list := a.running.changed(account, keyID)
	if len(list) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	for _, same := range byValue(list) {
		a.check(ctx, same, (*caller).recheck)
	}
}

// poll repeatedly verifies the keys of running requests, until ctx ends.
func (a *Authenticator) poll(ctx context.Context) {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	workers := make(chan struct{}, watchWorkers)
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		var group sync.WaitGroup
		checking, cancel := context.WithTimeout(ctx, checkTimeout)
		for _, same := range byValue(a.running.lasting()) {
			workers <- struct{}{}
			group.Go(func() {
				defer func() { <-workers }()
				a.check(checking, same, (*caller).verifyOrRecheck)
			})
		}
		group.Wait()
		cancel()
	}
}

// byValue groups requests by the key value that they carry.
func byValue(list []*guarded) map[value][]*guarded {
	groups := make(map[value][]*guarded)
	for _, g := range list {
		groups[g.caller.token] = append(groups[g.caller.token], g)
	}
	return groups
}

// check verifies a key value again, and ends the requests that carry it if the value is no longer
// valid.
func (a *Authenticator) check(ctx context.Context, same []*guarded, verify func(*caller, context.Context) (Principal, error)) {
	p, err := verify(&same[0].caller, ctx)
	switch {
	case err == nil:
		for _, g := range same {
			a.running.renew(g, &p)
		}
	case errors.Is(err, ErrUnauthorized):
		end(same, causeOf(err))
	} // any other error proves nothing; poll checks again later
}
