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

func TestDataKey_SealThenOpen_ReturnsSecret(t *testing.T) {
	keys := map[string]*signing.DataKey{"nil": nil, "zero": {}, "random": signing.NewDataKey()}
	var zero signing.Secret
	parse := func(n int) signing.Secret {
		return parseSecrets(t, []string{"whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{1}, n))})[0]
	}
	secrets := map[string]signing.Secret{
		"zero": zero, "new": signing.NewSecret(), "24 bytes": parse(24), "64 bytes": parse(64),
	}
	for name, key := range keys {
		for kind, secret := range secrets {
			for _, context := range []string{"", "wh_1", strings.Repeat("x", 10_000)} {
				record := key.Seal(secret, context)
				opened, err := key.Open(bytes.Clone(record), context)
				if err != nil || !opened.Equal(secret) || !key.Current(record) {
					t.Errorf("%s key, %s secret: %v, or another secret, or not current", name, kind, err)
				}
			}
		}
	}
}

// Records of a nil DataKey must have the format that was used before sealing was introduced.
func TestDataKey_Nil_StoresPlainText(t *testing.T) {
	var none *signing.DataKey
	if got := string(none.Seal(secretA, "wh_1")); got != secretA.Reveal() {
		t.Error("record of a nil DataKey is not the secret's text")
	}
	key := signing.DataKeyOf(keyOf(1))
	opened, err := key.Open([]byte(secretA.Reveal()), "wh_1")
	if err != nil || !opened.Equal(secretA) || key.Current([]byte(secretA.Reveal())) {
		t.Errorf("opening a plain record: %v, or another secret, or it is current", err)
	}
	for _, bad := range []string{"w", "whsec_", secretA.Reveal()[:20], secretA.Reveal() + "\n", " ", "\x00", "\x02" + secretA.Reveal()} {
		for _, key := range []*signing.DataKey{nil, key} {
			if opened, err := key.Open([]byte(bad), "wh_1"); !errors.Is(err, signing.ErrDamaged) || !opened.IsZero() {
				t.Errorf("opening a bad plain record: %v, want ErrDamaged", err)
			}
		}
	}
}

func TestSeal_Record_HidesSecret(t *testing.T) {
	key := signing.DataKeyOf(keyOf(1))
	record := key.Seal(secretA, "wh_1")
	if len(record) != 65 {
		t.Errorf("record of a 32-byte secret has %d bytes, want 65", len(record))
	}
	if bytes.Contains(record, []byte("aaaa")) || bytes.Contains(record, []byte("YWFh")) || bytes.Contains(record, []byte("whsec")) {
		t.Error("record contains the secret")
	}
	if bytes.Equal(record, key.Seal(secretA, "wh_1")) {
		t.Error("sealing twice returned the same record")
	}
}

func TestDataKey_RecordOfAnotherKey_IsErrSealed(t *testing.T) {
	record := signing.DataKeyOf(keyOf(1)).Seal(secretA, "wh_1")
	for name, key := range map[string]*signing.DataKey{"another": signing.DataKeyOf(keyOf(2)), "nil": nil, "zero": {}} {
		if opened, err := key.Open(record, "wh_1"); !errors.Is(err, signing.ErrSealed) || !opened.IsZero() {
			t.Errorf("%s key: %v, want ErrSealed", name, err)
		}
		if key.Current(record) {
			t.Errorf("%s key: Current = true", name)
		}
	}
}

func TestOpen_ChangedRecordOrContext_ReturnsError(t *testing.T) {
	key := signing.DataKeyOf(keyOf(1))
	record := key.Seal(secretA, "wh_1")

	for _, context := range []string{"", "wh_2", "wh_", "wh_11", "WH_1", "wh_1\x00"} {
		if opened, err := key.Open(record, context); !errors.Is(err, signing.ErrDamaged) || !opened.IsZero() {
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
		if opened, err := key.Open(flipped, "wh_1"); !errors.Is(err, want) || !opened.IsZero() {
			t.Errorf("bit %d flipped: %v, want %v", bit, err, want)
		}
	}
	for n := 1; n < len(record); n++ { // the empty record is the zero Secret
		if opened, err := key.Open(record[:n], "wh_1"); !errors.Is(err, signing.ErrDamaged) || !opened.IsZero() {
			t.Errorf("truncated to %d bytes: %v, want ErrDamaged", n, err)
		}
	}
	if _, err := key.Open(append(bytes.Clone(record), 0), "wh_1"); !errors.Is(err, signing.ErrDamaged) {
		t.Errorf("one byte appended: %v, want ErrDamaged", err)
	}
}

func TestDataKey_RecordChanged_LeavesSecret(t *testing.T) {
	key := signing.DataKeyOf(keyOf(1))
	given := key.Seal(secretA, "wh_1")
	opened, err := key.Open(given, "wh_1")
	clear(given)
	if err != nil || !opened.Equal(secretA) {
		t.Errorf("the secret shares memory with its record: %v", err)
	}
}

func TestOpen_FirstFormat_StillOpens(t *testing.T) {
	record, err := hex.DecodeString(sealedForEver)
	if err != nil {
		t.Fatal(err)
	}
	key := signing.DataKeyOf(keyOf(1))
	opened, err := key.Open(record, "wh_1")
	if err != nil || !opened.Equal(secretA) {
		t.Errorf("%v, or another secret", err)
	}
	if !key.Current(record) || signing.DataKeyOf(keyOf(2)).Current(record) {
		t.Error("Current does not recognize the key by its name")
	}
}

func TestDataKey_ConcurrentUse(t *testing.T) {
	key := signing.DataKeyOf(keyOf(1))
	record := key.Seal(secretA, "wh_1")
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			secret, context := secretOf(byte(g)), fmt.Sprint("wh_", g)
			for range 100 {
				if opened, err := key.Open(key.Seal(secret, context), context); err != nil || !opened.Equal(secret) {
					t.Errorf("own record: %v, or another secret", err)
				}
				if opened, err := key.Open(record, "wh_1"); err != nil || !opened.Equal(secretA) {
					t.Errorf("shared record: %v, or another secret", err)
				}
			}
		})
	}
	wg.Wait()
}
