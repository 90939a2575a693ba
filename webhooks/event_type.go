package webhooks

import (
	"slices"

	"github.com/storageapi/storageapi/scopes"
)

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

// EventTypes returns all types to subscribe to, in the order of docs/spec.md, section 6.
func EventTypes() []EventType { return slices.Clone(eventTypes[:]) }

// ReadScope returns the scope that lets a key read what events of this type
// tell: files:read for files.expiring, account:read for all others.
func (t EventType) ReadScope() scopes.Scope {
	if t == TypeFilesExpiring {
		return scopes.FilesRead
	}
	return scopes.AccountRead
}

// ReadScopes returns the read scopes behind the events.
func ReadScopes(events []EventType) scopes.Set {
	var set scopes.Set
	for _, t := range events {
		set = set.With(t.ReadScope())
	}
	return set
}
