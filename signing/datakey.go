package signing

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
)

// A DataKey is the AES-256-GCM key with which a store seals signing secrets. It is for authors of
// stores. It converts a secret to a record and back, without I/O, so that a store can use it
// inside a transaction. It must seal at most 2³² secrets.
//
// A nil *DataKey does not seal: its records are the plain text of the secret. Every DataKey also
// opens plain records, so that sealing can be introduced later. Plain records are not protected
// against being changed or moved. The record of the zero Secret is empty, with every DataKey, and
// needs no protection, since the zero Secret signs nothing.
//
// A DataKey prints, marshals and logs as "[redacted]". It is safe for concurrent use.
type DataKey struct {
	open func() dataKey // a function for the same reason as Secret.open
}

type dataKey struct {
	namedKey
	plain []byte
}

// A sealed data key is
//
//	1 byte   dataKeyVersion
//	4 bytes  the name of the data key
//	n bytes  the data key as the Sealer has sealed it
const (
	dataKeyVersion byte = 1
	maxSealedKey        = 64 << 10

	contextLabel = "storageapi keyring: secret sealed for\x00"
	minSealed    = minSecretBytes + sealedOverhead
)

// NewDataKey returns a random key. Before the store uses the key, it must have stored the result
// of [DataKey.SealedBy].
func NewDataKey() *DataKey {
	plain := make([]byte, KeySize)
	_, _ = rand.Read(plain) // never fails
	return dataKeyOf(plain)
}

// OpenDataKey opens a result of [DataKey.SealedBy] and returns its key. If the Sealer reports that
// the result is stale, the store must replace it with a new result of SealedBy. A nil Sealer opens
// nothing. The error wraps [ErrSealer], [ErrSealed] or [ErrDamaged].
func OpenDataKey(ctx context.Context, sealer Sealer, sealed []byte) (key *DataKey, stale bool, err error) {
	if len(sealed) < 1+keyNameSize || sealed[0] != dataKeyVersion {
		return nil, false, fmt.Errorf("data key: %w", ErrDamaged)
	}
	if sealer == nil {
		return nil, false, ErrSealed
	}
	type opened struct {
		plain []byte
		stale bool
	}
	result, err := call(ctx, "open", func(ctx context.Context) (opened, error) {
		plain, stale, err := sealer.Open(ctx, bytes.Clone(sealed[1+keyNameSize:]))
		return opened{bytes.Clone(plain), stale}, err
	})
	if err != nil {
		return nil, false, fmt.Errorf("data key: %w", err)
	}
	if len(result.plain) != KeySize || nameOf(result.plain) != [keyNameSize]byte(sealed[1:]) {
		return nil, false, fmt.Errorf("data key: %w", ErrDamaged)
	}
	return dataKeyOf(result.plain), result.stale, nil
}

func dataKeyOf(plain []byte) *DataKey {
	key := dataKey{newNamedKey(plain), plain}
	return &DataKey{open: func() dataKey { return key }}
}

// SealedBy returns the key sealed by sealer, for the store to keep: at most 64 KiB and 5 bytes. It
// also opens the result as a check, because the secrets would be lost if it could not be opened.
// The error wraps the same errors as in [OpenDataKey].
func (k *DataKey) SealedBy(ctx context.Context, sealer Sealer) ([]byte, error) {
	key := k.open()
	bySealer, err := call(ctx, "seal", func(ctx context.Context) ([]byte, error) {
		sealed, err := sealer.Seal(ctx, bytes.Clone(key.plain))
		return bytes.Clone(sealed), err
	})
	if err != nil {
		return nil, fmt.Errorf("data key: %w", err)
	}
	if len(bySealer) > maxSealedKey {
		return nil, fmt.Errorf("data key: %w: Seal returned %d bytes, want at most %d", ErrSealer, len(bySealer), maxSealedKey)
	}
	sealed := append([]byte{dataKeyVersion}, key.name[:]...)
	sealed = append(sealed, bySealer...)
	if _, _, err := OpenDataKey(ctx, sealer, sealed); err != nil {
		return nil, fmt.Errorf("data key: the Sealer cannot open what it has just sealed: %w", err)
	}
	return sealed, nil
}

