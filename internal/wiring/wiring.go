// Package wiring is what package storageapi tells its services and hosts must not set: a host
// declares scopes and takes audit entries in one place, storageapi.Config.
package wiring

import "github.com/storageapi/storageapi/scopes"

// Settings are the same for all services of a handler. The zero Settings are for a service that
// is used alone.
type Settings struct {
	Scopes *scopes.Vocabulary // nil: those of docs/spec.md, section 5
	Notify bool               // new audit entries are pending until the host has taken them
}

// Of returns the only Settings, or zero ones.
func Of(settings []Settings) Settings {
	if len(settings) == 0 {
		return Settings{}
	}
	return settings[0]
}
