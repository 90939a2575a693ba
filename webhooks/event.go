package webhooks

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/input"
	"github.com/storageapi/storageapi/internal/jsontext"
)

// Data is the payload of an event. Package alerts and hosts define payload types, which must
// encode to a JSON object in UTF-8.
type Data interface {
	// EventType returns the event type of the payload, which must be declared in [Config.Events].
	EventType() EventType
}

// An Event is an event to publish.
type Event struct {
	// ID identifies the event in its account: 1 to 64 letters, digits, underscores and hyphens.
	// Publishing the same ID again changes nothing, so a host that does not know whether Publish
	// succeeded can call it again. Default: "evt_" followed by a new ULID.
	ID string

	// Account is the account whose webhooks receive the event.
	Account string

	// Resource is the host's resource that the event is about: 1 to 128 visible ASCII characters.
	// Webhooks that are limited to resources get the event only if this is one of them. Default: none.
	Resource string

	// Timestamp is when the event happened. Default: now.
	Timestamp time.Time

	// TraceContext is stored with the event, so that its attempts, even days later and in another
	// process, can be linked to the trace of its publication: see [observe.Attempt]. At most 64
	// visible ASCII characters, such as a W3C traceparent. Default: the result of
	// [Config.TraceContext].
	TraceContext string

	// Data is the payload. Its type must be declared in [Config.Events]. Required.
	Data Data
}

// maxBody limits the size of an encoded event, because receivers commonly refuse larger requests.
const maxBody = 256 << 10

// encode validates an event against the known types and encodes it.
func (e Event) encode(known *vocabulary) (EncodedEvent, error) {
	if err := input.Account(e.Account); err != nil {
		return EncodedEvent{}, err
	}
	if !validEventID(e.ID) {
		return EncodedEvent{}, input.Invalid("id", "must be 1 to 64 letters, digits, underscores and hyphens")
	}
	if !validTraceContext(e.TraceContext) {
		return EncodedEvent{}, input.Invalid("traceContext", "must be at most 64 visible ASCII characters")
	}
	if e.Resource != "" && !auth.IsResource(e.Resource) {
		return EncodedEvent{}, input.Invalid("resource", "must be at most 128 visible ASCII characters")
	}
	declared, err := known.of(e.Data)
	if err != nil {
		return EncodedEvent{}, err
	}
	at := e.Timestamp.UTC().Truncate(time.Millisecond)
	if !writable(at) {
		return EncodedEvent{}, input.Invalid("timestamp", "must be in the years 0 to 9999")
	}
	encoded, err := newEncodedEvent(e.ID, e.Account, declared.Type, at, func(body []byte) ([]byte, error) { return declared.append(body, e.Data) })
	if err != nil {
		return EncodedEvent{}, err
	}
	encoded.TraceContext, encoded.Resource, encoded.Scope = e.TraceContext, e.Resource, declared.Scope
	if n := len(encoded.Body); n > maxBody {
		return EncodedEvent{}, input.Invalid("data", fmt.Sprintf("must encode to at most %d bytes, got %d", maxBody, n))
	}
	return encoded, nil
}

// newEncodedEvent returns an event with its JSON body. IDs, types and timestamps need no
// escaping.
func newEncodedEvent(id, account string, t EventType, at time.Time, appendData func([]byte) ([]byte, error)) (EncodedEvent, error) {
	body := append(make([]byte, 0, 256), `{"id":"`...)
	body = append(body, id...)
	body = append(body, `","type":"`...)
	body = append(body, t...)
	body = append(body, `","timestamp":"`...)
	body = jsontext.AppendTime(body, at)
	body = append(body, `","data":`...)
	body, err := appendData(body)
	return EncodedEvent{ID: id, Account: account, Type: t, Timestamp: at, Body: append(body, '}')}, err
}

// append validates a payload and appends it as a JSON object.
func (d *EventDeclaration) append(body []byte, data Data) (appended []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			appended, err = nil, input.Invalid("data", fmt.Sprintf("must encode to a JSON object: %T panics", data))
		}
	}()
	begin := len(body)
	if d.Append != nil {
		appended, err = d.Append(body, data)
	} else {
		appended, err = jsontext.AppendValue(body, data)
	}
	if rule, ok := errors.AsType[*apierr.ValidationError](err); ok {
		return nil, rule
	}
	switch {
	case err != nil:
		return nil, input.Invalid("data", "must encode to a JSON object: "+err.Error())
	case len(appended) <= begin || appended[begin] != '{':
		return nil, input.Invalid("data", fmt.Sprintf("must encode to a JSON object, which %T does not", data))
	case !utf8.Valid(appended[begin:]): // json does not check MarshalJSON output
		return nil, input.Invalid("data", fmt.Sprintf("must encode to UTF-8, which %T does not", data))
	}
	return appended, nil
}

// typeOf returns the type of a payload.
func typeOf(data Data) (t EventType, err error) {
	defer func() {
		if recover() != nil { // data is nil, or a nil pointer
			t, err = "", input.Invalid("data", "must be a payload of a declared type, not nil")
		}
	}()
	return data.EventType(), nil
}

// writable reports whether t can be written as a timestamp.
func writable(t time.Time) bool { return t.UTC().Year() >= 0 && t.UTC().Year() <= 9999 }

// validEventID reports whether id is a valid event ID. Full stops are not allowed, because they
// separate the parts of the signed content (Standard Webhooks).
func validEventID(id string) bool {
	for i := range len(id) {
		c := id[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-') {
			return false
		}
	}
	return id != "" && len(id) <= 64
}

// TypeTest is the type of events from [WebhookService.SendTest]. Webhooks cannot subscribe to it,
// hosts cannot publish it, and [WebhookService.EventTypes] does not return it.
const TypeTest EventType = "webhook.test"