// seals reports whether k is neither nil nor zero.
func (k *DataKey) seals() bool { return k != nil && k.open != nil }

// Seal returns the record of secret to store. It is 33 bytes longer than the secret's bytes: 65
// bytes for a secret made by [NewSecret]. Only [DataKey.Open] with the same context opens it.
// Pass the webhook's ID as context: then an attacker who can write to the store cannot swap the
// secrets of webhooks. Sealing a secret twice makes two different records.
func (k *DataKey) Seal(secret Secret, context string) []byte {
	if !k.seals() || secret.IsZero() {
		return []byte(secret.Reveal())
	}
	w := getWorkspace()
	defer putWorkspace(w)
	// Seal the secret's bytes rather than its text: the bytes are a third shorter and need no
	// decoding.
	return k.open().seal(secret.open().key, w.additional(context))
}

// Open returns the secret of a record, which it does not retain. The error is [ErrSealed] or
// [ErrDamaged].
func (k *DataKey) Open(record []byte, context string) (Secret, error) {
	name, sealed := parseRecord(record)
	if sealed == nil {
		return openPlain(record)
	}
	if len(sealed) < minSealed {
		return Secret{}, ErrDamaged
	}
	key, err := k.unseal(name, sealed, context)
	if err == nil && (len(key) < minSecretBytes || len(key) > maxSecretBytes) {
		err = ErrDamaged
	}
	if err != nil {
		return Secret{}, err
	}
	return secretOf(key), nil
}

// unseal returns the plain bytes of sealed bytes.
func (k *DataKey) unseal(name [keyNameSize]byte, sealed []byte, context string) ([]byte, error) {
	if !k.seals() {
		return nil, ErrSealed
	}
	named := k.open()
	if named.name != name {
		return nil, ErrSealed
	}
	w := getWorkspace()
	defer putWorkspace(w)
	plain, err := named.aead.Open(nil, nil, sealed, w.additional(context))
	if err != nil {
		return nil, ErrDamaged
	}
	return plain, nil
}

// textContext distinguishes records of SealText from records of Seal with the same context.
const textContext = "\x00text"

// SealText is like [DataKey.Seal], for other secrets of a webhook: printable text. The record of ""
// is empty.
func (k *DataKey) SealText(text, context string) []byte {
	if !k.seals() || text == "" {
		return []byte(text)
	}
	w := getWorkspace()
	defer putWorkspace(w)
	return k.open().seal([]byte(text), w.additional(context+textContext))
}

// OpenText returns the text of a record made by [DataKey.SealText]. The error is [ErrSealed] or
// [ErrDamaged].
func (k *DataKey) OpenText(record []byte, context string) (string, error) {
	name, sealed := parseRecord(record)
	if sealed == nil {
		return string(record), nil
	}
	text, err := k.unseal(name, sealed, context+textContext)
	return string(text), err
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

// Current reports whether record has the form that [DataKey.Seal] makes now: sealed with k, or
// plain if k does not seal. The store should open a plain record that is not current, seal its
// secret, and replace the record. Current does not check that the record can be opened.
func (k *DataKey) Current(record []byte) bool {
	name, sealed := parseRecord(record)
	if k.seals() && len(record) > 0 {
		return sealed != nil && name == k.open().name
	}
	return sealed == nil
}

// additional returns the additional authenticated data for a secret with this context. It is
// valid until the next use of w.
func (w *workspace) additional(context string) []byte {
	w.buf = append(append(w.buf[:0], contextLabel...), context...)
	return w.buf
}

// String returns "[redacted]".
func (*DataKey) String() string { return redacted }

// Format implements [fmt.Formatter]. It writes "[redacted]" for any verb and flags.
func (*DataKey) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// MarshalText implements [encoding.TextMarshaler]. It returns "[redacted]".
func (*DataKey) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue implements [slog.LogValuer]. It returns "[redacted]".
func (*DataKey) LogValue() slog.Value { return slog.StringValue(redacted) }
