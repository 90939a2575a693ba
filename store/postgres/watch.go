package postgres

import (
	"context"
	"net/url"
	"strings"
)

// watchConns is the size of the pool from which on a connection listens for changes of keys: two
// connections may listen, and two are left.
const watchConns = 4

// keysChannel is the channel for changes of keys. A process can listen without delivering.
func (s *Store) keysChannel() string { return "storageapi:" + s.options.schema }

// keyChanged notifies other processes after a change of a key, or of all keys of the account if id
// is empty. Call it after the commit.
func (s *Store) keyChanged(account, id string) {
	s.notifier.notify(notification{s.keysChannel(), url.QueryEscape(account) + " " + url.QueryEscape(id)})
}

// watchKeys implements [capability.Set.WatchKeys].
func (s *Store) watchKeys(ctx context.Context, changed func(account, id string)) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(s.node.Context(), stop)()
	s.keepListening(ctx, watchConns, []string{s.keysChannel()}, func() (ended func()) { return func() {} }, func(payload string) {
		account, id, _ := strings.Cut(payload, " ")
		account, invalid := url.QueryUnescape(account)
		id, invalidID := url.QueryUnescape(id)
		if invalid == nil && invalidID == nil {
			changed(account, id)
		}
	})
	<-ctx.Done()
}
