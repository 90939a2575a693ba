package memory

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/fields"
	"github.com/storageapi/storageapi/internal/listed"
	"github.com/storageapi/storageapi/store/driver"
)

// A key is a stored key.
type key struct {
	driver.Key
	usedAt time.Time // last use of the token with the current Hash
}

// usedBy returns when the token with this hash was last used, if hash belongs to the key.
func (k *key) usedBy(hash driver.Hash) time.Time {
	switch hash {
	case k.Hash:
		return k.usedAt
	case k.Previous:
		return k.PreviousUsedAt
	}
	return time.Time{}
}

// CreateKey implements [driver.KeyStore].
func (s *Store) CreateKey(ctx context.Context, created driver.Key, options driver.CreateOptions) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if err := s.checkCredential(created.Account, options.By); err != nil {
		return err
	}
	if made, known := s.keyRequests.before(created.Account, &options); known {
		return made
	}
	switch {
	case s.keys.find(created.Account, created.ID) != nil, s.hashInUse(&created, nil):
		return apierr.ErrExists
	case options.MaxCount > 0 && len(s.keys[created.Account]) >= options.MaxCount:
		return apierr.ErrLimit
	case s.keyRequests.full(created.Account, &options):
		return apierr.ErrIdempotencyKeys
	}
	k := &key{Key: copyOfKey(created)}
	k.LastUsedAt, k.PreviousUsedAt, k.Activity = time.Time{}, time.Time{}, ""
	s.keys.insert(k.Account, k.ID, k)
	s.index(k)
	s.keyRequests.note(k.Account, k.ID, &options)
	s.entries.add(options.AuditEntry)
	return nil
}

// checkCredential returns auth.ErrCredentialChanged if the key that requests a creation has been
// rotated, disabled or deleted since the request was authenticated.
func (s *Store) checkCredential(account string, by auth.Credential) error {
	if by.IsZero() {
		return nil
	}
	if k := s.keys.find(account, by.KeyID); k == nil || !k.Accepts(by) {
		return auth.ErrCredentialChanged
	}
	return nil
}

// KeyByHash implements [driver.KeyStore].
func (s *Store) KeyByHash(ctx context.Context, hash driver.Hash) (driver.Key, error) {
	if err := s.begin(ctx); err != nil {
		return driver.Key{}, err
	}
	defer s.mu.Unlock()
	found := s.byHash[hash]
	if found == nil {
		return driver.Key{}, apierr.ErrNotFound
	}
	unused := copyOfKey(found.Key)
	unused.LastUsedAt, unused.PreviousUsedAt, unused.Activity = time.Time{}, time.Time{}, ""
	return unused, nil
}

// KeyByID implements [driver.KeyStore].
func (s *Store) KeyByID(ctx context.Context, account, id string) (driver.Key, error) {
	if err := s.begin(ctx); err != nil {
		return driver.Key{}, err
	}
	defer s.mu.Unlock()
	found := s.keys.find(account, id)
	if found == nil {
		return driver.Key{}, apierr.ErrNotFound
	}
	return copyOfKey(found.Key), nil
}

// ListKeys implements [driver.KeyStore].
func (s *Store) ListKeys(ctx context.Context, account string, page driver.ListQuery) ([]driver.Key, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	list := []driver.Key{}
	for k := range s.keys.page(account, page.After, page.Limit) {
		list = append(list, copyOfKey(k.Key))
	}
	return list, nil
}

// ExpiringKeys implements [driver.KeyStore]. It scans all keys.
func (s *Store) ExpiringKeys(ctx context.Context, query driver.ExpiryQuery) ([]driver.Key, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	after, before := query.After, stored(query.Before)
	after.At = stored(after.At)
	var list []driver.Key
	for _, rows := range s.keys {
		for _, row := range rows {
			k := row.record
			if !k.ExpiresAt.IsZero() && k.ExpiresAt.Before(before) && compareExpiry(driver.ExpiryOf(&k.Key), after) > 0 {
				list = append(list, copyOfKey(k.Key))
			}
		}
	}
	slices.SortFunc(list, func(a, b driver.Key) int { return compareExpiry(driver.ExpiryOf(&a), driver.ExpiryOf(&b)) })
	return list[:min(len(list), query.Limit)], nil
}

