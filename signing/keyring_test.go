package signing_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/storageapi/storageapi/signing"
)

// sealedForEver is secretA sealed with key 1 for wh_1 in the first version of the format. It must
// always open.
const sealedForEver = "01413c116f62c4dd07ecadae8fcb987d8e" +
	"0f6cea76e7ec4cffca2649ea3f61d51d37948305a6fc96fb45a11eff6f251c4d5be3e6eb5d045b4356accc12525cb026"

// keyOf returns the key whose bytes are c, c+1, c+2, …
func keyOf(c byte) []byte {
	key := make([]byte, signing.KeySize)
	for i := range key {
		key[i] = c + byte(i)
	}
	return key
}

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
		{"key twice", [][]byte{keyOf(1), keyOf(2), keyOf(1)}, "key 3 is key 1 again"},
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

func TestKeyring_SealThenOpen_ReturnsSecret(t *testing.T) {
	keyrings := map[string]*signing.Keyring{
		"nil":      nil,
		"zero":     {},
		"one key":  newKeyring(t, keyOf(1)),
		"two keys": newKeyring(t, keyOf(1), keyOf(2)),
	}
	var zero signing.Secret
	parse := func(n int) signing.Secret {
		return parseSecrets(t, []string{"whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{1}, n))})[0]
	}
	secrets := map[string]signing.Secret{
		"zero": zero, "new": signing.NewSecret(), "24 bytes": parse(24), "64 bytes": parse(64),
	}
	for name, keyring := range keyrings {
		for kind, secret := range secrets {
			for _, context := range []string{"", "wh_1", strings.Repeat("x", 10_000)} {
				record := keyring.Seal(secret, context)
				opened, err := keyring.Open(bytes.Clone(record), context)
				if err != nil || !opened.Equal(secret) || !keyring.Current(record) {
					t.Errorf("%s keyring, %s secret: %v, or another secret, or not current", name, kind, err)
				}
			}
		}
	}
}

// Records of a nil Keyring must have the format used before there were Keyrings.
func TestKeyring_Nil_StoresPlainText(t *testing.T) {
	var none *signing.Keyring
	if got := string(none.Seal(secretA, "wh_1")); got != secretA.Reveal() {
		t.Error("record of a nil Keyring is not the secret's text")
	}
	keyring := newKeyring(t, keyOf(1))
	opened, err := keyring.Open([]byte(secretA.Reveal()), "wh_1")
	if err != nil || !opened.Equal(secretA) || keyring.Current([]byte(secretA.Reveal())) {
		t.Errorf("opening a plain record: %v, or another secret, or it is current", err)
	}
	for _, bad := range []string{"w", "whsec_", secretA.Reveal()[:20], secretA.Reveal() + "\n", " ", "\x00", "\x02" + secretA.Reveal()} {
		for _, keyring := range []*signing.Keyring{nil, keyring} {
			if opened, err := keyring.Open([]byte(bad), "wh_1"); !errors.Is(err, signing.ErrDamaged) || !opened.IsZero() {
				t.Errorf("opening a bad plain record: %v, want ErrDamaged", err)
			}
		}
	}
}

func TestSeal_Record_HidesSecret(t *testing.T) {
	keyring := newKeyring(t, keyOf(1))
	record := keyring.Seal(secretA, "wh_1")
	if len(record) != 65 {
		t.Errorf("record of a 32-byte secret has %d bytes, want 65", len(record))
	}
	if bytes.Contains(record, []byte("aaaa")) || bytes.Contains(record, []byte("YWFh")) || bytes.Contains(record, []byte("whsec")) {
		t.Error("record contains the secret")
	}
	if bytes.Equal(record, keyring.Seal(secretA, "wh_1")) {
		t.Error("sealing twice returned the same record")
	}
}

func TestKeyring_Rotation_OpensOldRecords(t *testing.T) {
	before := newKeyring(t, keyOf(1))
	during := newKeyring(t, keyOf(2), keyOf(1))
	after := newKeyring(t, keyOf(2))

	old := before.Seal(secretA, "wh_1")
	opened, err := during.Open(old, "wh_1")
	if err != nil || !opened.Equal(secretA) {
		t.Fatalf("old record with both keys: %v, or another secret", err)
	}
	if during.Current(old) || !before.Current(old) {
		t.Error("Current is true for the old record with the new key first, or false before the rotation")
	}
	resealed := during.Seal(opened, "wh_1")
	if !during.Current(resealed) || !after.Current(resealed) || before.Current(resealed) {
		t.Error("Current is false for the new record, or true with the old key first")
	}
	if opened, err := after.Open(resealed, "wh_1"); err != nil || !opened.Equal(secretA) {
		t.Errorf("new record with the new key: %v, or another secret", err)
	}
	for name, test := range map[string]struct {
		keyring *signing.Keyring
		record  []byte
	}{
		"old key gone":    {after, old},
		"new key missing": {before, resealed},
		"no key":          {nil, old},
	} {
		if opened, err := test.keyring.Open(test.record, "wh_1"); !errors.Is(err, signing.ErrSealed) || !opened.IsZero() {
			t.Errorf("%s: %v, want ErrSealed", name, err)
		}
		if test.keyring.Current(test.record) {
			t.Errorf("%s: Current = true", name)
		}
	}
}

func TestOpen_ChangedRecordOrContext_ReturnsError(t *testing.T) {
	keyring := newKeyring(t, keyOf(1), keyOf(2))
	record := keyring.Seal(secretA, "wh_1")

	for _, context := range []string{"", "wh_2", "wh_", "wh_11", "WH_1", "wh_1\x00"} {
		if opened, err := keyring.Open(record, context); !errors.Is(err, signing.ErrDamaged) || !opened.IsZero() {
			t.Errorf("context %q: %v, want ErrDamaged", context, err)
		}
	}
	for bit := range 8 * len(record) {
		flipped := bytes.Clone(record)
		flipped[bit/8] ^= 1 << (bit % 8)
		want := signing.ErrDamaged
		if 1 <= bit/8 && bit/8 < 5 {
			want = signing.ErrSealed // another key's name
		}
		if opened, err := keyring.Open(flipped, "wh_1"); !errors.Is(err, want) || !opened.IsZero() {
			t.Errorf("bit %d flipped: %v, want %v", bit, err, want)
		}
	}
	for n := 1; n < len(record); n++ { // the empty record is the zero Secret
		if opened, err := keyring.Open(record[:n], "wh_1"); !errors.Is(err, signing.ErrDamaged) || !opened.IsZero() {
			t.Errorf("truncated to %d bytes: %v, want ErrDamaged", n, err)
		}
	}
	if _, err := keyring.Open(append(bytes.Clone(record), 0), "wh_1"); !errors.Is(err, signing.ErrDamaged) {
		t.Errorf("one byte appended: %v, want ErrDamaged", err)
	}

	// The record of one key with the name of another key.
	renamed := bytes.Clone(record)
	copy(renamed[1:5], newKeyring(t, keyOf(2)).Seal(secretA, "wh_1")[1:5])
	if _, err := keyring.Open(renamed, "wh_1"); !errors.Is(err, signing.ErrDamaged) {
		t.Errorf("another key's name: %v, want ErrDamaged", err)
	}
}

func TestKeyring_InputsChanged_IsUnaffected(t *testing.T) {
	key := keyOf(1)
	keyring := newKeyring(t, key)
	record := keyring.Seal(secretA, "wh_1")
	clear(key)
	given := bytes.Clone(record)
	opened, err := keyring.Open(given, "wh_1")
	clear(given)
	if err != nil || !opened.Equal(secretA) {
		t.Errorf("Keyring or secret shares memory with its inputs: %v", err)
	}
}

func TestOpen_FirstFormat_StillOpens(t *testing.T) {
	record, err := hex.DecodeString(sealedForEver)
	if err != nil {
		t.Fatal(err)
	}
	keyring := newKeyring(t, keyOf(2), keyOf(1))
	opened, err := keyring.Open(record, "wh_1")
	if err != nil || !opened.Equal(secretA) {
		t.Errorf("%v, or another secret", err)
	}
	if keyring.Current(record) || !newKeyring(t, keyOf(1)).Current(record) {
		t.Error("Current does not recognize the key by its name")
	}
}

func TestKeyring_ConcurrentUse(t *testing.T) {
	keyring := newKeyring(t, keyOf(1), keyOf(2))
	record := keyring.Seal(secretA, "wh_1")
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			secret, context := secretOf(byte(g)), fmt.Sprint("wh_", g)
			for range 100 {
				if opened, err := keyring.Open(keyring.Seal(secret, context), context); err != nil || !opened.Equal(secret) {
					t.Errorf("own record: %v, or another secret", err)
				}
				if opened, err := keyring.Open(record, "wh_1"); err != nil || !opened.Equal(secretA) {
					t.Errorf("shared record: %v, or another secret", err)
				}
			}
		})
	}
	wg.Wait()
}
