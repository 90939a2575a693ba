package bolt

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/scopes"
)

// A cachedKey is a key in half of the memory that an [apikeys.Key] takes: its strings are parts of one, times
// are numbers, and what only rotated keys have is apart.
type cachedKey struct {
	hash apikeys.Hash // it stands under
	used atomic.Bool  // since room was last looked for

	ends             [6]uint16 // of the parts of text
	text             string    // ID, Account, Name, Hint, CreatedBy.Kind, CreatedBy.ID
	scopes           scopes.Set
	created, expires int64         // Unix milliseconds
	rotated          *cachedHashes // nil: it has no previous hash, and stands under the present one
}

// cachedHashes are those of a rotated key.
type cachedHashes struct {
	current, previous apikeys.Hash
	hint              string // of the previous one
	expires           int64  // the previous one
}

// packKey returns a key that was read from the file; nil if its text is too long to be kept.
func packKey(hash *apikeys.Hash, key *apikeys.Key) *cachedKey {
	k := &cachedKey{hash: *hash, scopes: key.Scopes, created: cachedTime(key.CreatedAt), expires: cachedTime(key.ExpiresAt)}
	k.text = key.ID + key.Account + key.Name + key.Hint + string(key.CreatedBy.Kind) + key.CreatedBy.ID
	if len(k.text) > math.MaxUint16 {
		return nil
	}
	end := 0
	for i, length := range [...]int{len(key.ID), len(key.Account), len(key.Name), len(key.Hint), len(key.CreatedBy.Kind), len(key.CreatedBy.ID)} {
		end += length
		k.ends[i] = uint16(end)
	}
	if *hash != key.Hash || !key.Previous.IsZero() || key.PreviousHint != "" || !key.PreviousExpiresAt.IsZero() {
		k.rotated = &cachedHashes{key.Hash, key.Previous, key.PreviousHint, cachedTime(key.PreviousExpiresAt)}
	}
	return k
}

// unpack sets key, which is zero, to what was packed.
func (k *cachedKey) unpack(key *apikeys.Key) {
	ends := &k.ends
	key.ID, key.Account, key.Name = k.text[:ends[0]], k.text[ends[0]:ends[1]], k.text[ends[1]:ends[2]]
	key.Hint = k.text[ends[2]:ends[3]]
	key.CreatedBy = notices.Actor{Kind: notices.ActorKind(k.text[ends[3]:ends[4]]), ID: k.text[ends[4]:ends[5]]}
	key.Scopes, key.CreatedAt, key.ExpiresAt, key.Hash = k.scopes, timeCached(k.created), timeCached(k.expires), k.hash
	if r := k.rotated; r != nil {
		key.Hash, key.Previous, key.PreviousHint, key.PreviousExpiresAt = r.current, r.previous, r.hint, timeCached(r.expires)
	}
}

// noTime stands for none.
const noTime = math.MinInt64

func cachedTime(t time.Time) int64 {
	if t.IsZero() {
		return noTime
	}
	return t.UnixMilli()
}

func timeCached(ms int64) time.Time {
	if ms == noTime {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
