package bolt

import (
	"encoding/binary"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/storageapi/storageapi/apikeys"
)

// defaultCachedKeys is more keys than most services see in a day. As many in use take some 60 MiB, the first thousand a quarter of one.
const defaultCachedKeys = 1 << 18

// CacheKeys sets how many keys are kept in memory, rounded up to a power of two: a request with one
// of those reads nothing of the file. No answer is stale: a change of a key is seen from the moment it was made. Each
// takes some 220 bytes once it is used, more if it has many scopes of the host's own; the table itself 16 bytes a key. 0 or less: none.
// Default: 262,144, some 60 MiB if as many are in use. Set it to the number of keys that are in use at a time if that is more.
func CacheKeys(count int) Option { return func(s *Store) { s.keyCache = newKeyCache(count) } }

// A keyCache holds keys as they are in the file, by hash, current or previous. It is exact, because one process has the
// file: a hash that is in it and not marked has that very record in the file, as readers see it.
//
//   - A step marks each hash whose record it writes, before anything of that is visible. A mark drops the record.
//   - The end of the transaction, if it is known what became of it, removes the marks, before its steps are told.
//     If it is not known, they stay, and those hashes are read from the file.
//   - A reader does not add a record whose hash is marked, nor one that it began to read before marks were removed: it
//     may have read what was there before.
//
// Reading takes no lock. Expiry and grace are decided by who verifies.
type keyCache struct {
	sets    []keySet      // a power of two of them
	removed atomic.Uint64 // how often marks were removed

	mu     sync.Mutex // of all that writes
	marked map[apikeys.Hash]bool
	filled bool // a key was added
	closed bool

	// test, if it is set, is called at each fence, which is left out if it returns true.
	test func(keyFence) (leaveOut bool)
}

// A keyFence is a place that tests look at.
type keyFence int

const (
	fenceMark    keyFence = iota // a marked hash is dropped
	fenceMarked                  // none that is marked is added
	fenceRemoved                 // none that began to be read before marks were removed is added
	fenceKept                    // marks stay if it is not known what became of the commit
	fenceClosed                  // nothing is added after Close
	readBegins                   // not a fence: a reader goes to the file
	readEnds                     // not a fence: it has read it
)

const keyWays = 4

// A keySet is what hashes with the same last bits share: a line of the processor's cache.
type keySet struct {
	keys   [keyWays]atomic.Pointer[cachedKey]
	tags   [keyWays]atomic.Uint32 // of the keys: most that are not here cost no look at those
	missed [keyWays]atomic.Uint32 // tags of hashes that were missed: where all ways were taken they are added the second time
}

// newKeyCache returns a cache of at least that many keys; nil, which holds none, if that is 0 or less.
func newKeyCache(count int) *keyCache {
	if count <= 0 {
		return nil
	}
	sets := make([]keySet, 1<<bits.Len(uint(count-1)/keyWays))
	return &keyCache{sets: sets, marked: make(map[apikeys.Hash]bool)}
}

// leaveOut reports whether a test wants that fence left out.
func (c *keyCache) leaveOut(at keyFence) bool { return c.test != nil && c.test(at) }

func (c *keyCache) set(hash *apikeys.Hash) (set *keySet, tag uint32) {
	at := binary.LittleEndian.Uint64(hash.Sum[:])
	return &c.sets[at&uint64(len(c.sets)-1)], uint32(at>>32) | 1 // 0 is no tag
}

// get sets key, which is zero, to the one with that hash, and reports whether that is here.
func (c *keyCache) get(hash *apikeys.Hash, key *apikeys.Key) bool {
	if c == nil {
		return false
	}
	set, tag := c.set(hash)
	for i := range set.keys {
		if set.tags[i].Load() != tag {
			continue
		}
		if k := set.keys[i].Load(); k != nil && k.hash == *hash {
			if !k.used.Load() {
				k.used.Store(true)
			}
			k.unpack(key)
			return true
		}
	}
	return false
}

// begin says that a hash which is not here is about to be read from the file. add is to be called with what it
// returns if wanted is set, after the read.
func (c *keyCache) begin(hash *apikeys.Hash) (removed uint64, wanted bool) {
	if c == nil {
		return 0, false
	}
	set, tag := c.set(hash)
	missed := &set.missed[hash.Sum[8]%keyWays]
	if wanted = missed.Load() == tag || set.hasRoom(); !wanted {
		missed.Store(tag)
	}
	removed = c.removed.Load()
	c.leaveOut(readBegins)
	return removed, wanted
}

// add keeps a key that was read, unless it may have changed.
func (c *keyCache) add(hash *apikeys.Hash, key *apikeys.Key, removed uint64) {
	c.leaveOut(readEnds)
	added := packKey(hash, key)
	if added == nil {
		return
	}
	set, tag := c.set(hash)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed && !c.leaveOut(fenceClosed),
		c.marked[*hash] && !c.leaveOut(fenceMarked),
		c.removed.Load() != removed && !c.leaveOut(fenceRemoved):
		return
	}
	c.filled = true
	i := set.room(hash)
	set.tags[i].Store(tag)
	set.keys[i].Store(added)
}

// hasRoom reports whether there is a way that never had a key.
func (s *keySet) hasRoom() bool {
	for i := range s.tags {
		if s.tags[i].Load() == 0 {
			return true
		}
	}
	return false
}

// room returns where a hash is to go: where it is, where none is, or else where one is that was not used of late.
func (s *keySet) room(hash *apikeys.Hash) int {
	free := -1
	for i := range s.keys {
		k := s.keys[i].Load()
		if k != nil && k.hash == *hash {
			return i
		}
		if k == nil || free < 0 && !k.used.Swap(false) {
			free = i
		}
	}
	return max(free, 0)
}

// mark says that a step is about to write the record of a hash.
func (c *keyCache) mark(hash *apikeys.Hash) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.marked[*hash] = true
	if c.leaveOut(fenceMark) {
		return
	}
	set, _ := c.set(hash)
	for i := range set.keys {
		if k := set.keys[i].Load(); k != nil && k.hash == *hash {
			set.keys[i].Store(nil)
		}
	}
}

// ended says that the transaction whose steps have marked hashes is over; known, what became of it.
func (c *keyCache) ended(known bool) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.marked) == 0 || !known && !c.leaveOut(fenceKept) {
		return
	}
	c.removed.Add(1)
	clear(c.marked)
}

// close drops all.
func (c *keyCache) close() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if !c.filled {
		return
	}
	for i := range c.sets {
		for way := range c.sets[i].keys {
			if key := &c.sets[i].keys[way]; key.Load() != nil { // most are nil as a rule
				key.Store(nil)
			}
		}
	}
}
