package apikeys

import (
	"errors"
	"fmt"
	"iter"

	"github.com/storageapi/storageapi/auth"
)

// ErrShareLimit is returned by [KeyService.Create], in a [*LimitError], and by a [Store] if API keys
// have created half of the keys that an account may have and the creating key cannot manage
// all keys of the account. The other half is reserved, so that such a key cannot use it up.
var ErrShareLimit = errors.New("too many API keys created by API keys")

// A Share limits how many of an account's keys API keys may create. The other half of the
// account's limit is reserved for the host, for people, and for keys that can manage all keys.
// The zero Share has no limit.
type Share struct {
	// Max is the maximum number of the account's keys created by API keys, including the new
	// key; 0: no limit.
	Max int

	// CanManage returns a function that reports whether the key by can manage a key; nil means
	// all keys. It is called in the store's step, may be called more than once, and must not
	// call the store.
	CanManage func(by *Key) func(key *Key) bool
}

// MayExceed reports whether Exceeded must be called. created is the number of the account's keys
// whose CreatedBy has the kind [audit.ActorKey].
func (s *Share) MayExceed(created int) bool { return s.Max > 0 && created >= s.Max }

// Exceeded reports whether the key by may not create another key, if MayExceed returned true. keys
// are all keys of the account. Exceeded stops at the first key that by cannot manage; pass the
// oldest first, because it is usually among them.
func (s *Share) Exceeded(by *Key, keys iter.Seq[*Key]) bool {
	canManage := s.CanManage(by)
	if canManage == nil {
		return false
	}
	for key := range keys {
		if !canManage(key) {
			return true
		}
	}
	return false
}

// share returns the Share for a creation by the given credential; zero means the host.
func (s *KeyService) share(by auth.Credential) Share {
	if by.IsZero() || s.maxCount < 0 {
		return Share{}
	}
	return Share{max(1, s.maxCount/2), s.canManage}
}

// canManage considers only scopes and expiry, because [auth.Authorize] may be slow and may call
// the service.
func (s *KeyService) canManage(by *Key) func(*Key) bool {
	p := auth.Principal{Scopes: s.scopes.Resolve(by.Scopes), ExpiresAt: by.ExpiresAt}
	if p.ExpiresAt.IsZero() && p.Scopes.Covers(s.scopes.All()) {
		return nil // even if a key holds an undeclared scope, which grants nothing
	}
	return func(key *Key) bool {
		return p.CanManage(auth.Target{Scopes: s.scopes.Resolve(key.Scopes), ExpiresAt: key.ExpiresAt})
	}
}

// A LimitError has the exceeded limit. It wraps [ErrLimit], and Limit is the maximum number of
// keys per account, or [ErrShareLimit], and Limit is the maximum created by API keys.
type LimitError struct {
	Limit int
	err   error
}

func (e *LimitError) Error() string {
	if e.err == ErrShareLimit {
		return fmt.Sprintf("%v: those that cannot manage all keys of the account may have created at most %d", e.err, e.Limit)
	}
	return fmt.Sprintf("%v: an account may have at most %d API keys", ErrLimit, e.Limit)
}

// Unwrap returns ErrLimit or ErrShareLimit.
func (e *LimitError) Unwrap() error {
	if e.err == nil {
		return ErrLimit
	}
	return e.err
}
