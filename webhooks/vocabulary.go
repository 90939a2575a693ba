package webhooks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/storageapi/storageapi/internal/input"
	"github.com/storageapi/storageapi/scopes"
)

// An EventDeclaration declares an event type, in [Config.Events]. Webhooks can subscribe to it.
type EventDeclaration struct {
	// Type is the type's name, such as "teams.created": two or more words, separated by full stops. A
	// word consists of lower-case letters, digits and "_", and begins with a letter. At most 64
	// bytes. Names that begin with "webhook." are reserved. With storageapi.NewHandler, the names in
	// docs/spec.md, section 6, are reserved as well.
	Type EventType

	// Description is a short human-readable text, such as "Team created": 1 to 200 bytes of UTF-8.
	// The dashboard and the OpenAPI document show it.
	Description string

	// Scope is the scope that an API key needs to subscribe a webhook to the type, and to change a
	// subscribed webhook. Use the read scope for the data in the events. It must be a declared scope
	// that is not hidden: see storageapi.Config.Scopes.
	Scope scopes.Scope

	// Example is a sample payload for documentation. Schema is the JSON Schema (2020-12) of the
	// payloads: a JSON object without $ref and $dynamicRef. At least one of the two is required;
	// Schema defaults to a schema derived from Example.
	Example Data
	Schema  json.RawMessage

	// Append validates a payload and appends it to b as a JSON object in UTF-8, or returns an error,
	// which Publish returns if it is a [*apierr.ValidationError]. Default: encoding/json, without
	// escaping "<", ">" and "&".
	Append func(b []byte, data Data) ([]byte, error)
}

// MaxEventTypes is the maximum number of event types. With storageapi.NewHandler these include the
// six in docs/spec.md, section 6.
const MaxEventTypes = 128

// A vocabulary holds the declared event types.
type vocabulary struct {
	scopes   *scopes.Vocabulary
	types    []EventType // in the order of their declaration
	declared map[EventType]*EventDeclaration
}

// newVocabulary checks declarations. The error names the first invalid one.
func newVocabulary(declared []EventDeclaration, known *scopes.Vocabulary) (*vocabulary, error) {
	v := &vocabulary{scopes: known, declared: make(map[EventType]*EventDeclaration, len(declared))}
	if len(declared) > MaxEventTypes {
		return nil, input.Invalid("Events", fmt.Sprintf("must be at most %d, not %d", MaxEventTypes, len(declared)))
	}
	for _, d := range declared {
		refuse := func(field, reason string) error {
			return input.Invalid(fmt.Sprintf("Events[%q].%s", d.Type, field), reason)
		}
		switch {
		case !validEventType(d.Type):
			return nil, refuse("Type", `must be words of lower-case letters, digits and "_" with full stops between, such as "teams.created"`)
		case strings.HasPrefix(string(d.Type), "webhook."):
			return nil, refuse("Type", `must not begin with "webhook.", which is reserved`)
		case v.has(d.Type):
			return nil, refuse("Type", "must be declared once")
		case d.Description == "" || len(d.Description) > 200 || !utf8.ValidString(d.Description):
			return nil, refuse("Description", "must be 1 to 200 bytes of UTF-8 that say what happened")
		case !known.All().Has(d.Scope):
			return nil, refuse("Scope", fmt.Sprintf("must be a declared scope that is not hidden, got %q", d.Scope))
		case d.Example == nil && d.Schema == nil:
			return nil, refuse("Example", "or Schema is required")
		}
		if d.Example != nil {
			if t, err := typeOf(d.Example); err != nil || t != d.Type {
				return nil, refuse("Example", fmt.Sprintf("must be a payload of %q", d.Type))
			}
			if _, err := d.append(nil, d.Example); err != nil {
				return nil, refuse("Example", err.Error())
			}
		}
		if d.Schema != nil && (!json.Valid(d.Schema) || bytes.TrimSpace(d.Schema)[0] != '{') {
			return nil, refuse("Schema", "must be a JSON object")
		}
		if bytes.Contains(d.Schema, []byte(`"$ref"`)) || bytes.Contains(d.Schema, []byte(`"$dynamicRef"`)) { // the schema becomes part of a larger document
			return nil, refuse("Schema", "must not have a $ref or $dynamicRef")
		}
		d.Schema = slices.Clone(d.Schema)
		v.types = append(v.types, d.Type)
		v.declared[d.Type] = &d
	}
	return v, nil
}

