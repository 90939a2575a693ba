package apikeys

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/id"
	"github.com/storageapi/storageapi/internal/input"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/driver"
)

// importers is the number of keys that Import adds concurrently, so that they share commits.
const importers = 512

// An ImportedKey is a key from another system, of which only the digest is known. It prints,
// marshals and logs as "[redacted]".
type ImportedKey struct {
	redacted

	// Kind names the [Legacy] in [Config.Legacy] that describes the format of the value.
	Kind string

	// Digest is the digest of the whole value, as the other system stores it: 32 raw bytes, hex, or
	// base64 in either alphabet, padded or not. Import refuses bcrypt, argon2, scrypt and PBKDF2
	// digests because they are salted and cannot be looked up, and also MD5.
	Digest string

	Name   string     // as in CreateParams
	Scopes scopes.Set // as in CreateParams

	Resources       []string          // as in CreateParams
	AllowedNetworks []string          // as in CreateParams
	RateLimit       uint64            // as in CreateParams
	Labels          map[string]string // as in CreateParams

	// ExpiresAt is when the key expires, in the future; zero means never. This field may exceed
	// [Config.MaxLifetime], but the key still ends with its lifetime.
	ExpiresAt time.Time

	// CreatedAt is when the key was created. If zero, the time is unknown: the key then shows the
	// time of the import and is listed last. Pass the same value in repeated imports, because the
	// key's ID depends on it.
	CreatedAt time.Time
}

// An ImportResult is the outcome of importing an [ImportedKey].
type ImportResult struct {
	KeyID   string // empty if Err is not nil
	Existed bool   // the key had already been imported; it stays unchanged, even if rotated since

	// Err is the reason the import failed: a [*apierr.ValidationError] that names the field, an
	// error that wraps [apierr.ErrExists] if another account has a key with the digest, or any
	// other error. In the last case the key may have been imported anyway; import it again to be
	// sure.
	Err error
}

// Import adds keys from another system to the account and returns their results in the same order.
// It may be repeated, after an error or with more keys: a key's ID is derived from its digest and
// CreatedAt, so no key is added twice. A key deleted between two imports is added again, so leave
// out revoked keys. [Config.MaxPerAccount] does not apply. If ctx ends, the remaining keys fail
// with its error.
//
// After the import, Verify accepts the values of the keys. [KeyService.Rotate] replaces such a
// value with a token in this package's format. [KeyService.Imported] counts the keys that still
// have an imported value.
func (s *KeyService) Import(ctx context.Context, account string, keys []ImportedKey) []ImportResult {
	results := make([]ImportResult, len(keys))
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(importers, len(keys)) {
		workers.Go(func() {
			for i := range next {
				results[i] = s.importKey(ctx, account, &keys[i])
			}
		})
	}
	for i := range keys {
		next <- i
	}
	close(next)
	workers.Wait()
	return results
}

func (s *KeyService) importKey(ctx context.Context, account string, imported *ImportedKey) ImportResult {
	key, err := s.imported(account, imported)
	if err != nil {
		return ImportResult{Err: err}
	}
	entry := s.entry(ctx, audit.KeyImported, &key)
	entry.Until = s.lifetime.expiry(&key)
	err = s.store.CreateKey(ctx, key, driver.CreateOptions{AuditEntry: entry})
	if !errors.Is(err, apierr.ErrExists) {
		if err != nil {
			return ImportResult{Err: fmt.Errorf("import API key: %w", err)}
		}
		s.observer.Changed(&entry)
		return ImportResult{KeyID: key.ID}
	}
	existing, found := s.store.KeyByID(ctx, account, key.ID)
	if errors.Is(found, apierr.ErrNotFound) { // in another account, or imported with another CreatedAt
		existing, found = s.store.KeyByHash(ctx, key.Hash)
	}
	switch {
	case found == nil && existing.Account == account:
		return ImportResult{KeyID: existing.ID, Existed: true}
	case found == nil, errors.Is(found, apierr.ErrNotFound):
		return ImportResult{Err: fmt.Errorf("import API key: digest belongs to another account's key: %w", err)}
	default:
		return ImportResult{Err: fmt.Errorf("import API key: %w", found)}
	}
}

