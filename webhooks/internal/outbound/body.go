package outbound

import (
	"io"
	"strings"
	"sync"
	"unicode/utf8"
)

// Redacted replaces each secret in [Response.Body].
const Redacted = "[redacted]"

const (
	maxResponseHeader = 16 << 10 // bytes
	maxResponseBody   = 4 << 10  // bytes read; the connection of a longer body cannot be reused
	maxResponse       = 1 << 10  // bytes of the body returned
)

var bodyBuffers = sync.Pool{New: func() any { return new([maxResponseBody]byte) }}

// read reads up to maxResponseBody bytes of the body. It returns the beginning with the secrets
// redacted, and whether it read the whole body. It drops a compressed body, since decompressing
// it could take any amount of memory.
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

// clean returns at most maxResponse bytes of a text as valid UTF-8 without NUL, with the secrets
// redacted.
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

// redact replaces every common substring of text and secret of 15 bytes or more, because a
// receiver that echoes a secret may truncate it or escape parts of it.
func redact(text, secret string) string {
	const piece = 8 // any 15 consecutive bytes of the secret contain a whole piece
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
