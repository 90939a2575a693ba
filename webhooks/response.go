package webhooks

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"unicode/utf8"
)

const (
	maxResponseHeader = 16 << 10 // bytes accepted of a response
	maxResponseBody   = 4 << 10  // read, so that its connection can be used again
	maxResponse       = 1 << 10  // of the body kept
	redacted          = "[redacted]"
)

var responseBuffers = sync.Pool{New: func() any { return new([maxResponseBody]byte) }}

// A response is a receiver's final response, whose body is yet to be read.
type response struct {
	status int
	header http.Header // nil: nothing in it matters
	body   io.Reader   // nil: there is none
	last   bool        // the connection cannot be used after it
}

// read reads the body, as far as it comes, and returns what is kept of it
// ([Attempt.Response]), without the secrets, and whether that was all of it. One that
// is compressed is not kept: to make sense of it one would have to let it grow.
func (r *response) read(secrets ...string) (kept string, whole bool) {
	buffer := responseBuffers.Get().(*[maxResponseBody]byte)
	defer responseBuffers.Put(buffer)
	n, err := 0, error(nil)
	for more := 0; n < len(buffer) && err == nil; n += more {
		more, err = r.body.Read(buffer[n:])
	}
	if encoding := r.header.Get("Content-Encoding"); encoding == "" || strings.EqualFold(encoding, "identity") {
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
// bytes or more in a row: who echoes a secret may cut it off, or escape some of it.
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
			done.WriteString(redacted)
			rest = rest[to:]
		}
		if done.Len() > 0 {
			text = done.String() + rest
		}
	}
	return text
}
