// Package jsontext appends values and times to JSON.
package jsontext

import (
	"bytes"
	"encoding/json"
	"time"
)

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
