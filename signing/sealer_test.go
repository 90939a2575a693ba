package signing_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/storageapi/storageapi/signing"
)

// A fakeSealer is a Sealer made of two functions. If a function is nil, the Keyring's method is
// used.
type fakeSealer struct {
	*signing.Keyring
	seal func(ctx context.Context, plain []byte) ([]byte, error)
	open func(ctx context.Context, sealed []byte) ([]byte, bool, error)
}

func (s *fakeSealer) Seal(ctx context.Context, plain []byte) ([]byte, error) {
	if s.seal == nil {
		return s.Keyring.Seal(ctx, plain)
	}
	return s.seal(ctx, plain)
}

func (s *fakeSealer) Open(ctx context.Context, sealed []byte) ([]byte, bool, error) {
	if s.open == nil {
		return s.Keyring.Open(ctx, sealed)
	}
	return s.open(ctx, sealed)
}

var errUnreachable = errors.New("KMS unreachable")

func TestSealer_Fails_IsErrSealer(t *testing.T) {
	keyring := newKeyring(t, keyOf(1))
	sealed := keyUnder(t, keyring)
	sealer := &fakeSealer{
		Keyring: keyring,
		seal:    func(context.Context, []byte) ([]byte, error) { return nil, errUnreachable },
		open:    func(context.Context, []byte) ([]byte, bool, error) { return nil, false, errUnreachable },
	}
	_, err := signing.NewDataKey().SealedBy(t.Context(), sealer)
	if !errors.Is(err, signing.ErrSealer) || !errors.Is(err, errUnreachable) {
		t.Errorf("SealedBy = %v, want ErrSealer and the Sealer's error", err)
	}
	_, _, err = signing.OpenDataKey(t.Context(), sealer, sealed)
	if !errors.Is(err, signing.ErrSealer) || !errors.Is(err, errUnreachable) || errors.Is(err, signing.ErrDamaged) {
		t.Errorf("OpenDataKey = %v, want ErrSealer and the Sealer's error", err)
	}
	if _, _, err := signing.OpenDataKey(t.Context(), nil, sealed); !errors.Is(err, signing.ErrSealed) {
		t.Errorf("OpenDataKey without a Sealer = %v, want ErrSealed", err)
	}
}

// Two kinds of calls end after SealerTimeout: a call that waits for its context, and a call that
// never returns.
func TestSealer_Hangs_IsErrSealerAfterTimeout(t *testing.T) {
	for name, wait := range map[string]func(ctx context.Context, ever chan struct{}) error{
		"obeys its context":   func(ctx context.Context, _ chan struct{}) error { <-ctx.Done(); return ctx.Err() },
		"ignores its context": func(_ context.Context, ever chan struct{}) error { <-ever; return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ever := make(chan struct{})
				defer close(ever)
				keyring := newKeyring(t, keyOf(1))
				sealed := keyUnder(t, keyring)
				sealer := &fakeSealer{
					Keyring: keyring,
					seal:    func(ctx context.Context, _ []byte) ([]byte, error) { return nil, wait(ctx, ever) },
					open:    func(ctx context.Context, _ []byte) ([]byte, bool, error) { return nil, false, wait(ctx, ever) },
				}
				for call, do := range map[string]func(ctx context.Context) error{
					"SealedBy": func(ctx context.Context) error { _, err := signing.NewDataKey().SealedBy(ctx, sealer); return err },
					"OpenDataKey": func(ctx context.Context) error {
						_, _, err := signing.OpenDataKey(ctx, sealer, sealed)
						return err
					},
				} {
					began := time.Now()
					err := do(t.Context())
					if took := time.Since(began); !errors.Is(err, signing.ErrSealer) || !errors.Is(err, context.DeadlineExceeded) || took != signing.SealerTimeout {
						t.Errorf("%s: got %v after %v, want ErrSealer and DeadlineExceeded after %v", call, err, took, signing.SealerTimeout)
					}
					canceled, cancel := context.WithCancel(t.Context())
					time.AfterFunc(time.Second, cancel)
					began = time.Now()
					err = do(canceled)
					if took := time.Since(began); !errors.Is(err, context.Canceled) || took != time.Second {
						t.Errorf("%s: got %v after %v, want Canceled after 1s", call, err, took)
					}
				}
			})
		})
	}
}

// A data key must not be used if the Sealer could not return it at the next start.
func TestSealer_ReturnsAnotherKey_IsRefused(t *testing.T) {
	keyring := newKeyring(t, keyOf(1))
	for name, sealer := range map[string]*fakeSealer{
		"seals nothing":     {Keyring: keyring, seal: func(context.Context, []byte) ([]byte, error) { return nil, nil }},
		"seals another key": {Keyring: keyring, seal: func(ctx context.Context, _ []byte) ([]byte, error) { return keyring.Seal(ctx, keyOf(2)) }},
		"opens another key": {Keyring: keyring, open: func(context.Context, []byte) ([]byte, bool, error) { return keyOf(2), false, nil }},
		"opens a short key": {Keyring: keyring, open: func(context.Context, []byte) ([]byte, bool, error) { return keyOf(9)[:31], false, nil }},
		"opens nothing":     {Keyring: keyring, open: func(context.Context, []byte) ([]byte, bool, error) { return nil, false, nil }},
	} {
		if _, err := signing.DataKeyOf(keyOf(9)).SealedBy(t.Context(), sealer); !errors.Is(err, signing.ErrDamaged) {
			t.Errorf("%s: SealedBy = %v, want ErrDamaged", name, err)
		}
	}
	long := &fakeSealer{Keyring: keyring, seal: func(context.Context, []byte) ([]byte, error) { return make([]byte, 64<<10+1), nil }}
	if _, err := signing.NewDataKey().SealedBy(t.Context(), long); !errors.Is(err, signing.ErrSealer) {
		t.Errorf("SealedBy of 64 KiB and a byte = %v, want ErrSealer", err)
	}
}

// A Sealer that modifies and keeps its arguments does not change the data key.
func TestSealer_ModifiesItsArguments_ChangesNothing(t *testing.T) {
	keyring := newKeyring(t, keyOf(1))
	var kept []byte
	sealer := &fakeSealer{
		Keyring: keyring,
		seal: func(ctx context.Context, plain []byte) ([]byte, error) {
			sealed, err := keyring.Seal(ctx, plain)
			clear(plain)
			return sealed, err
		},
		open: func(ctx context.Context, sealed []byte) ([]byte, bool, error) {
			plain, stale, err := keyring.Open(ctx, sealed)
			clear(sealed)
			kept = plain
			return plain, stale, err
		},
	}
	sealed := keyUnder(t, sealer)
	before := bytes.Clone(sealed)
	key, _, err := signing.OpenDataKey(t.Context(), sealer, sealed)
	clear(kept)
	if err != nil || !bytes.Equal(sealed, before) {
		t.Fatalf("OpenDataKey: %v, or the sealed form was modified", err)
	}
	again, err := key.SealedBy(t.Context(), sealer)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := signing.OpenDataKey(t.Context(), keyring, again); err != nil {
		t.Error(err)
	}
}

func TestDataKey_SealedForm_HidesKey(t *testing.T) {
	sealed := keyUnder(t, newKeyring(t, keyOf(1)))
	for _, text := range []string{string(keyOf(9)[:8]), hex.EncodeToString(keyOf(9)[:8]), base64.StdEncoding.EncodeToString(keyOf(9)[:9])} {
		if strings.Contains(string(sealed), text) {
			t.Error("the sealed form contains the data key")
		}
	}
}
