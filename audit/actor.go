package audit

import (
	"context"
	"strings"
	"unicode/utf8"
)

// An Actor is the host, key, person or service that made a change.
type Actor struct {
	Kind ActorKind
	ID   string // for a key: its ID; for a person: the host's name for the person; else empty

	// Name and Hint are the key's name and hint at the time of the change; else empty. They are set
	// only in entries.
	Name, Hint string
}

// String returns the kind, and the ID after a colon if there is one: "key:key_…" or "host".
func (a Actor) String() string {
	if a.ID == "" {
		return string(a.Kind)
	}
	return string(a.Kind) + ":" + a.ID
}

// An ActorKind is a kind of [Actor].
type ActorKind string

// The kinds of actors.
const (
	ActorHost    ActorKind = "host"    // the host's own code
	ActorKey     ActorKind = "key"     // a request with an API key
	ActorPerson  ActorKind = "person"  // a person using the dashboard
	ActorService ActorKind = "service" // the service itself, for example when it disables a webhook
)

type actorKey struct{}

// WithActor returns a context whose changes are attributed to the actor. It replaces invalid UTF-8
// and control characters in the actor's ID, and cuts an ID longer than 128 bytes. Call it only with
// a verified identity, never with the content of a form or a header.
func WithActor(ctx context.Context, actor Actor) context.Context {
	actor.ID = clean(actor.ID)
	return context.WithValue(ctx, actorKey{}, actor)
}

// ActorFrom returns the actor of a context; the default is the host.
func ActorFrom(ctx context.Context) Actor {
	if actor, ok := ctx.Value(actorKey{}).(Actor); ok {
		return actor
	}
	return Actor{Kind: ActorHost}
}

const maxActorID = 128 // bytes

func clean(id string) string {
	id = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return utf8.RuneError
		}
		return r
	}, strings.ToValidUTF8(id, string(utf8.RuneError)))
	for len(id) > maxActorID {
		_, size := utf8.DecodeLastRuneInString(id)
		id = id[:len(id)-size]
	}
	return id
}

type requestKey struct{}

type request struct{ id, clientAddress string }

// WithRequest returns a context whose changes are attributed to the request with this ID and client
// address. A value that is not 1 to 64 visible ASCII characters is dropped.
func WithRequest(ctx context.Context, id, clientAddress string) context.Context {
	return context.WithValue(ctx, requestKey{}, request{visible(id), visible(clientAddress)})
}

const maxVisible = 64

// visible returns text if it is safe to log and display, or else "".
func visible(text string) string {
	if len(text) > maxVisible || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return ""
	}
	return text
}

// Of returns an entry about an action on a target of the account, with the actor and the request of
// ctx. It has no ID and no time yet, and is not pending.
func Of(ctx context.Context, account string, action Action, target Target) Entry {
	asked, _ := ctx.Value(requestKey{}).(request)
	return Entry{
		Account: account, Action: action, Target: target, Actor: ActorFrom(ctx),
		RequestID: asked.id, ClientAddress: asked.clientAddress,
	}
}
