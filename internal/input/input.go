// Package input holds the rules that keys and webhooks share for what callers give
// them.
package input

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// PlainText reports whether s is UTF-8 without control characters.
func PlainText(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// Folded returns text that is the same for texts that differ in upper and lower case alone, of
// whatever script. It has as many characters.
func Folded(text string) string {
	return strings.Map(func(r rune) rune {
		least := r
		for form := unicode.SimpleFold(r); form != r; form = unicode.SimpleFold(form) {
			least = min(least, form)
		}
		return least
	}, text)
}

// Account returns what is wrong with the name of an account, which the host chooses;
// "" if nothing is.
func Account(name string) (reason string) {
	if name == "" || len(name) > 128 || !PlainText(name) {
		return "must be 1 to 128 bytes of UTF-8 without control characters"
	}
	return ""
}

// ID reports whether a store may be asked for s: what is no id is not found.
func ID(s string) bool { return s != "" && len(s) <= 128 && PlainText(s) }

// IdempotencyKey returns what is wrong with an idempotency key; "" if nothing is.
// Empty is fine: the request is not remembered.
func IdempotencyKey(key string) (reason string) {
	outside := func(r rune) bool { return r <= ' ' || r > '~' }
	if len(key) > 128 || strings.ContainsFunc(key, outside) {
		return "must be 1 to 128 visible ASCII characters"
	}
	return ""
}

// IdempotencyTTL is how long an idempotency key is remembered.
const IdempotencyTTL = 24 * time.Hour

// MaxIdempotencyKeys returns how many idempotency keys an account may have in use where
// it may have maxCount things, for another creation by the host or by a key, which may be
// limited; 0 means any number. Keys may use ten times maxCount, because an account that deletes
// what it creates can create on; limited ones half of that. The host, with its dashboard, has
// as many again, so that no key can use them up.
func MaxIdempotencyKeys(maxCount int, host, limited bool) int {
	all := min(max(maxCount, 0), math.MaxInt/20) * 10
	switch {
	case host:
		return 2 * all
	case limited:
		return all / 2
	}
	return all
}

// Fingerprint returns a hash of the parts of a request, in their order.
func Fingerprint(parts ...string) (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, part := range parts {
		h.Write(binary.AppendUvarint(nil, uint64(len(part))))
		h.Write([]byte(part))
	}
	h.Sum(sum[:0])
	return sum
}
