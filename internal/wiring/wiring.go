// Package wiring has the settings that package storageapi passes to its services. Hosts cannot set
// them directly: storageapi.Config is the only place to declare scopes and receive audit entries.
package wiring

import "github.com/storageapi/storageapi/scopes"

// Settings are the same for all services of a handler. The zero Settings are for a service that
// is used alone.
type Settings struct {
	Scopes *scopes.Vocabulary // nil: only the scopes in section 5 of docs/spec.md
	Notify bool               // new audit entries are pending until the host has accepted them
}

// Of returns the only Settings, or zero ones.
func Of(settings []Settings) Settings {
	if len(settings) == 0 {
		return Settings{}
	}
	return settings[0]
}
