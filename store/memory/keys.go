package memory

import (
	"context"
	"time"

	"github.com/storageapi/storageapi/apikeys"
)

// CreateKey implements [apikeys.Store].
func (s *Store) CreateKey(ctx context.Context, key apikeys.Key) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if s.keys.find(key.Account, key.ID) != nil || s.taken(&key, nil) {
		return apikeys.ErrExists
	}
	key = storedKey(key)
	key.LastUsedAt = time.Time{}
	s.keys.insert(key.Account, key.ID, &key)
	s.index(&key)
	return nil
}

// KeyByHash implements [apikeys.Store].
func (s *Store) KeyByHash(ctx context.Context, hash apikeys.Hash) (apikeys.Key, error) {
	if err := s.begin(ctx); err != nil {
		return apikeys.Key{}, err
	}
	defer s.mu.Unlock()
	found := s.byHash[hash]
	if found == nil {
		return apikeys.Key{}, apikeys.ErrNotFound
	}
	key := *found
	key.LastUsedAt = time.Time{}
	return key, nil
}

// KeyByID implements [apikeys.Store].
func (s *Store) KeyByID(ctx context.Context, account, id string) (apikeys.Key, error) {
	if err := s.begin(ctx); err != nil {
		return apikeys.Key{}, err
	}
	defer s.mu.Unlock()
	key := s.keys.find(account, id)
	if key == nil {
		return apikeys.Key{}, apikeys.ErrNotFound
	}
	return *key, nil
}

// ListKeys implements [apikeys.Store].
func (s *Store) ListKeys(ctx context.Context, account string, page apikeys.Page) ([]apikeys.Key, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	list := []apikeys.Key{}
	for key := range s.keys.page(account, page.After, page.Limit) {
		list = append(list, *key)
	}
	return list, nil
}

// UpdateKey implements [apikeys.Store].
func (s *Store) UpdateKey(ctx context.Context, account, id string, change func(*apikeys.Key) error) (apikeys.Key, error) {
	if err := s.begin(ctx); err != nil {
		return apikeys.Key{}, err
	}
	defer s.mu.Unlock()
	key := s.keys.find(account, id)
	if key == nil {
		return apikeys.Key{}, apikeys.ErrNotFound
	}
	changed := *key
	if err := change(&changed); err != nil {
		return apikeys.Key{}, err
	}
	changed.ID, changed.Account, changed.CreatedAt, changed.LastUsedAt = key.ID, key.Account, key.CreatedAt, key.LastUsedAt
	changed = storedKey(changed)
	if s.taken(&changed, key) {
		return apikeys.Key{}, apikeys.ErrExists
	}
	s.unindex(key)
	*key = changed
	s.index(key)
	return changed, nil
}

// DeleteKey implements [apikeys.Store].
func (s *Store) DeleteKey(ctx context.Context, account, id string) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	key := s.keys.find(account, id)
	if key == nil {
		return apikeys.ErrNotFound
	}
	s.unindex(key)
	s.keys.remove(account, id)
	return nil
}

// RecordKeyUse implements [apikeys.Store].
func (s *Store) RecordKeyUse(ctx context.Context, uses []apikeys.KeyUse) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	for _, use := range uses {
		key := s.keys.find(use.Account, use.ID)
		if at := stored(use.At); key != nil && at.After(key.LastUsedAt) {
			key.LastUsedAt = at
		}
	}
	return nil
}

// taken reports whether a hash of key is that of another key than old.
func (s *Store) taken(key, old *apikeys.Key) bool {
	for _, hash := range []apikeys.Hash{key.Hash, key.Previous} {
		if owner := s.byHash[hash]; owner != nil && owner != old {
			return true
		}
	}
	return false
}

// index makes the key be found by its hashes.
func (s *Store) index(key *apikeys.Key) {
	for _, hash := range []apikeys.Hash{key.Hash, key.Previous} {
		if !hash.IsZero() {
			s.byHash[hash] = key
		}
	}
}

// unindex undoes index.
func (s *Store) unindex(key *apikeys.Key) {
	delete(s.byHash, key.Hash)
	delete(s.byHash, key.Previous)
}

func storedKey(key apikeys.Key) apikeys.Key {
	key.CreatedAt = stored(key.CreatedAt)
	key.ExpiresAt = stored(key.ExpiresAt)
	key.PreviousExpiresAt = stored(key.PreviousExpiresAt)
	return key
}
