package apikeys

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/id"
	"github.com/storageapi/storageapi/internal/input"
	"github.com/storageapi/storageapi/internal/observing"
	"github.com/storageapi/storageapi/observe"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/driver"
)

// Config configures a [KeyService]. The zero Config works.
type Config struct {
	// Prefix is the text before the underscore in new tokens: 1 to 16 lower-case letters, digits
	// and underscores, starting with a letter. Tokens issued with another prefix stay valid.
	// Default: "sak".
	Prefix string

	// MaxPerAccount is the maximum number of keys per account, including expired keys. Negative
	// means no limit. Default: 1,000. An API key that expires, lacks a scope or has another limit can
	// create keys only while the account has fewer than half of the maximum.
	MaxPerAccount int

	// MaxLifetime is the longest time for which a key's value is valid, counted from the creation
	// of the key or its last rotation. A key cannot be created with a later expiry, and a key
	// without an expiry expires after MaxLifetime. Older values are refused like expired ones, even
	// if their key has a later expiry or none. A rotation does not change the expiry, but allows a
	// later one to be set. All keys expire, so all have the lower limit described for
	// MaxPerAccount. Set the same value on all nodes. Example: 90 * 24 * time.Hour. Default: no
	// limit.
	MaxLifetime time.Duration

	// MaxLifetimeFrom is the time before which no existing key ends because of MaxLifetime. Set it to
	// a fixed time, at least 14 days after you introduce or shorten MaxLifetime: until then,
	// [KeyService.AllExpiring] lists the keys that are about to end, and the audit log announces it.
	// Default: at once.
	MaxLifetimeFrom time.Time

	// Legacy describes the formats of imported keys' values, at most 4 kinds; see
	// [KeyService.Import]. Default: none.
	Legacy []Legacy

	// Observe receives changes of keys: see [observe.Observer.Changed]. It is called in
	// addition to [storageapi.Config.Observe]. Default: none.
	Observe observe.Observer

	// Logger receives background failures. Default: slog.Default().
	Logger *slog.Logger

	// Now is the clock for creation and expiry. Default: time.Now.
	Now func() time.Time
}

// A KeyService creates, verifies and manages API keys. It implements
// [auth.Verifier], [auth.Rechecker] and [auth.Watcher], and is safe for concurrent use.
//
// Methods wrap their errors: sentinels such as [apierr.ErrNotFound], [apierr.ErrLimit],
// [apierr.ErrIdempotencyMismatch] and [apierr.ErrCreatedThenDeleted], a [*apierr.ValidationError]
// for invalid input, and internal failures.
type KeyService struct {
	store    driver.KeyStore
	prefix   string
	maxCount int // maximum keys per account; negative means no limit
	lifetime lifetime
	scopes   *scopes.Vocabulary
	legacy   []legacy
	now      func() time.Time
	ids      id.Generator
	entryIDs id.Generator
	notify   bool // whether new audit entries are stored as pending
	observer observing.Changes
	uses     uses
	onChange []func(account, keyID string)
}

// New returns a KeyService that keeps its keys in store. The caller closes the store, after the
// service. New starts no background work. It returns an error for a nil store, and a
// [*apierr.ValidationError] for an invalid config.
func New(store driver.KeyStore, config Config, options ...driver.Option) (*KeyService, error) {
	shared := driver.Apply(options)
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
	lifetime, err := newLifetime(store, &config)
	if err != nil {
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
		lifetime: lifetime,
		scopes:   shared.Scopes,
		now:      config.Now,
		notify:   shared.Notify,
		observer: observing.NewChanges(config.Observe, config.Logger),
		uses:     uses{store: store, log: config.Logger, closing: make(chan struct{}), writing: make(chan struct{}, 1), seed: maphash.MakeSeed()},
	}, nil
}

// Scopes returns the scopes that new keys can have. Keys may also hold scopes that are no longer
// declared; the service returns those in [scopes.Set.Unknown].
func (s *KeyService) Scopes() *scopes.Vocabulary { return s.scopes }

