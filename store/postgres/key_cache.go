package postgres

import (
	"encoding/hex"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/storageapi/storageapi/apikeys"
)

// CacheKeys caches up to size keys in memory, so that most requests need no query. Without
// it every request queries the database, and a change of a key takes effect on all nodes
// at once.
//
// With it a change takes effect at once on the node that made it, and on other nodes when
// they are notified: usually within milliseconds, and at the latest after maxAge, even if
// their connections fail. Notifications arrive in Wake, which storageapi.Handler.Run calls.
// Only maxAge counts for a node that does not call it, that has [PollOnly], or for changes
// made by a node with [PollOnly]. The expiry of a key is checked for each request in any
// case. Unknown keys are not cached. The size is at least 1, maxAge 1 ms to an hour.
func CacheKeys(size int, maxAge time.Duration) Option {
	return func(o *options) {
		o.keyCache = &keyCache{size: size, maxAge: maxAge, keys: make(map[apikeys.Hash]cachedKey)}
	}
}

// A keyCache caches keys by their hashes. A nil keyCache caches nothing.
type keyCache struct {
	size   int
	maxAge time.Duration

	mu    sync.RWMutex
	keys  map[apikeys.Hash]cachedKey
	epoch uint64 // counts invalidations
}

type cachedKey struct {
	apikeys.Key
	asked time.Time // before the query: the key may have changed since
}

func (c *keyCache) check() error {
	switch {
	case c == nil:
	case c.size < 1:
		return errors.New("CacheKeys: size must be at least 1")
	case c.maxAge < time.Millisecond || c.maxAge > time.Hour:
		return errors.New("CacheKeys: maxAge must be 1ms to 1h")
	}
	return nil
}

// get returns a cached key, or else asked and epoch for the call of add after the query.
func (c *keyCache) get(hash apikeys.Hash) (key apikeys.Key, ok bool, asked time.Time, epoch uint64) {
	if c == nil {
		return key, false, asked, 0
	}
	asked = time.Now()
	c.mu.RLock()
	defer c.mu.RUnlock()
	cached, ok := c.keys[hash]
	return cached.Key, ok && c.isYoung(cached.asked, asked), asked, c.epoch
}

// isYoung reports whether an answer to a query of then may be used now. It checks the wall
// clock, too, because the monotonic clock stops while the machine is suspended.
func (c *keyCache) isYoung(then, now time.Time) bool {
	return now.Sub(then) < c.maxAge && now.Round(0).Sub(then.Round(0)) < c.maxAge
}

// add caches a key, unless there was an invalidation since the query: it may have been of
// this key.
func (c *keyCache) add(hash apikeys.Hash, key apikeys.Key, asked time.Time, epoch uint64) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.epoch != epoch {
		return
	}
	for other := range c.keys { // any
		if len(c.keys) < c.size {
			break
		}
		delete(c.keys, other)
	}
	c.keys[hash] = cachedKey{key, asked}
}

// forget invalidates keys that have changed.
func (c *keyCache) forget(hashes ...apikeys.Hash) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch++
	for _, hash := range hashes {
		delete(c.keys, hash)
	}
}

// forgetAll invalidates all keys, when notifications may have been missed.
func (c *keyCache) forgetAll() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch++
	clear(c.keys)
}

// keysChanged begins a notification of changed keys; their hashes follow.
const keysChanged = "keys"

func keyNotification(hashes ...apikeys.Hash) string {
	text := []byte(keysChanged)
	for _, hash := range hashes {
		text = hex.AppendEncode(append(text, ' '), hash.Sum[:])
	}
	return string(text)
}

// hear invalidates the keys of a notification, and reports whether it is one of changed
// keys.
func (c *keyCache) hear(notification string) bool {
	words := strings.Fields(notification)
	if len(words) == 0 || words[0] != keysChanged {
		return false
	}
	var hashes []apikeys.Hash
	for _, word := range words[1:] {
		var hash apikeys.Hash
		if sum, err := hex.DecodeString(word); err != nil || copy(hash.Sum[:], sum) < len(hash.Sum) {
			c.forgetAll() // it is from another version
		}
		hashes = append(hashes, hash)
	}
	c.forget(hashes...)
	return true
}
