// Package jsontext appends strings and times to JSON, at a quarter of the cost of encoding/json:
//
//	b = jsontext.AppendString(append(b, `{"id":`...), f.ID)
//	b = jsontext.AppendTime(append(b, `,"at":"`...), at)
package jsontext

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// AppendString appends a quoted string. It replaces invalid UTF-8 with U+FFFD, and does not escape
// "<", ">" and "&".
func AppendString(b []byte, text string) []byte {
	b = append(b, '"')
	begin := len(b)
	b = append(b, text...)
	isPlain, isASCII := scan(b[begin:])
	if !isASCII && !utf8.ValidString(text) {
		isPlain, text = false, strings.ToValidUTF8(text, string(utf8.RuneError))
	}
	if !isPlain {
		b = appendEscaped(b[:begin], text)
	}
	return append(b, '"')
}

// scan reports whether nothing in the text must be escaped, and whether it is ASCII.
func scan(text []byte) (isPlain, isASCII bool) {
	const ones = 0x0101010101010101
	var low, all uint64
	rest := text
	for ; len(rest) >= 8; rest = rest[8:] { // a byte below ' ' borrows from the bit above it
		eight := binary.LittleEndian.Uint64(rest)
		low |= (eight - ' '*ones) &^ eight
		all |= eight
	}
	for _, c := range rest {
		low |= (uint64(c) - ' ') &^ uint64(c)
		all |= uint64(c)
	}
	isPlain = low&(0x80*ones) == 0 && bytes.IndexByte(text, '"') < 0 && bytes.IndexByte(text, '\\') < 0
	return isPlain, all&(0x80*ones) == 0
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

// AppendTime appends a time in the format used throughout the API, without quotes: RFC 3339 in UTC
// with milliseconds.
func AppendTime(b []byte, at time.Time) []byte {
	b = at.UTC().AppendFormat(b, time.RFC3339) // the time package has a fast path for this layout
	ms := at.Nanosecond() / int(time.Millisecond)
	return append(b[:len(b)-1], '.', byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10), 'Z')
}

// AppendValue appends a value as encoding/json does, without escaping "<", ">" and "&".
func AppendValue(b []byte, value any) ([]byte, error) {
	buffer := bytes.NewBuffer(b)
	encoder := json.NewEncoder(buffer)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return bytes.TrimSuffix(buffer.Bytes(), []byte("\n")), err
}