func compareExpiry(a, b driver.Expiry) int {
	return cmp.Or(a.At.Compare(b.At), strings.Compare(a.Account, b.Account), strings.Compare(a.ID, b.ID))
}

// UpdateKey implements [driver.KeyStore].
func (s *Store) UpdateKey(ctx context.Context, account, id string, change func(*driver.Key, *audit.Entry) error) (driver.Key, error) {
	if err := s.begin(ctx); err != nil {
		return driver.Key{}, err
	}
	defer s.mu.Unlock()
	k := s.keys.find(account, id)
	if k == nil {
		return driver.Key{}, apierr.ErrNotFound
	}
	changed := copyOfKey(k.Key)
	var entry audit.Entry
	if err := change(&changed, &entry); err != nil {
		return driver.Key{}, err
	}
	changed.ID, changed.Account, changed.CreatedAt, changed.CreatedBy, changed.LastUsedAt = k.ID, k.Account, k.CreatedAt, k.CreatedBy, k.LastUsedAt
	changed.Activity = k.Activity
	changed.PreviousUsedAt = k.usedBy(changed.Previous)
	changed = copyOfKey(changed)
	if s.hashInUse(&changed, k) {
		return driver.Key{}, apierr.ErrExists
	}
	s.unindex(k)
	*k = key{changed, k.usedBy(changed.Hash)}
	s.index(k)
	s.entries.add(entry)
	return copyOfKey(changed), nil
}

// DeleteKey implements [driver.KeyStore].
func (s *Store) DeleteKey(ctx context.Context, account, id string, check func(driver.Key) error, entry audit.Entry) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	k := s.keys.find(account, id)
	if k == nil {
		return apierr.ErrNotFound
	}
	if check != nil {
		if err := check(copyOfKey(k.Key)); err != nil {
			return err
		}
	}
	s.unindex(k)
	s.keys.remove(account, id)
	s.keyRequests.forgetOf(account, id)
	s.webhookRequests.forgetOf(account, id)
	s.entries.add(entry)
	return nil
}

// RecordKeyUse implements [driver.KeyStore].
func (s *Store) RecordKeyUse(ctx context.Context, uses []driver.KeyUse) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	for _, use := range uses {
		if k := s.keys.find(use.Account, use.ID); k != nil {
			k.use(use.Hash, stored(use.At), use.Activity)
		}
	}
	return nil
}

// use records a use of the token with this hash, and activity.
func (k *key) use(hash driver.Hash, at time.Time, activity driver.KeyActivity) {
	k.Activity = k.Activity.Add(activity, !at.Before(k.LastUsedAt))
	k.LastUsedAt = later(k.LastUsedAt, at)
	switch {
	case hash == k.Hash:
		k.usedAt = later(k.usedAt, at)
	case hash == k.Previous && !hash.IsZero():
		k.PreviousUsedAt = later(k.PreviousUsedAt, at)
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// hashInUse reports whether a hash of the key belongs to a key other than old.
func (s *Store) hashInUse(k *driver.Key, old *key) bool {
	for _, hash := range []driver.Hash{k.Hash, k.Previous} {
		if owner := s.byHash[hash]; owner != nil && owner != old {
			return true
		}
	}
	return false
}

// index adds the key's hashes to the index.
func (s *Store) index(k *key) {
	for _, hash := range []driver.Hash{k.Hash, k.Previous} {
		if !hash.IsZero() {
			s.byHash[hash] = k
		}
	}
}

// unindex removes the key's hashes from the index.
func (s *Store) unindex(k *key) {
	delete(s.byHash, k.Hash)
	delete(s.byHash, k.Previous)
}

// copyOfKey returns a deep copy of a key, with times in UTC truncated to milliseconds.
func copyOfKey(key driver.Key) driver.Key {
	copier := fields.Copier()
	(*listed.Key)(&key).Fields(&copier)
	return key
}
