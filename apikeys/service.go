package apikeys

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/id"
	"github.com/storageapi/storageapi/internal/input"
	"github.com/storageapi/storageapi/internal/observing"
	"github.com/storageapi/storageapi/internal/wiring"
	"github.com/storageapi/storageapi/observe"
	"github.com/storageapi/storageapi/scopes"
)

// Config configures a [KeyService]. The zero Config works.
type Config struct {
	// Prefix is what new tokens begin with, before an underscore: 1 to 16
	// lower-case letters, digits and underscores, a letter first. Tokens made
	// with another prefix stay valid. Default: "sak".
	Prefix string

	// MaxPerAccount is how many keys an account may have, expired ones included;
	// negative: any number. Default: 1,000. API keys that cannot manage all keys of their
	// account create at most half of them, see [ErrShareLimit].
	MaxPerAccount int

	// Legacy describes the values of imported keys, at most 4 kinds, see
	// [KeyService.Import]. Default: none.
	Legacy []Legacy

	// Observe is told of the changes of keys: see [observe.Observer.Changed].
	// [storageapi.Config.Observe] is told as well. Default: nothing is told.
	Observe observe.Observer

	// Logger is told what goes wrong in the background. Default: slog.Default().
	Logger *slog.Logger

	// Now is the clock that creation and expiry go by. Default: time.Now.
	Now func() time.Time
}

// A KeyService creates, verifies and manages API keys. It implements
// [auth.Verifier] and [auth.Rechecker], and is safe for concurrent use.
//
// Its methods return errors wrapped: [ErrNotFound], [ErrLimit], [ErrIdempotencyMismatch] and
// [ErrCreatedThenDeleted] to branch on, a [*ValidationError] for input that breaks a rule, anything
// else is a failure.
type KeyService struct {
	store    Store
	prefix   string
	maxCount int // keys an account; negative: any number
	scopes   *scopes.Vocabulary
	legacy   []legacy
	now      func() time.Time
	ids      id.Generator
	entryIDs id.Generator
	notify   bool // audit entries are pending at first
	observer observing.Changes
	uses     uses
}

