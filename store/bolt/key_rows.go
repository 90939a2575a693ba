package bolt

import (
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/store/bolt/internal/mirror"
)

// defaultCachedKeys is more keys than most services see in a day.
const defaultCachedKeys = 1 << 18

// CacheKeys sets how many keys are kept in memory: a request with one of them reads nothing of the file. No answer is
// stale: a change of a key counts from the moment when it was made. Each takes some 220 bytes once it was used twice, and
// more if it has many scopes of the host's own. 0 or less: none. Default: 262,144, some 60 MiB if as many are in use. Raise
// it if more keys than that are in use at a time.
func CacheKeys(count int) Option { return func(s *Store) { s.keyRows = newKeyRows(count) } }

// keyRows are rows of the bucket of keys, by hash, current or previous, as [record.DecodeKeyRow] takes them.
type keyRows = mirror.Mirror[apikeys.Hash, string]

func newKeyRows(count int) *keyRows {
	return mirror.New[apikeys.Hash](mirror.Options[string]{Max: count, Shards: min(64, 1+count/64), Second: true})
}
