package apikeys_test

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/store/memory"
)

// Verify must not panic for any header value, and must accept only the exact token of a valid key.
func FuzzVerify(f *testing.F) {
	store := newSpy()
	service := newService(f, store, apikeys.Config{})
	_, token := create(f, service, time.Time{})
	good := token.Reveal()
	f.Add(good)
	f.Add("")
	f.Add("sak_")
	f.Add(good + " ")
	f.Add(strings.ToLower(good))
	f.Add(numbered(1))
	f.Add(forge("live_sak", strings.Repeat("z", 32)))
	f.Add(forge("\x00", strings.Repeat("0", 32)))
	f.Fuzz(func(t *testing.T, text string) {
		if text == good {
			accepted(t, service, text)
			return
		}
		before := store.reads
		refused(t, service, text)
		if store.reads > before && !isForged(text) {
			t.Errorf("%q is malformed, and the store was asked", text)
		}
	})
}

// isForged reports whether text has the format of a token and the right checksum.
func isForged(text string) bool {
	if len(text) < 40 || len(text) > 55 {
		return false
	}
	split := len(text) - 39
	random := text[split+1 : split+33]
	return strings.Trim(random, base62) == "" && text == forge(text[:split], random)
}

// FuzzDigest checks that each digest is either accepted because it has a documented form, or
// refused with an error that names the field. No digest may work as a key value.
func FuzzDigest(f *testing.F) {
	for _, seed := range []string{
		"", sum("a"), hex.EncodeToString([]byte(sum("a"))), base64.StdEncoding.EncodeToString([]byte(sum("a"))), base64.RawURLEncoding.EncodeToString([]byte(sum("b"))),
		"$2b$12$EixZaYVK1fsbw1ZfbX3OXePaWxn96p36WQoeG6Lruj3vjPGga31lW", "$argon2id$v=19$m=65536,t=3,p=4$c2FsdA$aGFzaA", strings.Repeat("=", 43), strings.Repeat("A", 42) + "\n=",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, digest string) {
		s, _ := newImporter(t, memory.New())
		result := s.Import(t.Context(), account, []apikeys.ImportedKey{ofTable("tail", digest)})[0]
		var wrong *apierr.ValidationError
		switch {
		case result.Err == nil && (len(digest) < 32 || len(digest) > 64):
			t.Errorf("%q is taken", digest)
		case result.Err != nil && (!errors.As(result.Err, &wrong) || wrong.Field != "Digest" || result.KeyID != ""):
			t.Errorf("%q: %+v", digest, result)
		}
		refused(t, s, digest)
	})
}
