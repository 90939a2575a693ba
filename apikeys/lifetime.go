package apikeys

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/storageapi/storageapi/internal/input"
	"github.com/storageapi/storageapi/store/driver"
)

// A lifetime is the limit that [Config.MaxLifetime] sets.
type lifetime struct {
	max      time.Duration // 0 means no limit
	from     time.Time
	accounts accountStore
}

// An accountStore is the part of a store that lists accounts, see transfer.Store.
type accountStore interface {
	Accounts(ctx context.Context, after string, limit int) ([]string, error)
}

func newLifetime(store driver.KeyStore, config *Config) (lifetime, error) {
	l := lifetime{max: config.MaxLifetime.Truncate(time.Millisecond), from: config.MaxLifetimeFrom.UTC().Truncate(time.Millisecond)}
	l.accounts, _ = store.(accountStore)
	switch {
	case config.MaxLifetime == 0:
	case l.max <= 0:
		return l, input.Invalid("MaxLifetime", "must be at least a millisecond")
	case l.accounts == nil:
		return l, input.Invalid("MaxLifetime", "requires a store with the method Accounts of transfer.Store")
	}
	return l, nil
}

// MaxLifetime returns [Config.MaxLifetime]; 0 means no limit.
func (s *KeyService) MaxLifetime() time.Duration { return s.lifetime.max }

// expiry returns when a key expires: at its ExpiresAt, or earlier because of its lifetime. Zero
// means never.
func (l *lifetime) expiry(k *Key) time.Time {
	if l.max == 0 {
		return k.ExpiresAt
	}
	return earlier(k.ExpiresAt, later(l.end(k), l.from))
}

// ends reports whether the key expires because of its lifetime, before its ExpiresAt.
func (l *lifetime) ends(k *Key) bool { return !l.expiry(k).Equal(k.ExpiresAt) }

// end returns the end of the lifetime of the key's current value.
func (l *lifetime) end(k *Key) time.Time { return later(k.CreatedAt, k.RotatedAt).Add(l.max) }

// check validates the expiry of a value that is issued now.
func (l *lifetime) check(at, now time.Time) error {
	if l.max > 0 && at.After(now.Add(l.max)) {
		return l.exceeded()
	}
	return nil
}

// extended returns the new expiry of a key: at, or the latest one if at is zero. An expiry no later
// than the key's current one is always valid.
func (l *lifetime) extended(k *Key, at, now time.Time) (time.Time, error) {
	if l.max == 0 {
		return at, nil
	}
	end := l.end(k)
	if at.IsZero() {
		at = end
	}
	if at.After(later(end, l.expiry(k))) || !at.After(now) {
		return k.ExpiresAt, l.exceeded()
	}
	return at, nil
}

func (l *lifetime) exceeded() error {
	limit := l.max.String()
	if days := l.max / day; l.max%day == 0 {
		limit = fmt.Sprintf("%d days", days)
	}
	return input.Invalid("expiresAt", "must be at most "+limit+" after the key's creation or last rotation")
}

// earlier returns the earlier of two expiries, of which zero means never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// overlong returns the keys of all accounts that expire at or after from and before to because of
// their lifetime, earliest first. The store's list of expiring keys omits these keys or sorts them
// by another expiry.
func (s *KeyService) overlong(ctx context.Context, from, to time.Time) (list []Key, err error) {
	if s.lifetime.max == 0 {
		return nil, nil
	}
	failed := func(err error) ([]Key, error) {
		return nil, fmt.Errorf("list API keys that expire by Config.MaxLifetime: %w", err)
	}
	for account := ""; ; {
		accounts, err := s.lifetime.accounts.Accounts(ctx, account, pageSize)
		if err != nil {
			return failed(err)
		}
		for _, account = range accounts {
			for query := (driver.ListQuery{Limit: pageSize}); ; {
				before := s.uses.unwritten()
				keys, err := s.store.ListKeys(ctx, account, query)
				if err != nil {
					return failed(err)
				}
				for _, key := range keys {
					if at := s.lifetime.expiry(&key); s.lifetime.ends(&key) && !at.Before(from) && at.Before(to) {
						list = append(list, s.shown(key, before))
					}
					query.After = key.ID
				}
				if len(keys) < pageSize {
					break
				}
			}
		}
		if len(accounts) < pageSize {
			slices.SortFunc(list, func(a, b Key) int { return compareExpiry(&a, &b) })
			return list, nil
		}
	}
}

// compareExpiry compares two keys by the order of AllExpiring.
func compareExpiry(a, b *Key) int {
	return cmp.Or(a.ExpiresAt.Compare(b.ExpiresAt), strings.Compare(a.Account, b.Account), strings.Compare(a.ID, b.ID))
}
