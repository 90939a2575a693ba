package signing_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/storageapi/storageapi/signing"
)

func newKeyring(tb testing.TB, keys ...[]byte) *signing.Keyring {
	tb.Helper()
	keyring, err := signing.NewKeyring(keys...)
	if err != nil {
		tb.Fatal(err)
	}
	return keyring
}

func TestNewKeyring(t *testing.T) {
	tests := []struct {
		name string
		keys [][]byte
		want string // in the error; "" for none
	}{
		{"one key", [][]byte{keyOf(1)}, ""},
		{"three keys", [][]byte{keyOf(1), keyOf(2), keyOf(3)}, ""},
		{"no key", nil, "at least one key"},
		{"nil key", [][]byte{nil}, "key 1 has 0 bytes, want 32"},
		{"AES-128", [][]byte{keyOf(1), keyOf(2)[:16]}, "key 2 has 16 bytes, want 32"},
		{"33 bytes", [][]byte{keyOf(1), keyOf(2), append(keyOf(3), 0)}, "key 3 has 33 bytes, want 32"},
		{"key in hex", [][]byte{[]byte(hex.EncodeToString(keyOf(1)))}, "key 1 has 64 bytes, want 32"},
		{"key twice", [][]byte{keyOf(1), keyOf(2), keyOf(1)}, "key 3 equals key 1"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			keyring, err := signing.NewKeyring(test.keys...)
			if test.want == "" {
				if err != nil || keyring == nil {
					t.Errorf("NewKeyring: %v", err)
				}
				return
			}
			if !errors.Is(err, signing.ErrConfig) || keyring != nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("NewKeyring: %v, want ErrConfig with %q", err, test.want)
			}
		})
	}
}

// keyUnder returns a data key sealed by sealer.
func keyUnder(t *testing.T, sealer signing.Sealer) []byte {
	t.Helper()
	sealed, err := signing.DataKeyOf(keyOf(9)).SealedBy(t.Context(), sealer)
	if err != nil {
		t.Fatal(err)
	}
	return sealed
}

func TestKeyring_Rotation_OpensOldAndReportsStale(t *testing.T) {
	before, during, after := newKeyring(t, keyOf(1)), newKeyring(t, keyOf(2), keyOf(1)), newKeyring(t, keyOf(2))
	second := newKeyring(t, keyOf(1), keyOf(2))
	old, renewed := keyUnder(t, before), keyUnder(t, during)
	for name, test := range map[string]struct {
		keyring *signing.Keyring
		sealed  []byte
		stale   bool
		want    error
	}{
		"before the rotation": {before, old, false, nil},
		"new key first":       {during, old, true, nil},
		"renewed":             {during, renewed, false, nil},
		"old key gone":        {after, renewed, false, nil},
		"old key first":       {second, renewed, true, nil},
		"not renewed":         {after, old, false, signing.ErrSealed},
		"new key missing":     {before, renewed, false, signing.ErrSealed},
		"nil":                 {nil, old, false, signing.ErrSealed},
		"zero":                {&signing.Keyring{}, old, false, signing.ErrSealed},
	} {
		key, stale, err := signing.OpenDataKey(t.Context(), test.keyring, test.sealed)
		if !errors.Is(err, test.want) || stale != test.stale || (key == nil) != (err != nil) {
			t.Errorf("%s: got key %v, stale %v, %v; want stale %v, %v", name, key, stale, err, test.stale, test.want)
		}
		if err == nil && !key.Current(signing.DataKeyOf(keyOf(9)).Seal(secretA, "wh_1")) {
			t.Errorf("%s: got another data key", name)
		}
	}
	for name, none := range map[string]*signing.Keyring{"nil": nil, "zero": {}} {
		if _, err := none.Seal(t.Context(), keyOf(9)); !errors.Is(err, signing.ErrConfig) {
			t.Errorf("Seal of a %s Keyring = %v, want ErrConfig", name, err)
		}
	}
}

func TestKeyring_ChangedRecord_IsErrDamaged(t *testing.T) {
	keyring := newKeyring(t, keyOf(1), keyOf(2))
	sealed := keyUnder(t, keyring)
	for bit := range 8 * len(sealed) {
		flipped := bytes.Clone(sealed)
		flipped[bit/8] ^= 1 << (bit % 8)
		want := signing.ErrDamaged
		if 6 <= bit/8 && bit/8 < 10 {
			want = signing.ErrSealed // another key's name
		}
		if _, _, err := signing.OpenDataKey(t.Context(), keyring, flipped); !errors.Is(err, want) {
			t.Errorf("bit %d flipped: %v, want %v", bit, err, want)
		}
	}
	for n := range sealed {
		if _, _, err := signing.OpenDataKey(t.Context(), keyring, sealed[:n]); !errors.Is(err, signing.ErrDamaged) {
			t.Errorf("truncated to %d bytes: %v, want ErrDamaged", n, err)
		}
	}
	// A record of a secret must not be accepted as a data key, although the same key sealed it.
	secret := signing.DataKeyOf(keyOf(1)).Seal(secretA, "wh_1")
	if _, _, err := keyring.Open(t.Context(), secret); !errors.Is(err, signing.ErrDamaged) {
		t.Errorf("record of a secret: %v, want ErrDamaged", err)
	}
}

func TestKeyring_KeyChangedLater_IsUnaffected(t *testing.T) {
	key := keyOf(1)
	keyring := newKeyring(t, key)
	sealed := keyUnder(t, keyring)
	clear(key)
	if _, _, err := signing.OpenDataKey(t.Context(), keyring, sealed); err != nil {
		t.Errorf("the Keyring shares memory with its key: %v", err)
	}
}
