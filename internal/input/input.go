// Package input validates the input that keys and webhooks have in common.
package input

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/storageapi/storageapi/apierr"
)

// PlainText reports whether s is UTF-8 without control characters.
func PlainText(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// Folded maps strings that differ only in case, in any script, to the same string. The result has
// the same number of characters.
func Folded(text string) string {
	return strings.Map(func(r rune) rune {
		least := r
		for form := unicode.SimpleFold(r); form != r; form = unicode.SimpleFold(form) {
			least = min(least, form)
		}
		return least
	}, text)
}

// Invalid returns a [*apierr.ValidationError].
func Invalid(field, reason string) error {
	return &apierr.ValidationError{Field: field, Reason: reason}
}

// InvalidFields returns the validation errors in err, or nil if err is another error.
func InvalidFields(err error) []*apierr.ValidationError {
	if all, ok := errors.AsType[apierr.ValidationErrors](err); ok {
		return all
	}
	if wrong, ok := errors.AsType[*apierr.ValidationError](err); ok {
		return []*apierr.ValidationError{wrong}
	}
	return nil
}

// JoinInvalid joins validation errors, at most one per field, and ignores nil errors. If one of errs
// is another error, JoinInvalid returns it instead.
func JoinInvalid(errs ...error) error {
	var all apierr.ValidationErrors
	for _, err := range errs {
		if err != nil && !errors.As(err, new(apierr.ValidationErrors)) && !errors.As(err, new(*apierr.ValidationError)) {
			return err
		}
		for _, wrong := range InvalidFields(err) {
			if !slices.ContainsFunc(all, func(known *apierr.ValidationError) bool { return known.Field == wrong.Field }) {
				all = append(all, wrong)
			}
		}
	}
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return all
}

// Account returns a [*apierr.ValidationError] if name is not valid as the name of an account, which
// the host chooses.
func Account(name string) error {
	if name == "" || len(name) > 128 || !PlainText(name) {
		return Invalid("account", "must be 1 to 128 bytes of UTF-8 without control characters")
	}
	return nil
}

// ID reports whether s may be passed to a store as an ID. Callers treat other strings as not found.
func ID(s string) bool { return s != "" && len(s) <= 128 && PlainText(s) }

// IdempotencyKey validates an idempotency key. It returns "" or the reason for rejecting it. An
// empty key is valid: the request is then not remembered.
func IdempotencyKey(key string) (reason string) {
	outside := func(r rune) bool { return r <= ' ' || r > '~' }
	if len(key) > 128 || strings.ContainsFunc(key, outside) {
		return "must be 1 to 128 visible ASCII characters"
	}
	return ""
}

// IdempotencyTTL is how long an idempotency key is remembered.
const IdempotencyTTL = 24 * time.Hour

// LimitedCount returns the limit of resources that applies to creations by a limited API key: half
// of maxCount, but at least 1. The other half is left to the account's owner. A negative maxCount
// means no limit.
func LimitedCount(maxCount int) int {
	if maxCount < 0 {
		return maxCount
	}
	return max(1, maxCount/2)
}

// MaxIdempotencyKeys returns the maximum number of idempotency keys that an account may have in
// use. maxCount is the limit on its resources. If maxCount is negative, the result is 0, which
// means no limit. API keys may use ten times maxCount, because an account can delete resources and
// create new ones; limited API keys may use half of that. The host, including its dashboard, may
// use twice as many as API keys, so that no API key can use up the host's share.
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

// Fingerprint returns a hash of the parts of a request. It depends on their order and boundaries.
func Fingerprint(parts ...string) (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, part := range parts {
		h.Write(binary.AppendUvarint(nil, uint64(len(part))))
		h.Write([]byte(part))
	}
	h.Sum(sum[:0])
	return sum
}
