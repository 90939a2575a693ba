package outbound

import (
	"io"
	"strings"
	"sync"
	"unicode/utf8"
)

// Redacted stands in [Response.Body] for a secret.
const Redacted = "[redacted]"

const (
	maxResponseHeader = 16 << 10 // bytes accepted of a response
	maxResponseBody   = 4 << 10  // read, so that its connection can be used again
	maxResponse       = 1 << 10  // of the body kept
)

var bodyBuffers = sync.Pool{New: func() any { return new([maxResponseBody]byte) }}

// read reads the body, as far as it comes, and returns its beginning without the secrets
// ([Response.Body]), and whether that was all of it. A compressed body is not kept: it
// could be understood only if it were allowed to grow.
func (h *head) read(secrets []string) (kept string, whole bool) {
	buffer := bodyBuffers.Get().(*[maxResponseBody]byte)
	defer bodyBuffers.Put(buffer)
	n, err := 0, error(nil)
	for more := 0; n < len(buffer) && err == nil; n += more {
		more, err = h.body.Read(buffer[n:])
	}
	if encoding := h.header.Get("Content-Encoding"); encoding == "" || strings.EqualFold(encoding, "identity") {
		kept = clean(string(buffer[:n]), secrets...)
	}
	return kept, err == io.EOF
}

// clean returns the beginning of a text without the secrets, as valid UTF-8 without
// NUL.
func clean(text string, secrets ...string) string {
	for _, secret := range secrets {
		text = redact(text, secret)
	}
	text = strings.ToValidUTF8(text, string(utf8.RuneError))
	text = strings.ReplaceAll(text, "\x00", string(utf8.RuneError))
	if len(text) <= maxResponse {
		return text
	}
	end := maxResponse
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return strings.Clone(text[:end])
}

// redact replaces what the text has in common with the secret, wherever that is 15
// bytes or more in a row: a receiver that echoes a secret may cut it off, or escape some
// of it.
func redact(text, secret string) string {
	const piece = 8 // any 15 bytes in a row hold one of the pieces
	for at := 0; at+piece <= len(secret); at += piece {
		var done strings.Builder
		rest := text
		for {
			from := strings.Index(rest, secret[at:at+piece])
			if from < 0 {
				break
			}
			to := from + piece
			for i := at + piece; i < len(secret) && to < len(rest) && rest[to] == secret[i]; i++ {
				to++
			}
			for i := at; i > 0 && from > 0 && rest[from-1] == secret[i-1]; i-- {
				from--
			}
			done.WriteString(rest[:from])
			done.WriteString(Redacted)
			rest = rest[to:]
		}
		if done.Len() > 0 {
			text = done.String() + rest
		}
	}
	return text
}
