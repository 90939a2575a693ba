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

	// TraceContext is kept with the event, so that its attempts, by whichever process and days
	// later, can be linked to the trace that it was published in: see [observe.Attempt]. At most
	// 64 visible ASCII characters, such as a W3C traceparent. Default: what
	// [Config.TraceContext] returns; with [WebhookService.Encode] none.
	TraceContext string

	// Data is what happened: a value of one of the payload types, or of a type of the
	// host's whose EventType is one of [Config.Events]. Required.
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

	// TraceContext is that of [Event], which is sent to receivers only with
	// [Outbound.SendTraceparent]. Empty: none.
	TraceContext string

	// Body is the JSON that receivers get, to the byte:
	// {"id":…,"type":…,"timestamp":…,"data":…}. It must not be changed.
	Body []byte
}

// encode checks an event of the types that there are, and encodes it once and for all.
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
	if slices.Contains(eventTypes[:], t) { // a host's own may embed one of these
		specified, _ := e.Data.(specified) // or else typeOf had refused it
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

// newEncodedEvent returns an event with its body. Neither an id, a type nor a timestamp
// has anything to escape.
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
	return appendObject(body, data)
}

// appendObject appends a payload of any type, which may be the host's, as a JSON object.
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
	if !utf8.Valid(b.Bytes()[len(body):]) { // package json passes on what a MarshalJSON returns
		return nil, invalid("data", fmt.Sprintf("must encode to UTF-8, which %T does not", data))
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// typeOf returns the type of a payload. Those of docs/spec.md, section 6, are values of the
// types of this package, and not what points to one or embeds it.
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

// TypeTest is the type of what [WebhookService.SendTest] sends. Nobody can subscribe
// to it nor publish it, and it is not among [EventTypes].
const TypeTest EventType = "webhook.test"

var eventTypes = [...]EventType{
	TypeFilesExpiring,
	TypeBalanceLow,
	TypeBandwidthLimitApproaching,
	TypeBandwidthLimitReached,
	TypeTransactionsLimitApproaching,
	TypeTransactionsLimitReached,
}

// EventTypes returns the types of docs/spec.md, section 6, in its order. Those that there
// are in a service, [WebhookService.EventTypes] returns.
func EventTypes() []EventType { return slices.Clone(eventTypes[:]) }
