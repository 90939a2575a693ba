package webhooks

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// An Event is what a host publishes.
type Event struct {
	// ID identifies the event in its account: 1 to 64 letters, digits,
	// underscores and hyphens. Publishing an id again is publishing the same
	// event: it changes nothing, so a host that does not know whether Publish
	// succeeded calls it again. Default: a new id, "evt_" and a ULID.
	ID string

	// Account is whose webhooks receive the event.
	Account string

	// Timestamp is when what the event tells happened. Default: now.
	Timestamp time.Time

	// Data is what happened, a value of one of the payload types. Required.
	Data Data
}

// maxBody bounds an encoded event: receivers commonly refuse larger ones.
const maxBody = 256 << 10

// An EncodedEvent is an event as it is stored, signed and sent.
type EncodedEvent struct {
	ID        string // unique in its account
	Account   string
	Type      EventType
	Timestamp time.Time // UTC, to the millisecond

	// Body is the JSON that receivers get, to the byte:
	// {"id":…,"type":…,"timestamp":…,"data":…}. Nobody changes it.
	Body []byte
}

// encode checks an event and encodes it once and for all.
func (e Event) encode() (EncodedEvent, error) {
	if err := checkAccount(e.Account); err != nil {
		return EncodedEvent{}, err
	}
	if !validEventID(e.ID) {
		return EncodedEvent{}, invalid("id", "must be 1 to 64 letters, digits, underscores and hyphens")
	}
	switch e.Data.(type) {
	case FilesExpiring, BalanceLow, BandwidthLimitApproaching, BandwidthLimitReached, TransactionsLimitApproaching, TransactionsLimitReached:
	default: // nil, a pointer, or a type that embeds one of them
		return EncodedEvent{}, invalid("data", "must be a value of one of the payload types, such as webhooks.BalanceLow")
	}
	if err := e.Data.check(); err != nil {
		return EncodedEvent{}, err
	}
	at := e.Timestamp.UTC().Truncate(time.Millisecond)
	if !writable(at) {
		return EncodedEvent{}, invalid("timestamp", "must be in the years 0 to 9999")
	}
	encoded, err := newEncodedEvent(e.ID, e.Account, e.Data.Type(), at, e.Data)
	if err != nil {
		return EncodedEvent{}, err
	}
	if n := len(encoded.Body); n > maxBody {
		return EncodedEvent{}, invalid("data", fmt.Sprintf("must make a body of at most %d bytes, not %d", maxBody, n))
	}
	return encoded, nil
}

// newEncodedEvent returns an event with its body. Neither an id, a type nor a timestamp
// has anything to escape.
func newEncodedEvent(id, account string, t EventType, at time.Time, data any) (EncodedEvent, error) {
	body := make([]byte, 0, 128+sizeOf(data))
	body = append(body, `{"id":"`...)
	body = append(body, id...)
	body = append(body, `","type":"`...)
	body = append(body, t...)
	body = append(body, `","timestamp":"`...)
	body = appendTimestamp(body, at)
	body = append(body, `","data":`...)
	body, err := appendData(body, data)
	return EncodedEvent{id, account, t, at, append(body, '}')}, err
}

// sizeOf returns about how many bytes a payload takes.
func sizeOf(data any) (size int) {
	files, ok := data.(FilesExpiring)
	if !ok {
		return 128
	}
	for _, f := range files.Files {
		size += 96 + len(f.ID) + len(f.Name) + len(f.EnvironmentID)
	}
	return size
}

// appendData appends a payload as JSON, "<", ">" and "&" as they are.
func appendData(body []byte, data any) ([]byte, error) {
	switch data := data.(type) {
	case FilesExpiring:
		return data.append(body), nil
	case BalanceLow:
		return data.append(body), nil
	}
	b := bytes.NewBuffer(body)
	encoder := json.NewEncoder(b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(data); err != nil {
		return nil, fmt.Errorf("encode event: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// appendQuoted appends a string as JSON. What is no UTF-8 becomes U+FFFD.
func appendQuoted(b []byte, text string) []byte {
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, string(utf8.RuneError))
	}
	b = append(b, '"')
	begin := len(b)
	b = append(b, text...)
	if !isPlainText(b[begin:]) {
		b = appendEscaped(b[:begin], text)
	}
	return append(b, '"')
}

// isPlainText reports whether nothing in the text has to be escaped.
func isPlainText(text []byte) bool {
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

// appendTimestamp appends the time as everywhere on the wire: RFC 3339 in UTC with
// milliseconds, by way of the layout that the time package is quick at.
func appendTimestamp(b []byte, at time.Time) []byte {
	b = at.UTC().AppendFormat(b, time.RFC3339)
	ms := at.Nanosecond() / int(time.Millisecond)
	return append(b[:len(b)-1], '.', byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10), 'Z')
}

// writable reports whether a timestamp can say the time.
func writable(t time.Time) bool { return t.UTC().Year() >= 0 && t.UTC().Year() <= 9999 }

// validEventID keeps ids apart from the signed content around them: a full stop
// separates its parts (Standard Webhooks).
func validEventID(id string) bool {
	for i := range len(id) {
		c := id[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-') {
			return false
		}
	}
	return id != "" && len(id) <= 64
}
