package driver

import "github.com/storageapi/storageapi/store/capability"

// A WebhookStore keeps webhooks, events and their deliveries, in three parts.
type WebhookStore interface {
	Webhooks   // the webhooks of accounts
	Deliveries // publishing events and delivering them
	History    // outcomes of events, recoveries, removal of old records

	// Capabilities returns the store's optional features.
	Capabilities() capability.Set
}
