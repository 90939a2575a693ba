package signing_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"

	"github.com/storageapi/storageapi/signing"
)

// FuzzDataKeyOpen checks that only three records can be opened: the empty record, the text of a
// secret, and the one sealed record.
func FuzzDataKeyOpen(f *testing.F) {
	forEver, err := hex.DecodeString(sealedForEver)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(forEver, "wh_1")
	f.Add(forEver, "wh_2")
	f.Add(forEver[:40], "wh_1")
	f.Add(forEver[:5], "")
	f.Add([]byte{}, "wh_1")
	f.Add([]byte{1}, "wh_1")
	f.Add([]byte(secretA.Reveal()), "wh_1")
	f.Add([]byte("whsec_"), "wh_1")
	key := signing.DataKeyOf(keyOf(1))
	f.Fuzz(func(t *testing.T, record []byte, context string) {
		for _, key := range []*signing.DataKey{nil, key} {
			key.Current(record)
			secret, err := key.Open(record, context)
			switch {
			case err != nil:
				if !errors.Is(err, signing.ErrSealed) && !errors.Is(err, signing.ErrDamaged) || !secret.IsZero() {
					t.Errorf("err = %v, want ErrSealed or ErrDamaged", err)
				}
			case secret.Reveal() == string(record):
			case key == nil || !bytes.Equal(record, forEver) || context != "wh_1" || !secret.Equal(secretA):
				t.Errorf("opened %x for %q", record, context)
			}
		}
		secret := secretB
		if opened, err := key.Open(key.Seal(secret, context), context); err != nil || !opened.Equal(secret) {
			t.Errorf("context %q: %v, or another secret", context, err)
		}
	})
}
