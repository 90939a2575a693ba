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

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/id"
	"github.com/storageapi/storageapi/scopes"
)

// importers is how many keys are being imported at a time: their steps share commits.
const importers = 512

// An ImportedKey is a key of another system, of which there is only a digest. It prints,
// marshals and logs as "[redacted]".
type ImportedKey struct {
	redacted

	// Kind is that of the [Legacy] in [Config.Legacy] that its value has the form of.
	Kind string

	// Digest is that of the whole value, as the other system has stored it: 32 bytes as they
	// are, in hex, or in base64 of either alphabet, padded or not. Digests of bcrypt, argon2,
	// scrypt and PBKDF2 are refused: they are salted, so no key can be found by them. So is
	// an MD5.
	Digest string

	Name   string     // as in CreateParams
	Scopes scopes.Set // as in CreateParams

	// ExpiresAt is when the key dies, in the future; zero: never.
	ExpiresAt time.Time

	// CreatedAt is when it was created; zero: not known, which is shown as now, and listed
	// last. Give the same when the key is imported again: it is a part of the key's id.
	CreatedAt time.Time
}

// An ImportResult says what became of an [ImportedKey].
type ImportResult struct {
	KeyID   string // empty if Err is not nil
	Existed bool   // it was imported before, and is left as it is, also if it was rotated since

	// Err is why the key is not imported: a [*ValidationError] that names the field; an error
	// that wraps [ErrExists] if another account has a key of that digest; else a failure,
	// after which the key may have been imported: import it again to be sure.
	Err error
}

// Import adds keys of another system to the account, and returns what became of each, in
// their order. It may be repeated, after a failure or with more keys: the id of a key follows
// from its digest and CreatedAt, so that no key is added twice. But a key that was deleted
// since is added again: leave out what is revoked. [Config.MaxPerAccount] is not heeded.
// If ctx ends, the rest fails with its error.
//
// Values of imported keys are then accepted like those of others, and [KeyService.Rotate]
// gives a key a value of this package's form. [KeyService.Imported] counts who is left.
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
	entry.Until = key.ExpiresAt
	err = s.store.CreateKey(ctx, key, CreateOptions{AuditEntry: entry})
	if !errors.Is(err, ErrExists) {
		if err != nil {
			return ImportResult{Err: fmt.Errorf("import API key: %w", err)}
		}
		s.observer.Changed(&entry)
		return ImportResult{KeyID: key.ID}
	}
	existing, found := s.store.KeyByID(ctx, account, key.ID)
	if errors.Is(found, ErrNotFound) { // of another account, or imported with another CreatedAt
		existing, found = s.store.KeyByHash(ctx, key.Hash)
	}
	switch {
	case found == nil && existing.Account == account:
		return ImportResult{KeyID: existing.ID, Existed: true}
	case found == nil, errors.Is(found, ErrNotFound):
		return ImportResult{Err: fmt.Errorf("import API key: its digest is that of another account's key: %w", err)}
	default:
		return ImportResult{Err: fmt.Errorf("import API key: %w", found)}
	}
}

// imported returns the key to store.
func (s *KeyService) imported(account string, k *ImportedKey) (Key, error) {
	now := s.now().UTC().Truncate(time.Millisecond)
	if err := checkAccount(account); err != nil {
		return Key{}, err
	}
	if legacyOf(s.legacy, k.Kind) == nil {
		return Key{}, invalid("Kind", "must be that of one of Config.Legacy")
	}
	digest, err := parseDigest(k.Digest)
	if err != nil {
		return Key{}, err
	}
	params := CreateParams{Name: k.Name, Scopes: k.Scopes, ExpiresAt: k.ExpiresAt}
	if wrong := s.Validate(params); len(wrong) > 0 {
		return Key{}, wrong[0]
	}
	created := k.CreatedAt.UTC().Truncate(time.Millisecond)
	hash := storedDigest(digest)
	keyID := importedID(hash, created)
	switch {
	case k.CreatedAt.IsZero():
		created = now
	case created.After(now) || created.Year() < 1970:
		return Key{}, invalid("CreatedAt", "must be in the past, and not before 1970")
	}
	return Key{
		ID: keyID, Account: account, Name: k.Name, Scopes: k.Scopes, Hash: hash,
		CreatedAt: created, ExpiresAt: k.ExpiresAt.UTC().Truncate(time.Millisecond),
	}, nil
}

// importedID returns the id of an imported key, which does not depend on when it is
// imported; created is zero if that is not known. It tells that the key was imported: those
// of others are random.
func importedID(hash Hash, created time.Time) string {
	sum := sha256.Sum256(append([]byte("storageapi imported id\x00"), hash.Sum[:]...))
	return id.Derived(id.Key, created, sum[:])
}

// slowDigests begin the digests that keys cannot be found by.
var slowDigests = map[string]string{
	"$2a$": "bcrypt", "$2b$": "bcrypt", "$2y$": "bcrypt", "$argon2": "argon2", "$scrypt$": "scrypt", "$s0$": "scrypt", "$7$": "scrypt",
	"$pbkdf2": "PBKDF2", "pbkdf2": "PBKDF2",
}

// parseDigest returns the 32 bytes of a digest.
func parseDigest(text string) (sum [sha256.Size]byte, err error) {
	if len(text) == sha256.Size {
		if !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) { // by chance once in 10¹³
			return sum, invalid("Digest", "must be 32 bytes, which 32 characters of text are not: no key can be found by an MD5 in hex")
		}
		return [sha256.Size]byte([]byte(text)), nil
	}
	for begin, name := range slowDigests {
		if strings.HasPrefix(text, begin) {
			return sum, invalid("Digest", "must not be of "+name+": it is salted, so that no key can be found by its value. Have the key's owner create a new one")
		}
	}
	decoded, err := hex.DecodeString(text)
	if err != nil && !strings.ContainsAny(text, "\r\n") { // which base64 skips
		unpadded := strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimSuffix(text, "="))
		decoded, err = base64.RawStdEncoding.Strict().DecodeString(unpadded)
	}
	if err != nil || len(decoded) != sha256.Size {
		return sum, invalid("Digest", "must be 32 bytes, as they are, in hex or in base64")
	}
	return [sha256.Size]byte(decoded), nil
}

// ImportStats are figures of the keys that an account has imported.
type ImportStats struct {
	Keys       int       // that still have the value that they were imported with
	Used       int       // of these, that were used since they were imported
	LastUsedAt time.Time // when one of these values was last used; zero: never
}

// Imported returns the figures of the account's imported keys, by reading all its keys. A
// key that was rotated is counted until the grace period of the value before has ended. When
// Keys is 0, or LastUsedAt long ago, for all accounts, the [Legacy] can go.
func (s *KeyService) Imported(ctx context.Context, account string) (ImportStats, error) {
	var stats ImportStats
	for key, err := range s.All(ctx, account) {
		if err != nil {
			return ImportStats{}, err
		}
		stats.count(&key)
	}
	return stats, nil
}

// count counts a key, if it was imported.
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
