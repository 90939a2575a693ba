package postgres

import (
	"context"
	"net/url"
	"strings"
)

// watchConns is the minimum size of a pool in which a connection listens for changes of keys: up to
// two connections listen, and two are left for other work.
const watchConns = 4

// keysChannel returns the channel for changes of keys. Processes that do not deliver can listen to
// it, too.
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
