package notices

import (
	"context"
	"strings"
	"unicode/utf8"
)

// An Actor is who did something.
type Actor struct {
	Kind ActorKind
	ID   string // of a key: its id; of a person: what the host calls them; else empty

	// Name and Hint are those of a key when it acted; else empty. Only notices have them.
	Name, Hint string
}

// String returns the kind, and the id after a colon if there is one: "key:key_…", "host".
func (a Actor) String() string {
	if a.ID == "" {
		return string(a.Kind)
	}
	return string(a.Kind) + ":" + a.ID
}

// ParseActor returns the actor of what [Actor.String] returned: of a store that keeps it as
// text.
func ParseActor(text string) Actor {
	kind, id, _ := strings.Cut(text, ":")
	return Actor{Kind: ActorKind(kind), ID: id}
}

// An ActorKind is a kind of [Actor].
type ActorKind string

// The kinds of actors.
const (
	ActorHost    ActorKind = "host"    // the host's own code
	ActorKey     ActorKind = "key"     // a request with an API key
	ActorPerson  ActorKind = "person"  // a person, by the dashboard
	ActorService ActorKind = "service" // the service by itself, which turned a webhook off, say
)

type actorKey struct{}

// WithActor returns a context whose changes are the actor's. Invalid UTF-8 and control
// characters of its ID are replaced, and an ID longer than 128 bytes is cut. It is for
// code that knows who asks: never pass on what a form or a header claims.
func WithActor(ctx context.Context, actor Actor) context.Context {
	actor.ID = clean(actor.ID)
	return context.WithValue(ctx, actorKey{}, actor)
}

// ActorFrom returns the actor of a context; by default the host.
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

// WithRequest returns a context whose changes are asked for by a request of that id, from
// that address. What is not 1 to 64 visible ASCII characters is left out.
func WithRequest(ctx context.Context, id, clientAddress string) context.Context {
	return context.WithValue(ctx, requestKey{}, request{visible(id), visible(clientAddress)})
}

const maxVisible = 64

// visible returns text that may be logged and shown as it is, or nothing.
func visible(text string) string {
	if len(text) > maxVisible || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return ""
	}
	return text
}

// Of returns a notice of an action at a target of the account, with the actor and the
// request of ctx. It has no ID and no time yet, and is not pending.
func Of(ctx context.Context, account string, action Action, target Target) Notice {
	asked, _ := ctx.Value(requestKey{}).(request)
	return Notice{
		Account: account, Action: action, Target: target, Actor: ActorFrom(ctx),
		RequestID: asked.id, ClientAddress: asked.clientAddress,
	}
}