func validEventType(t EventType) bool {
	words := strings.Split(string(t), ".")
	for _, word := range words {
		for i := range len(word) {
			c := word[i]
			letter := c >= 'a' && c <= 'z'
			if !letter && (i == 0 || c != '_' && (c < '0' || c > '9')) {
				return false
			}
		}
		if word == "" {
			return false
		}
	}
	return len(words) > 1 && len(t) <= 64
}

func (v *vocabulary) has(t EventType) bool { return v.declared[t] != nil }

// of returns the declaration of a payload's type.
func (v *vocabulary) of(data Data) (*EventDeclaration, error) {
	t, err := typeOf(data)
	if err == nil && !v.has(t) {
		err = input.Invalid("data", fmt.Sprintf("must be of a type declared in Config.Events, got %.64q", t))
	}
	return v.declared[t], err
}

// check returns the types without duplicates, or only AllEvents. Unknown types are allowed if they
// are in before.
func (v *vocabulary) check(types, before []EventType) ([]EventType, error) {
	var folded []EventType
	var unknown []string
	for _, t := range types {
		switch {
		case !v.has(t) && t != AllEvents && !slices.Contains(before, t):
			unknown = append(unknown, fmt.Sprintf("%.32q", t))
		case !slices.Contains(folded, t):
			folded = append(folded, t)
		}
	}
	switch {
	case len(unknown) > 0 || len(folded) == 0:
	case len(folded) > 1 && slices.Contains(folded, AllEvents):
		return nil, input.Invalid("events", `must be "*" alone, or event types without it`)
	default:
		return folded, nil
	}
	reason := "must be one or more of " + listOf(v.types)
	if len(unknown) > 10 {
		unknown = append(unknown[:10], "…")
	}
	if len(unknown) > 0 {
		reason += "; unknown: " + strings.Join(unknown, ", ")
	}
	return nil, input.Invalid("events", reason)
}

// subscribe replaces the types of a webhook. types must have been checked.
func (v *vocabulary) subscribe(w *Webhook, types []EventType) {
	var past []EventType
	for _, t := range slices.Concat(w.PastEvents, w.Events) {
		if !slices.Contains(types, t) && !slices.Contains(past, t) {
			past = append(past, t)
		}
	}
	w.PastEvents, w.Events = past, slices.Clone(types)
	if !w.SubscribesAll() {
		return
	}
	w.EventScopes = slices.Clone(w.EventScopes)
	for _, t := range v.types {
		if scope := v.declared[t].Scope; !slices.Contains(w.EventScopes, scope) {
			w.EventScopes = append(w.EventScopes, scope)
		}
	}
}

// listOf returns types as text for error messages.
func listOf(types []EventType) string {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = string(t)
	}
	return strings.Join(names, ", ")
}

// EventTypes returns the types that webhooks can subscribe to, in the order of their declaration
// in [Config.Events].
func (s *WebhookService) EventTypes() []EventType { return slices.Clone(s.events.types) }

// DeclaredEvent returns the declaration of t in [Config.Events], or false if t is not declared.
func (s *WebhookService) DeclaredEvent(t EventType) (EventDeclaration, bool) {
	known, ok := s.events.declared[t]
	if !ok {
		return EventDeclaration{}, false
	}
	d := *known
	d.Schema = slices.Clone(d.Schema)
	return d, true
}

// Subscribes reports whether the webhook, active or not, is subscribed to t.
func (s *WebhookService) Subscribes(w *Webhook, t EventType) bool {
	var scope scopes.Scope
	if d := s.events.declared[t]; d != nil {
		scope = d.Scope
	}
	return w.Subscribes(t, scope)
}

// ReadScopes returns the scopes that a key needs to read events of these types: the Scope of each
// declaration and, for [AllEvents], the webhook's [Webhook.EventScopes]. It returns all scopes if a
// type or scope is no longer declared, or if there are no eventScopes for AllEvents.
func (s *WebhookService) ReadScopes(types []EventType, eventScopes ...scopes.Scope) scopes.Set {
	var set scopes.Set
	all := s.events.scopes.All()
	for _, t := range types {
		var required []scopes.Scope
		if t == AllEvents {
			required = eventScopes
		} else if d := s.events.declared[t]; d != nil {
			required = []scopes.Scope{d.Scope}
		}
		if len(required) == 0 || slices.ContainsFunc(required, func(scope scopes.Scope) bool { return !all.Has(scope) }) {
			return all
		}
		for _, scope := range required {
			set = set.With(scope)
		}
	}
	return set
}