// Close writes pending last-used times, and waits up to a second until [Config.Observe] has
// received all changes. Keys can still be verified afterwards, but their use is not recorded.
// Close may be called more than once.
func (s *KeyService) Close() {
	s.uses.close()
	s.observer.Close()
}

// WriteError returns the error of the latest write of last-used times, or nil if that write
// succeeded. Such a write follows within about a minute of a request with a key, and is retried
// until it succeeds. So WriteError shows whether the store is writable.
func (s *KeyService) WriteError() error {
	if err := s.uses.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// WriteUses writes pending last-used times now instead of within a minute, for example before a
// backup. It takes a few milliseconds per hundred keys and may be called at any time. It returns
// the store's error, or the error of ctx if ctx ends first; the remaining times are written later.
// After Close it does nothing.
func (s *KeyService) WriteUses(ctx context.Context) error { return s.uses.write(ctx) }

// Verify returns the principal of token, or an [*auth.Refusal], which wraps [auth.ErrUnauthorized],
// if the token is malformed, unknown, deleted or expired, or its key is disabled. It reads the
// store for every well-formed token, so every change to a key takes effect at once. Verify writes
// nothing.
//
// The principal expires when the token does. If the token is the previous one of a rotated key, it
// expires at the end of the grace period. Keys with AllowedNetworks are refused, because Verify does
// not know the client's address: see [KeyService.VerifyFrom].
func (s *KeyService) Verify(ctx context.Context, token string) (auth.Principal, error) {
	return s.VerifyFrom(ctx, token, "")
}

// VerifyFrom is like Verify for a request from the given client address, and also refuses a key that
// is limited to other networks. An address that [auth.ParseAddress] cannot read counts as unknown.
func (s *KeyService) VerifyFrom(ctx context.Context, token, address string) (auth.Principal, error) {
	var buf [1 + maxLegacy]driver.Hash
	refusal := malformed
	for _, hash := range s.hashes(token, &buf) {
		key, err := s.store.KeyByHash(ctx, hash)
		if errors.Is(err, apierr.ErrNotFound) {
			refusal = unknown
			continue
		}
		if err != nil {
			return auth.Principal{}, fmt.Errorf("verify API key: %w", err)
		}
		now := s.now()
		p, err := s.principal(&key, hash, now)
		if err != nil {
			return p, err
		}
		if key.AllowedNetworks != "" && !key.AllowedNetworks.Allows(auth.ParseAddress(address)) {
			return auth.Principal{}, &auth.Refusal{Outcome: observe.WrongNetwork, Account: key.Account, KeyID: key.ID}
		}
		s.uses.record(&key, hash, address, now)
		return p, nil
	}
	return auth.Principal{}, refusal
}

// Refusals of values without a key. They are shared, so that refusing a value allocates nothing.
var (
	malformed = &auth.Refusal{Outcome: observe.Malformed}
	unknown   = &auth.Refusal{Outcome: observe.Unknown}
)

// Recheck verifies token again, after Verify has accepted it with principal p. It reads the key's
// record even if the store has cached it, so it sees every change that any process made before the
// call. It does not count as a use. It does not check the client's address again, because a key's
// AllowedNetworks never change.
func (s *KeyService) Recheck(ctx context.Context, p auth.Principal, token string) (auth.Principal, error) {
	var buf [1 + maxLegacy]driver.Hash
	hashes := s.hashes(token, &buf)
	if len(hashes) == 0 {
		return auth.Principal{}, malformed
	}
	key, err := s.store.KeyByID(ctx, p.Account, p.KeyID)
	if errors.Is(err, apierr.ErrNotFound) {
		return auth.Principal{}, unknown
	}
	if err != nil {
		return auth.Principal{}, fmt.Errorf("verify API key: %w", err)
	}
	for _, hash := range hashes {
		if hash == key.Hash || hash == key.Previous {
			return s.principal(&key, hash, s.now())
		}
	}
	return auth.Principal{}, &auth.Refusal{Outcome: observe.Replaced, Account: key.Account, KeyID: key.ID}
}

// OnChange registers a function that is called after this service changes or deletes a key, and
// also after an attempt that failed but may have taken effect. Call OnChange before using the
// service. [auth.New] calls it, so that running requests end when their key does.
func (s *KeyService) OnChange(changed func(account, keyID string)) {
	s.onChange = append(s.onChange, changed)
}

func (s *KeyService) changed(account, keyID string) {
	for _, changed := range s.onChange {
		changed(account, keyID)
	}
}

// Watch calls changed after each change to a key by another process, until ctx ends. After the
// erasure of an account, keyID is empty. Calls may be lost. If no other process can use the store,
// Watch returns at once.
func (s *KeyService) Watch(ctx context.Context, changed func(account, keyID string)) {
	if watch := s.store.Capabilities().WatchKeys; watch != nil {
		watch(ctx, changed)
	}
}

// principal returns the principal for the value of k that has the given hash. It returns an
// [*auth.Refusal] if the value is not usable now.
func (s *KeyService) principal(k *Key, hash driver.Hash, now time.Time) (auth.Principal, error) {
	expiresAt, outcome := s.usable(k, hash, now)
	switch outcome {
	case observe.OK:
	case observe.Unknown:
		return auth.Principal{}, unknown
	default:
		return auth.Principal{}, &auth.Refusal{Outcome: outcome, Account: k.Account, KeyID: k.ID}
	}
	p := auth.Principal{
		Account: k.Account, KeyID: k.ID, Scopes: s.scopes.Resolve(k.Scopes), ExpiresAt: expiresAt, Replaced: hash != k.Hash,
		LimitedTo: k.Resources, Name: k.Name, Hint: k.Hint, Networks: k.AllowedNetworks, RateLimit: k.RateLimit,
	}
	if p.Replaced {
		p.Hint = k.PreviousHint
	}
	return p, nil
}

// Get returns the account's key with the given ID, or [apierr.ErrNotFound].
func (s *KeyService) Get(ctx context.Context, account, keyID string) (Key, error) {
	if !input.ID(keyID) {
		return Key{}, fmt.Errorf("get API key: %w", apierr.ErrNotFound)
	}
	before := s.uses.unwritten()
	key, err := s.store.KeyByID(ctx, account, keyID)
	if err != nil {
		return Key{}, fmt.Errorf("get API key: %w", err)
	}
	return s.shown(key, before), nil
}

// shown returns a key as callers see it. It adds the uses in before, which were pending when the
// key was read, applies [Config.MaxLifetime] to the expiry, moves undeclared scopes to
// [scopes.Set.Unknown], and omits an expired previous token.
func (s *KeyService) shown(key Key, before unwritten) Key {
	s.uses.overlay(&key, before)
	key.ExpiresAt = s.lifetime.expiry(&key)
	limitPrevious(&key)
	key.Scopes = s.scopes.Resolve(key.Scopes)
	if !s.now().Before(key.PreviousExpiresAt) {
		dropPrevious(&key)
	}
	return key
}

// usable decides whether the value of k with the given hash is valid now. The outcome is OK, or the
// reason to refuse the value: Unknown if it is not a value of k, Expired, Replaced or Disabled.
// expiresAt is when the value expires; zero means never.
func (s *KeyService) usable(k *Key, hash driver.Hash, now time.Time) (expiresAt time.Time, outcome observe.Outcome) {
	expiry := s.lifetime.expiry(k)
	switch hash {
	case k.Hash:
		expiresAt = expiry
	case k.Previous:
		expiresAt = earlier(k.PreviousExpiresAt, expiry)
	default:
		return time.Time{}, observe.Unknown
	}
	ended := func(at time.Time) bool { return !at.IsZero() && !now.Before(at) }
	switch {
	case ended(expiry):
		return expiresAt, observe.Expired
	case ended(expiresAt):
		return expiresAt, observe.Replaced
	case k.Disabled:
		return expiresAt, observe.Disabled
	}
	return expiresAt, observe.OK
}
