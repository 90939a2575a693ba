package postgres

import (
	"encoding/hex"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/storageapi/storageapi/apikeys"
)

// CacheKeys keeps up to size keys in memory, so that most requests need not ask the
// database. Without it each does, and a key that is deleted, rotated or changed is so
// for all nodes at once.
//
// With it that is so at once on the node that did it, and on others when they hear of
// it: within milliseconds as a rule, and maxAge after it at the latest, whatever
// becomes of their connections. What they hear they hear in Wake, which
// storageapi.Handler.Run calls. A node that does not run it, or has [PollOnly], or
// hears from one that has, goes by maxAge alone. How long a key may still be used is
// checked for each request anyway. What is not found is asked for each time. The size
// is at least 1, maxAge 1 ms to an hour.
func CacheKeys(size int, maxAge time.Duration) Option {
	return func(o *options) {
		o.keyCache = &keyCache{size: size, maxAge: maxAge, keys: make(map[apikeys.Hash]cachedKey)}
	}
}

// A keyCache remembers keys by their hashes. One that is nil remembers nothing.
type keyCache struct {
	size   int
	maxAge time.Duration

	mu    sync.RWMutex
	keys  map[apikeys.Hash]cachedKey
	epoch uint64 // counts what was forgotten
}

type cachedKey struct {
	apikeys.Key
	asked time.Time // before the database was: it may have changed since
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

// get returns a key that is remembered, or what add is to be told of the answer that
// the database is asked for now.
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

// isYoung reports whether what was asked for then may be used now: by the wall clock,
// too, for the other stands still while the machine is suspended.
func (c *keyCache) isYoung(then, now time.Time) bool {
	return now.Sub(then) < c.maxAge && now.Round(0).Sub(then.Round(0)) < c.maxAge
}

// add remembers a key, unless something was forgotten since the database was asked:
// it may have been this key.
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

// forget is for keys that have changed.
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

// forgetAll is for when changes may have gone unheard.
func (c *keyCache) forgetAll() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch++
	clear(c.keys)
}

// keysChanged begins a notification that keys have changed, which their hashes follow.
const keysChanged = "keys"

func keyNotification(hashes ...apikeys.Hash) string {
	text := []byte(keysChanged)
	for _, hash := range hashes {
		text = hex.AppendEncode(append(text, ' '), hash.Sum[:])
	}
	return string(text)
}

// hear forgets the keys that a notification tells of, and reports whether it is one
// of that kind.
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
