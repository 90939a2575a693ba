package postgres

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"math"

	positions "github.com/storageapi/storageapi/internal/cursor"
)

// cursors encrypt and decrypt the positions in lists, since plain positions would reveal how many
// events or audit entries all accounts have in total. Each kind of list has its own key, so that
// cursors of other lists and stores are detected.
type cursors struct{ events, deliveries, entries positions.Key }

// loadCursors derives the keys from the key that all nodes share.
func (s *Store) loadCursors(ctx context.Context) error {
	ctx, cancel := within(ctx, defaultTimeout)
	defer cancel()
	var shared []byte
	err := s.pool.QueryRow(ctx, s.sql(`select seal from storageapi.marks where name = 'cursors'`)).Scan(&shared)
	for list, key := range map[string]*positions.Key{"events": &s.cursors.events, "deliveries": &s.cursors.deliveries, "audit": &s.cursors.entries} {
		h := hmac.New(sha256.New, shared)
		_, _ = h.Write([]byte(list))
		copy(key[:], h.Sum(nil))
	}
	return failure(ctx, err)
}

// positionOf returns the position of a cursor, or 0 and false if the cursor belongs to another list
// or store.
func positionOf(key positions.Key, cursor string) (position int64, ok bool) {
	if n, ok := key.Decode(cursor); ok && n <= math.MaxInt64 {
		return int64(n), true
	}
	return 0, false
}
