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

// What [Keyring.Open] returns is one of these. Neither says anything of the record.
var (
	// ErrSealed: the secret is sealed under a key that is not in the Keyring.
	ErrSealed = errors.New("signing: the secret is sealed under a key that was not given; give the key it was sealed with")

	// ErrDamaged: the record is not as it was written, or it was sealed for another context.
	ErrDamaged = errors.New("signing: signing secret record is corrupt or belongs to another webhook")
)

// A sealed record is
//
//	1 byte    sealedVersion
//	4 bytes   the name of the key
//	12 bytes  the nonce, random
//	n bytes   the ciphertext of the bytes that the secret's text encodes
//	16 bytes  the tag, also of contextLabel and the context
//
// The bytes and not the text are sealed, since they are less by a third, and the secret is ready without decoding it.
const (
	sealedVersion byte = 1 // no plain record, which begins with secretPrefix, begins like this
	keyNameSize        = 4
	minSealed          = 12 + minSecretBytes + 16 // after the name
	keyLabel           = "storageapi keyring: name of a key\x00"
	contextLabel       = "storageapi keyring: secret sealed for\x00"
)

// Keyring holds the AES-256-GCM keys under which a store seals the secrets that it keeps. It turns a secret into the
// record to store, and back. To replace a key, put the new one first and keep the old ones until every record is
// [Keyring.Current] again.
//
// A nil *Keyring seals nothing: its records are the text of the secret, in plain. Every Keyring opens plain records too,
// so that sealing can be introduced; nothing protects these against being changed or moved. The zero Secret is an empty
// record under every Keyring: there is nothing to hide, and it signs nothing.
//
// A Keyring does no I/O, so that a store can use it inside a transaction. With a key management service keep the key
// encrypted by the service in the host's configuration, and decrypt it once, before the store is opened: neither a slow
// nor an unreachable service then holds up a delivery.
//
// A Keyring prints, marshals and logs as "[redacted]". It is safe for concurrent use.
type Keyring struct {
	open func() []sealer // a function for the reason that Secret has one
}

// sealer is one key.
type sealer struct {
	name [keyNameSize]byte
	aead cipher.AEAD
}

// NewKeyring returns a Keyring of the given keys, and keeps no reference to them: the first one seals, all of them open.
// Each is [KeySize] random bytes, from a generator and not from a password, used for nothing else, and seals 2³² secrets
// at most.
//
// The error wraps [ErrConfig] if there is no key, if one is of another size, or if one is there twice. It names the key
// by its place, from 1.
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
			// Two keys share a name once in four thousand million times. Then no record says which of them sealed it.
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

// sealers is empty for what seals nothing: a nil Keyring, or one that NewKeyring did not make.
func (k *Keyring) sealers() []sealer {
	if k == nil || k.open == nil {
		return nil
	}
	return k.open()
}

// Seal returns the record of secret to store: 33 bytes more than the secret encodes, 65 for one of [NewSecret]. Only
// [Keyring.Open] with the same context opens it: the webhook's id, so that an attacker who can write to the store cannot give
// one webhook the secret of another. Sealing a secret twice makes two different records.
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

// Open returns the secret whose record this is. The error is [ErrSealed] or [ErrDamaged]. The record is not kept.
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

// Current reports whether the record is what [Keyring.Seal] makes now: sealed under the first key, or plain if k seals
// nothing. One that is not should be opened, sealed again and replaced. Current does not look whether it opens.
func (k *Keyring) Current(record []byte) bool {
	name, sealed := parseRecord(record)
	if sealers := k.sealers(); len(sealers) > 0 && len(record) > 0 {
		return sealed != nil && name == sealers[0].name
	}
	return sealed == nil
}

// parseRecord returns the name of the key that sealed the record, and what it sealed; nil for a plain record.
func parseRecord(record []byte) (name [keyNameSize]byte, sealed []byte) {
	if len(record) == 0 || record[0] != sealedVersion {
		return name, nil
	}
	n := copy(name[:], record[1:])
	return name, record[1+n:]
}

// additional returns the data that is authenticated with a secret. It is valid until w is used again.
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