// imported returns the Key to store for k, or an error if k is invalid.
func (s *KeyService) imported(account string, k *ImportedKey) (Key, error) {
	now := s.now().UTC().Truncate(time.Millisecond)
	if err := input.Account(account); err != nil {
		return Key{}, err
	}
	if legacyOf(s.legacy, k.Kind) == nil {
		return Key{}, input.Invalid("Kind", "must be the Kind of one of Config.Legacy")
	}
	digest, err := parseDigest(k.Digest)
	if err != nil {
		return Key{}, err
	}
	params := CreateParams{Name: k.Name, Scopes: k.Scopes, Resources: k.Resources, AllowedNetworks: k.AllowedNetworks, RateLimit: k.RateLimit, Labels: k.Labels}
	if wrong := s.Validate(params); len(wrong) > 0 {
		return Key{}, wrong[0]
	}
	if err := checkExpiry(k.ExpiresAt, now); err != nil {
		return Key{}, err
	}
	params.ExpiresAt = k.ExpiresAt
	created := k.CreatedAt.UTC().Truncate(time.Millisecond)
	hash := storedDigest(digest)
	keyID := importedID(hash, created)
	switch {
	case k.CreatedAt.IsZero():
		created = now
	case created.After(now) || created.Year() < 1970:
		return Key{}, input.Invalid("CreatedAt", "must be in the past and not before 1970")
	}
	key := params.key()
	key.ID, key.Account, key.Hash, key.CreatedAt = keyID, account, hash, created
	return key, nil
}

// importedID returns the ID of an imported key, which does not depend on the time of the import. A
// zero created means that the creation time is unknown. Other keys have random IDs, so the ID also
// shows whether a key was imported.
func importedID(hash driver.Hash, created time.Time) string {
	sum := sha256.Sum256(append([]byte("storageapi imported id\x00"), hash.Sum[:]...))
	return id.Derived(id.Key, created, sum[:])
}

// slowDigests maps prefixes of salted digests, which cannot be looked up, to their names.
var slowDigests = map[string]string{
	"$2a$": "bcrypt", "$2b$": "bcrypt", "$2y$": "bcrypt", "$argon2": "argon2", "$scrypt$": "scrypt", "$s0$": "scrypt", "$7$": "scrypt",
	"$pbkdf2": "PBKDF2", "pbkdf2": "PBKDF2",
}

// parseDigest decodes a digest in any of the accepted forms to its 32 bytes.
func parseDigest(text string) (sum [sha256.Size]byte, err error) {
	if len(text) == sha256.Size {
		if !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) { // a raw digest consists of printable bytes once in 10¹³ digests
			return sum, input.Invalid("Digest", "must be a digest of 32 bytes, not 32 printable characters such as an MD5 digest in hex")
		}
		return [sha256.Size]byte([]byte(text)), nil
	}
	for begin, name := range slowDigests {
		if strings.HasPrefix(text, begin) {
			return sum, input.Invalid("Digest", "must not be made by "+name+": salted digests cannot be looked up; have the key's owner create a new key")
		}
	}
	decoded, err := hex.DecodeString(text)
	if err != nil && !strings.ContainsAny(text, "\r\n") { // the base64 decoder would skip line ends
		unpadded := strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimSuffix(text, "="))
		decoded, err = base64.RawStdEncoding.Strict().DecodeString(unpadded)
	}
	if err != nil || len(decoded) != sha256.Size {
		return sum, input.Invalid("Digest", "must be 32 bytes: raw, in hex or in base64")
	}
	return [sha256.Size]byte(decoded), nil
}

// ImportStats are statistics about the imported keys of an account.
type ImportStats struct {
	Keys       int       // keys that still have their imported value
	Used       int       // how many of these keys were used since the import
	LastUsedAt time.Time // when an imported value was last used; zero means never
}

// Imported returns the statistics of the account's imported keys. It reads all keys of the account.
// A rotated key still counts until the grace period of its imported value ends. Once every account
// has Keys of 0, or a LastUsedAt in the distant past, you can remove the [Legacy].
func (s *KeyService) Imported(ctx context.Context, account string) (ImportStats, error) {
	var stats ImportStats
	for key, err := range s.All(ctx, account, KeyQuery{}) {
		if err != nil {
			return ImportStats{}, err
		}
		stats.count(&key)
	}
	return stats, nil
}

// count adds key to the statistics if it was imported.
func (s *ImportStats) count(key *Key) {
	var used time.Time
	switch key.ID {
	case importedID(key.Hash, key.CreatedAt), importedID(key.Hash, time.Time{}):
		used = key.LastUsedAt
	case importedID(key.Previous, key.CreatedAt), importedID(key.Previous, time.Time{}):
		used = key.PreviousUsedAt
	default:
		return
	}
	s.Keys++
	if !used.IsZero() {
		s.Used++
	}
	if used.After(s.LastUsedAt) {
		s.LastUsedAt = used
	}
}
