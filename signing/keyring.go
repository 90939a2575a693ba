package signing

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
)

// KeySize is the size of a key of a [Keyring], in bytes: AES-256.
const KeySize = 32

// The errors of [Keyring.Open]. They contain nothing of the record.
var (
	// ErrSealed means that the secret is sealed with a key that is not in the Keyring.
	ErrSealed = errors.New("signing: secret is sealed with an unknown key; add this key to the Keyring")

	// ErrDamaged means that the record was changed or was sealed for another context.
	ErrDamaged = errors.New("signing: signing secret record is corrupt or belongs to another webhook")
)

// A sealed record is
//
//	1 byte    sealedVersion
//	4 bytes   the name of the key
//	12 bytes  a random nonce
//	n bytes   the ciphertext of the secret's bytes
//	16 bytes  the tag, which also covers contextLabel and the context
//
// The secret's bytes are sealed rather than its text, since they are a third shorter and need no
// decoding.
const (
	sealedVersion byte = 1 // differs from the first byte of plain records, which begin with secretPrefix
	keyNameSize        = 4
	minSealed          = 12 + minSecretBytes + 16 // without version and name
	keyLabel           = "storageapi keyring: name of a key\x00"
	contextLabel       = "storageapi keyring: secret sealed for\x00"
)

// Keyring holds the AES-256-GCM keys with which a store seals signing secrets. It converts a secret
// to a record and back. To replace a key, put the new one first and keep the old ones until every
// record is [Keyring.Current] again.
//
// A nil *Keyring does not seal: its records are the plain text of the secret. Every Keyring also
// opens plain records, so that sealing can be introduced later; plain records are not protected
// against being changed or moved. The zero Secret is an empty record in every Keyring. It needs no
// protection, since it signs nothing.
//
// A Keyring does no I/O, so that a store can use it inside a transaction. With a key management service keep the key
// encrypted by the service in the host's configuration, and decrypt it once, before the store is opened: neither a slow
// nor an unreachable service then holds up a delivery.
//
// A Keyring prints, marshals and logs as "[redacted]". It is safe for concurrent use.
type Keyring struct {
	open func() []sealer // a function for the same reason as Secret.open
}

// A sealer is one key of a Keyring.
type sealer struct {
	name [keyNameSize]byte
	aead cipher.AEAD
}

// NewKeyring returns a Keyring of the given keys, which it copies: the first one seals, all of them
// open. Each must be [KeySize] bytes from a random generator, not derived from a password, not used
// elsewhere, and must seal at most 2³² secrets.
//
// The error wraps [ErrConfig] if there is no key, or if a key has another size or is repeated. It
// identifies the key by its position, from 1.
func NewKeyring(keys ...[]byte) (*Keyring, error) {
	if len(keys) == 0 {
		return nil, fmt.Errorf("%w: a Keyring needs at least one key", ErrConfig)
	}
	var sealers []sealer
	for i, key := range keys {
		if len(key) != KeySize {
			return nil, fmt.Errorf("%w: key %d has %d bytes, want %d", ErrConfig, i+1, len(key), KeySize)
		}
		name := nameOf(key)
		for j, other := range sealers {
			// Two different keys share a name with a probability of 1 in 2³². Then records could
			// not identify their key.
			if other.name == name {
				return nil, fmt.Errorf("%w: key %d is key %d again, want different ones", ErrConfig, i+1, j+1)
			}
		}
		aead, err := newAEAD(key)
		if err != nil {
			return nil, fmt.Errorf("%w: key %d: %w", ErrConfig, i+1, err)
		}
		sealers = append(sealers, sealer{name, aead})
	}
	return &Keyring{open: func() []sealer { return sealers }}, nil
}

func nameOf(key []byte) [keyNameSize]byte {
	sum := sha256.Sum256(append([]byte(keyLabel), key...))
	return [keyNameSize]byte(sum[:])
}

func newAEAD(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// sealers returns nil for a nil Keyring and for a Keyring that NewKeyring did not make.
func (k *Keyring) sealers() []sealer {
	if k == nil || k.open == nil {
		return nil
	}
	return k.open()
}

// Seal returns the record of secret to store. It is 33 bytes longer than the secret's bytes: 65
// bytes for a secret made by [NewSecret]. Only [Keyring.Open] with the same context opens it. The
// context is the webhook's ID, so that an attacker who can write to the store cannot swap the
// secrets of webhooks. Sealing a secret twice makes two different records.
func (k *Keyring) Seal(secret Secret, context string) []byte {
	sealers := k.sealers()
	if len(sealers) == 0 || secret.IsZero() {
		return []byte(secret.Reveal())
	}
	w := getWorkspace()
	defer putWorkspace(w)
	first, key := sealers[0], secret.open().key
	record := make([]byte, 0, 1+keyNameSize+len(key)+first.aead.Overhead())
	record = append(record, sealedVersion)
	record = append(record, first.name[:]...)
	return first.aead.Seal(record, nil, key, w.additional(context))
}

// Open returns the secret of a record, which it does not retain. The error is [ErrSealed] or
// [ErrDamaged].
func (k *Keyring) Open(record []byte, context string) (Secret, error) {
	name, sealed := parseRecord(record)
	if sealed == nil {
		return openPlain(record)
	}
	if len(sealed) < minSealed {
		return Secret{}, ErrDamaged
	}
	for _, s := range k.sealers() {
		if s.name == name {
			return s.openSealed(sealed, context)
		}
	}
	return Secret{}, ErrSealed
}

func openPlain(record []byte) (Secret, error) {
	if len(record) == 0 {
		return Secret{}, nil
	}
	secret, err := ParseSecret(string(record))
	if err != nil {
		return Secret{}, ErrDamaged
	}
	return secret, nil
}

func (s sealer) openSealed(sealed []byte, context string) (Secret, error) {
	w := getWorkspace()
	defer putWorkspace(w)
	key, err := s.aead.Open(nil, nil, sealed, w.additional(context))
	if err != nil || len(key) < minSecretBytes || len(key) > maxSecretBytes {
		return Secret{}, ErrDamaged
	}
	return secretOf(key), nil
}

// Current reports whether [Keyring.Seal] would make such a record now: sealed with the first key,
// or plain if k does not seal. A record that is not current should be opened, sealed again and
// replaced. Current does not check that the record can be opened.
func (k *Keyring) Current(record []byte) bool {
	name, sealed := parseRecord(record)
	if sealers := k.sealers(); len(sealers) > 0 && len(record) > 0 {
		return sealed != nil && name == sealers[0].name
	}
	return sealed == nil
}

// parseRecord returns the name of the key that sealed the record, and the sealed bytes; nil for a
// plain record.
func parseRecord(record []byte) (name [keyNameSize]byte, sealed []byte) {
	if len(record) == 0 || record[0] != sealedVersion {
		return name, nil
	}
	n := copy(name[:], record[1:])
	return name, record[1+n:]
}

// additional returns the additional authenticated data of a secret. It is valid until the next use
// of w.
func (w *workspace) additional(context string) []byte {
	w.buf = append(append(w.buf[:0], contextLabel...), context...)
	return w.buf
}

// String returns "[redacted]".
func (*Keyring) String() string { return redacted }

// Format implements [fmt.Formatter]: "[redacted]", with any verb and flags.
func (*Keyring) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// MarshalText implements [encoding.TextMarshaler]: "[redacted]".
func (*Keyring) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue implements [slog.LogValuer]: "[redacted]".
func (*Keyring) LogValue() slog.Value { return slog.StringValue(redacted) }
