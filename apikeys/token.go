package apikeys

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"hash/crc32"
	"log/slog"
	"strings"

	"github.com/storageapi/storageapi/internal/input"
	"github.com/storageapi/storageapi/store/driver"
)

// A token is <prefix>_<32 random characters><6 characters of CRC-32>, the last 38 in base62. The
// checksum covers everything before it. It reveals typos and foreign prefixes without a read of the
// store, and lets secret scanners tell keys from similar strings.
const (
	alphabet      = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	randomLength  = 32 // 62³² > 2¹⁹⁰
	sumLength     = 6  // 62⁶ > 2³²
	hintLength    = 4
	maxPrefix     = 16
	defaultPrefix = "sak"

	notADigit = 64

	maxTokenLength = maxPrefix + 1 + randomLength + sumLength
)

// digits maps a byte to its base62 digit, or to notADigit, a bit that is set in no digit.
var digits = func() (table [256]byte) {
	for i := range table {
		table[i] = notADigit
	}
	for i := range len(alphabet) {
		table[alphabet[i]] = byte(i)
	}
	return table
}()

// redacted makes a type print, marshal and log as "[redacted]".
type redacted struct{}

const redactedText = "[redacted]"

func (redacted) String() string               { return redactedText }
func (redacted) GoString() string             { return redactedText }
func (redacted) Format(f fmt.State, _ rune)   { _, _ = f.Write([]byte(redactedText)) }
func (redacted) MarshalText() ([]byte, error) { return []byte(redactedText), nil }
func (redacted) MarshalJSON() ([]byte, error) { return []byte(`"` + redactedText + `"`), nil }
func (redacted) LogValue() slog.Value         { return slog.StringValue(redactedText) }

// A Token is the secret value of an API key. It prints, marshals and logs as
// "[redacted]", even inside other values; only [Token.Reveal] returns it. The
// zero Token means no token.
type Token struct {
	redacted
	open func() string // a function, because fmt and others print all other fields
}

// Reveal returns the token's text. Show it once, to the person or program that created the key.
func (t Token) Reveal() string {
	if t.open == nil {
		return ""
	}
	return t.open()
}

// Hint returns a text by which people recognize the token, such as "sak_…k3Qz": its prefix and the
// last four random characters, which precede the checksum. The other 28 characters, 166 bits, stay
// secret. The hint of the zero Token is empty.
func (t Token) Hint() string {
	text := t.Reveal()
	if len(text) < hintLength+sumLength {
		return ""
	}
	random := text[:len(text)-sumLength]
	return random[:len(random)-randomLength] + "…" + random[len(random)-hintLength:]
}

// Hash returns the hash that is stored for the token.
func (t Token) Hash() driver.Hash { return hashOf(t.Reveal()) }

func hashOf(token string) driver.Hash {
	var buf [maxTokenLength]byte
	n := copy(buf[:], token)
	return driver.Hash{Sum: sha256.Sum256(buf[:n])}
}

// newToken returns a new random token.
func newToken(prefix string) Token {
	b := make([]byte, 0, maxTokenLength)
	b = append(b, prefix...)
	b = append(b, '_')
	var random [64]byte
	for n := 0; n < randomLength; {
		_, _ = rand.Read(random[:]) // never returns an error, but crashes the program
		for _, r := range random {
			// 248 = 4 × 62, so the remainder modulo 62 is uniform.
			if r < 248 && n < randomLength {
				b = append(b, alphabet[r%62])
				n++
			}
		}
	}
	b = appendSum(b, checksum(string(b)))
	text := string(b)
	return Token{open: func() string { return text }}
}

// checksum returns the CRC-32 (IEEE) of text. It avoids crc32.ChecksumIEEE, whose argument
// escapes to the heap: rejecting an invalid token must not allocate.
func checksum(text string) uint32 {
	sum := ^uint32(0)
	for i := range len(text) {
		sum = crc32.IEEETable[byte(sum)^text[i]] ^ sum>>8
	}
	return ^sum
}

func appendSum(b []byte, sum uint32) []byte {
	var text [sumLength]byte
	for i := sumLength - 1; i >= 0; i-- {
		text[i] = alphabet[sum%62]
		sum /= 62
	}
	return append(b, text[:]...)
}

// wellFormed reports whether token has the format of a token and the right
// checksum. Any prefix is allowed, because keys outlive a change of Config.Prefix.
func wellFormed(token string) bool {
	split := len(token) - randomLength - sumLength - 1
	if split < 1 || split > maxPrefix || token[split] != '_' {
		return false
	}
	body := len(token) - sumLength
	var bad byte
	for i := split + 1; i < body; i++ {
		bad |= digits[token[i]]
	}
	sum := uint64(0)
	for i := body; i < len(token); i++ {
		digit := digits[token[i]]
		bad |= digit
		sum = sum*62 + uint64(digit)
	}
	if bad >= notADigit {
		return false
	}
	return sum == uint64(checksum(token[:body]))
}

// checkPrefix rejects prefixes that are unsafe in a header, a shell or a secret
// scanner's pattern.
func checkPrefix(prefix string) error {
	const rule = "must be 1 to 16 characters, lower-case letters, digits and underscores, and start with a letter"
	if prefix == "" || len(prefix) > maxPrefix || strings.Trim(prefix, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" ||
		prefix[0] < 'a' {
		return input.Invalid("Prefix", rule)
	}
	return nil
}
