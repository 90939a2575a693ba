package webhooks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/storageapi/storageapi/webhooks/internal/jsontext"
)

// An Event is an event for a host to publish.
type Event struct {
	// ID identifies the event in its account: 1 to 64 letters, digits, underscores and hyphens.
	// Publishing an ID again changes nothing, so a host that does not know whether Publish
	// succeeded can call it again. Default: a new ID, "evt_" and a ULID.
	ID string

	// Account is the account whose webhooks receive the event.
	Account string

	// Timestamp is when the event happened. Default: now.
	Timestamp time.Time

	// TraceContext is stored with the event, so that its attempts, even days later and in another
	// process, can be linked to the trace of its publication: see [observe.Attempt]. At most 64
	// visible ASCII characters, such as a W3C traceparent. Default: the result of
	// [Config.TraceContext]; with [WebhookService.Encode] none.
	TraceContext string

	// Data is the payload: a value of one of the payload types, or of a type of the host whose
	// EventType is declared in [Config.Events]. Required.
	Data Data
}

// maxBody limits an encoded event: receivers commonly refuse larger requests.
const maxBody = 256 << 10

// An EncodedEvent is an event as it is stored, signed and sent.
type EncodedEvent struct {
	ID        string // unique in its account
	Account   string
	Type      EventType
	Timestamp time.Time // UTC, to the millisecond

	// TraceContext is the trace context of the [Event]. Receivers get it only with
	// [Outbound.SendTraceparent]. Empty: none.
	TraceContext string

	// Body is the exact JSON that receivers get: {"id":…,"type":…,"timestamp":…,"data":…}. It must
	// not be changed.
	Body []byte
}

// encode validates an event against the known types and encodes it.
func (e Event) encode(known *vocabulary) (EncodedEvent, error) {
	if err := checkAccount(e.Account); err != nil {
		return EncodedEvent{}, err
	}
	if !validEventID(e.ID) {
		return EncodedEvent{}, invalid("id", "must be 1 to 64 letters, digits, underscores and hyphens")
	}
	if !validTraceContext(e.TraceContext) {
		return EncodedEvent{}, invalid("traceContext", "must be at most 64 visible ASCII characters")
	}
	t, err := typeOf(e.Data)
	if err != nil {
		return EncodedEvent{}, err
	}
	if !known.has(t) {
		return EncodedEvent{}, invalid("data", fmt.Sprintf("must be of a type that is declared in Config.Events, not of %.64q", t))
	}
	if slices.Contains(eventTypes[:], t) { // a host's own type may embed one of these
		specified, _ := e.Data.(specified) // typeOf has refused all others
		if err := specified.check(); err != nil {
			return EncodedEvent{}, err
		}
	}
	at := e.Timestamp.UTC().Truncate(time.Millisecond)
	if !writable(at) {
		return EncodedEvent{}, invalid("timestamp", "must be in the years 0 to 9999")
	}
	encoded, err := newEncodedEvent(e.ID, e.Account, t, at, e.Data)
	if err != nil {
		return EncodedEvent{}, err
	}
	encoded.TraceContext = e.TraceContext
	if n := len(encoded.Body); n > maxBody {
		return EncodedEvent{}, invalid("data", fmt.Sprintf("must make a body of at most %d bytes, not %d", maxBody, n))
	}
	return encoded, nil
}

// newEncodedEvent returns an event with its body. IDs, types and timestamps need no escaping.
func newEncodedEvent(id, account string, t EventType, at time.Time, data any) (EncodedEvent, error) {
	body := make([]byte, 0, 128+sizeOf(data))
	body = append(body, `{"id":"`...)
	body = append(body, id...)
	body = append(body, `","type":"`...)
	body = append(body, t...)
	body = append(body, `","timestamp":"`...)
	body = jsontext.AppendTime(body, at)
	body = append(body, `","data":`...)
	body, err := appendData(body, data)
	return EncodedEvent{ID: id, Account: account, Type: t, Timestamp: at, Body: append(body, '}')}, err
}

// sizeOf returns the approximate size of a payload in bytes.
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

// appendData appends a payload as JSON without escaping "<", ">" and "&".
func appendData(body []byte, data any) ([]byte, error) {
	switch data := data.(type) {
	case FilesExpiring:
		return data.append(body), nil
	case BalanceLow:
		return data.append(body), nil
	}
	return appendObject(body, data)
}

// appendObject appends a payload of any type, including host types, as a JSON object.
func appendObject(body []byte, data any) (appended []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			appended, err = nil, invalid("data", fmt.Sprintf("must encode to a JSON object: %T panics", data))
		}
	}()
	b := bytes.NewBuffer(body)
	encoder := json.NewEncoder(b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(data); err != nil {
		return nil, invalid("data", "must encode to a JSON object: "+err.Error())
	}
	if b.Bytes()[len(body)] != '{' {
		return nil, invalid("data", fmt.Sprintf("must encode to a JSON object, which %T does not", data))
	}
	if !utf8.Valid(b.Bytes()[len(body):]) { // json does not check MarshalJSON output
		return nil, invalid("data", fmt.Sprintf("must encode to UTF-8, which %T does not", data))
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// typeOf returns the type of a payload. Payloads in docs/spec.md, section 6, must be values of this
// package's types, not pointers to them or types that embed them.
func typeOf(data Data) (t EventType, err error) {
	wrong := invalid("data", "must be a value of one of the payload types, such as webhooks.BalanceLow")
	defer func() {
		if recover() != nil { // nil, or a nil pointer
			t, err = "", wrong
		}
	}()
	t = data.EventType()
	switch data.(type) {
	case FilesExpiring, BalanceLow, BandwidthLimitApproaching, BandwidthLimitReached, TransactionsLimitApproaching, TransactionsLimitReached:
		return t, nil
	}
	if slices.Contains(eventTypes[:], t) {
		return "", wrong
	}
	return t, nil
}

// writable reports whether t can be written as a timestamp.
func writable(t time.Time) bool { return t.UTC().Year() >= 0 && t.UTC().Year() <= 9999 }

// validEventID excludes full stops because they separate the parts of the signed content (Standard
// Webhooks).
func validEventID(id string) bool {
	for i := range len(id) {
		c := id[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-') {
			return false
		}
	}
	return id != "" && len(id) <= 64
}

// An EventType names a kind of event that a webhook can subscribe to.
type EventType string

// The event types of docs/spec.md, section 6.
const (
	TypeFilesExpiring                EventType = "files.expiring"
	TypeBalanceLow                   EventType = "balance.low"
	TypeBandwidthLimitApproaching    EventType = "bandwidth.limit_approaching"
	TypeBandwidthLimitReached        EventType = "bandwidth.limit_reached"
	TypeTransactionsLimitApproaching EventType = "transactions.limit_approaching"
	TypeTransactionsLimitReached     EventType = "transactions.limit_reached"
)

// TypeTest is the type of events from [WebhookService.SendTest]. It cannot be subscribed to or
// published, and is not among [EventTypes].
const TypeTest EventType = "webhook.test"

var eventTypes = [...]EventType{
	TypeFilesExpiring,
	TypeBalanceLow,
	TypeBandwidthLimitApproaching,
	TypeBandwidthLimitReached,
	TypeTransactionsLimitApproaching,
	TypeTransactionsLimitReached,
}

// EventTypes returns the types in docs/spec.md, section 6, in its order.
// [WebhookService.EventTypes] also returns the host's own types.
func EventTypes() []EventType { return slices.Clone(eventTypes[:]) }
