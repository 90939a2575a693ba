package apikeys

import (
	"errors"
	"fmt"
	"iter"

	"github.com/storageapi/storageapi/auth"
)

// ErrShareLimit is returned by [KeyService.Create], in a [*LimitError], where API keys have
// created half of the keys that an account may have, and the key that asks for one more cannot
// manage all keys of the account: it could use up what is left, and hinder those that can. Also
// a [Store] returns it.
var ErrShareLimit = errors.New("too many API keys created by API keys")

// A Share bounds how many of an account's keys have been created by API keys. Half of what the
// account may have is there for the host, for people, and for keys that can manage all others.
// The zero Share bounds nothing.
type Share struct {
	// Max is how many keys that API keys have created the account may have in the end, the new
	// one included; 0: any number.
	Max int

	// CanManage returns what tells which keys the given one can manage; nil: all. It is called
	// in the store's step, may be called more than once, and must not call the store.
	CanManage func(by *Key) func(key *Key) bool
}

// MayExceed reports whether Exceeded need be asked, where API keys have created that many of
// the keys that the account has: those whose CreatedBy is of the kind [audit.ActorKey].
func (s *Share) MayExceed(created int) bool { return s.Max > 0 && created >= s.Max }

// Exceeded reports whether a further key that by asks for is one too many, where MayExceed says so,
// given all keys that the account has. It ends at the first that by cannot manage, which is
// among the oldest as a rule: give these first.
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

// share returns the share of what is asked for by a key, or by the host.
func (s *KeyService) share(by auth.Credential) Share {
	if by.IsZero() || s.maxCount < 0 {
		return Share{}
	}
	return Share{max(1, s.maxCount/2), s.canManage}
}

// canManage goes by scopes and expiry alone: [auth.Authorize] may take its time, and may call
// the service.
func (s *KeyService) canManage(by *Key) func(*Key) bool {
	p := auth.Principal{Scopes: s.scopes.Resolve(by.Scopes), ExpiresAt: by.ExpiresAt}
	if p.ExpiresAt.IsZero() && p.Scopes.Covers(s.scopes.All()) {
		return nil // also where a key holds a scope that is not declared any more, and allows nothing
	}
	return func(key *Key) bool {
		return p.CanManage(auth.Target{Scopes: s.scopes.Resolve(key.Scopes), ExpiresAt: key.ExpiresAt})
	}
}

// A LimitError says how many keys an account may have. It wraps [ErrLimit]; or [ErrShareLimit],
// and then says how many of them API keys may have created.
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