// New returns a KeyService on the given store, which stays the caller's to
// close, after the service. It starts nothing. A nil store and an invalid config are
// errors, the latter a [*ValidationError]. The settings are for package storageapi.
func New(store Store, config Config, settings ...wiring.Settings) (*KeyService, error) {
	wired := wiring.Of(settings)
	if store == nil {
		return nil, errors.New("apikeys: nil Store")
	}
	if config.Prefix == "" {
		config.Prefix = defaultPrefix
	}
	if config.MaxPerAccount == 0 {
		config.MaxPerAccount = 1000
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	if err := checkPrefix(config.Prefix); err != nil {
		return nil, fmt.Errorf("apikeys: %w", err)
	}
	legacies, err := newLegacies(config.Legacy)
	if err != nil {
		return nil, fmt.Errorf("apikeys: %w", err)
	}
	return &KeyService{
		store:    store,
		legacy:   legacies,
		prefix:   config.Prefix,
		maxCount: config.MaxPerAccount,
		scopes:   wired.Scopes,
		now:      config.Now,
		notify:   wired.Notify,
		observer: observing.NewChanges(config.Observe, config.Logger),
		uses:     uses{store: store, log: config.Logger, closing: make(chan struct{}), writing: make(chan struct{}, 1)},
	}, nil
}

// Scopes returns the scopes that keys can be created with. A key may hold others, from when
// these were declared: they are [scopes.Set.Unknown] in what the service returns.
func (s *KeyService) Scopes() *scopes.Vocabulary { return s.scopes }

// Close writes the last uses that are not written yet, and waits up to a second until
// [Config.Observe] is told of all changes. Keys verified later are
// verified, but their use is not recorded. Close may be called more than once.
func (s *KeyService) Close() {
	s.uses.close()
	s.observer.Close()
}

// WriteError returns why the last attempt to write when keys were last used has failed; nil
// if it has not. It is made some time after requests with keys, and again until it succeeds:
// so this tells whether the store can be written.
func (s *KeyService) WriteError() error {
	if err := s.uses.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// WriteUses writes the last uses that are not written yet, as is done once a minute: before a
// backup, say. It takes some milliseconds for each hundred keys, and may be called at any time.
// If ctx ends first its error is returned, or the store's if that refuses them; what was not
// written then is written later. After Close it does nothing.
func (s *KeyService) WriteUses(ctx context.Context) error { return s.uses.write(ctx) }

// Verify returns the principal that token stands for, or an [*auth.Refusal], which wraps
// [auth.ErrUnauthorized], if it is malformed, unknown, deleted or expired. A
// malformed token does not ask the store; any other does, so that every change of the key counts
// from the moment it was made. Verify writes nothing.
//
// The principal's expiry is the token's: during a rotation the old token's is
// the end of its grace.
func (s *KeyService) Verify(ctx context.Context, token string) (auth.Principal, error) {
	var buf [1 + maxLegacy]Hash
	refusal := malformed
	for _, hash := range s.hashes(token, &buf) {
		key, err := s.store.KeyByHash(ctx, hash)
		if errors.Is(err, ErrNotFound) {
			refusal = unknown
			continue
		}
		if err != nil {
			return auth.Principal{}, fmt.Errorf("verify API key: %w", err)
		}
		now := s.now()
		p, err := s.principal(&key, hash, now)
		if err == nil {
			s.uses.record(&key, hash, now)
		}
		return p, err
	}
	return auth.Principal{}, refusal
}

// What is refused without a key that it is of. They are shared: garbage costs no memory.
var (
	malformed = &auth.Refusal{Outcome: observe.Malformed}
	unknown   = &auth.Refusal{Outcome: observe.Unknown}
)

// Recheck is Verify for a value that Verify found to be that of p: it reads the key's
// record even where the store has it in memory, so that every change of the key before
// the call counts, whichever process made it. It records no use.
func (s *KeyService) Recheck(ctx context.Context, p auth.Principal, token string) (auth.Principal, error) {
	var buf [1 + maxLegacy]Hash
	hashes := s.hashes(token, &buf)
	if len(hashes) == 0 {
		return auth.Principal{}, malformed
	}
	key, err := s.store.KeyByID(ctx, p.Account, p.KeyID)
	if errors.Is(err, ErrNotFound) {
		return auth.Principal{}, unknown
	}
	if err != nil {
		return auth.Principal{}, fmt.Errorf("verify API key: %w", err)
	}
	for _, hash := range hashes {
		if _, ok := key.expiryOf(hash); ok {
			return s.principal(&key, hash, s.now())
		}
	}
	return auth.Principal{}, unknown
}

// principal returns whom the value with that hash stands for, or an [*auth.Refusal]
// if it is none of the key's or is dead.
func (s *KeyService) principal(k *Key, hash Hash, now time.Time) (auth.Principal, error) {
	expiresAt, ok := k.expiryOf(hash)
	if !ok {
		return auth.Principal{}, unknown
	}
	if dead := func(at time.Time) bool { return !at.IsZero() && !now.Before(at) }; dead(expiresAt) {
		refusal := &auth.Refusal{Outcome: observe.Expired, Account: k.Account, KeyID: k.ID}
		if !dead(k.ExpiresAt) {
			refusal.Outcome = observe.Replaced
		}
		return auth.Principal{}, refusal
	}
	p := auth.Principal{
		Account: k.Account, KeyID: k.ID, Scopes: s.scopes.Resolve(k.Scopes), ExpiresAt: expiresAt, Replaced: hash != k.Hash,
		Name: k.Name, Hint: k.Hint,
	}
	if p.Replaced {
		p.Hint = k.PreviousHint
	}
	return p, nil
}

// Get returns the account's key of that id, or [ErrNotFound].
func (s *KeyService) Get(ctx context.Context, account, keyID string) (Key, error) {
	if !input.ID(keyID) {
		return Key{}, fmt.Errorf("get API key: %w", ErrNotFound)
	}
	before := s.uses.unwritten()
	key, err := s.store.KeyByID(ctx, account, keyID)
	if err != nil {
		return Key{}, fmt.Errorf("get API key: %w", err)
	}
	return s.shown(key, before), nil
}

// shown returns a key as callers see it: with uses that were not written yet before
// it was read, with the scopes that it grants apart from those that are not declared any
// more, and without a previous token that is dead.
func (s *KeyService) shown(key Key, before unwritten) Key {
	s.uses.overlay(&key, before)
	key.Scopes = s.scopes.Resolve(key.Scopes)
	if !s.now().Before(key.PreviousExpiresAt) {
		key.Previous, key.PreviousHint, key.PreviousExpiresAt, key.PreviousUsedAt = Hash{}, "", time.Time{}, time.Time{}
	}
	return key
}
