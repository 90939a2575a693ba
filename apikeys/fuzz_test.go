package apikeys_test

import (
	"strings"
	"testing"
	"time"

	"github.com/storageapi/storageapi/apikeys"
)

// Whatever the header holds, Verify does not panic, and only the exact token of
// a live key is accepted.
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

// isForged reports whether text has the form of a token and the right checksum.
func isForged(text string) bool {
	if len(text) < 40 || len(text) > 55 {
		return false
	}
	split := len(text) - 39
	random := text[split+1 : split+33]
	return strings.Trim(random, base62) == "" && text == forge(text[:split], random)
}
