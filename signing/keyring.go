package signing

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
)

// KeySize is the size of a key of a [Keyring] and of a data key, in bytes: AES-256.
const KeySize = 32

// A Keyring is a [Sealer] of keys in memory: AES-256-GCM keys that the host keeps in its
// configuration. To replace a key, put the new key first and open every store once. The old key is
// then needed only for older backups.
//
// A Keyring prints, marshals and logs as "[redacted]". It is safe for concurrent use.
type Keyring struct {
	open func() []namedKey // a function for the same reason as Secret.open
}

var _ Sealer = (*Keyring)(nil)

// A namedKey is an AES-256-GCM key. A record names the key that it is sealed with:
//
//	1 byte    sealedVersion
//	4 bytes   the name of the key
//	12 bytes  a random nonce
//	n bytes   the ciphertext
//	16 bytes  the tag, which also covers additional data
type namedKey struct {
	name [keyNameSize]byte
	aead cipher.AEAD
}

const (
	sealedVersion  byte = 1 // differs from the first byte of plain records, which begin with secretPrefix
	keyNameSize         = 4
	sealedOverhead      = 12 + 16 // nonce and tag
	keyLabel            = "storageapi keyring: name of a key\x00"
	dataKeyLabel        = "storageapi keyring: data key\x00"
)

// NewKeyring returns a Keyring of the given keys, which it copies. It seals with the first key,
// and opens with any of them. Each must be [KeySize] bytes from a random generator, not derived
// from a password and not used elsewhere.
//
// The error wraps [ErrConfig] if there is no key, or if a key has another size or is repeated. It
// identifies the key by its position, from 1.
func NewKeyring(keys ...[]byte) (*Keyring, error) {
	if len(keys) == 0 {
		return nil, errNoKeys
	}
	var named []namedKey
	for i, key := range keys {
		if len(key) != KeySize {
			return nil, fmt.Errorf("%w: key %d has %d bytes, want %d", ErrConfig, i+1, len(key), KeySize)
		}
		next := newNamedKey(key)
		for j, other := range named {
			// Two different keys have the same name with a probability of 1 in 2³². Records would then not
			// identify their key.
			if other.name == next.name {
				return nil, fmt.Errorf("%w: key %d equals key %d, want different keys", ErrConfig, i+1, j+1)
			}
		}
		named = append(named, next)
	}
	return &Keyring{open: func() []namedKey { return named }}, nil
}

var errNoKeys = fmt.Errorf("%w: a Keyring needs at least one key", ErrConfig)

// newNamedKey returns a key of KeySize bytes.
func newNamedKey(key []byte) namedKey {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // only for a key of another size
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // only for a block size other than the size of AES
	}
	return namedKey{nameOf(key), aead}
}

func nameOf(key []byte) [keyNameSize]byte {
	sum := sha256.Sum256(append([]byte(keyLabel), key...))
	return [keyNameSize]byte(sum[:])
}

// seal returns the record of plain.
func (k namedKey) seal(plain, additional []byte) []byte {
	record := make([]byte, 0, 1+keyNameSize+len(plain)+sealedOverhead)
	record = append(record, sealedVersion)
	record = append(record, k.name[:]...)
	return k.aead.Seal(record, nil, plain, additional)
}

// parseRecord returns the name of the key that sealed the record, and the sealed bytes. sealed is
// nil for a plain record.
func parseRecord(record []byte) (name [keyNameSize]byte, sealed []byte) {
	if len(record) == 0 || record[0] != sealedVersion {
		return name, nil
	}
	n := copy(name[:], record[1:])
	return name, record[1+n:]
}

// keys returns nil for a nil Keyring and for a Keyring that NewKeyring did not make.
func (k *Keyring) keys() []namedKey {
	if k == nil || k.open == nil {
		return nil
	}
	return k.open()
}

// Seal implements [Sealer] with the first key.
func (k *Keyring) Seal(_ context.Context, plain []byte) ([]byte, error) {
	keys := k.keys()
	if len(keys) == 0 {
		return nil, errNoKeys
	}
	return keys[0].seal(plain, []byte(dataKeyLabel)), nil
}

// Open implements [Sealer]. The error is [ErrSealed] or [ErrDamaged]. stale is true if the record
// is not sealed with the first key.
func (k *Keyring) Open(_ context.Context, record []byte) (plain []byte, stale bool, err error) {
	name, sealed := parseRecord(record)
	if len(sealed) < sealedOverhead {
		return nil, false, ErrDamaged
	}
	for i, key := range k.keys() {
		if key.name == name {
			plain, err := key.aead.Open(nil, nil, sealed, []byte(dataKeyLabel))
			if err != nil {
				return nil, false, ErrDamaged
			}
			return plain, i > 0, nil
		}
	}
	return nil, false, ErrSealed
}

// String returns "[redacted]".
func (*Keyring) String() string { return redacted }

// Format implements [fmt.Formatter]. It writes "[redacted]" for any verb and flags.
func (*Keyring) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// MarshalText implements [encoding.TextMarshaler]. It returns "[redacted]".
func (*Keyring) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue implements [slog.LogValuer]. It returns "[redacted]".
func (*Keyring) LogValue() slog.Value { return slog.StringValue(redacted) }
