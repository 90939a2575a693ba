package driver

import "github.com/storageapi/storageapi/scopes"

// An Option is a setting that must be the same for all services that use a store.
// storageapi.NewHandler derives the options from its own Config.
type Option func(*Options)

// Options are the values of a service's options.
type Options struct {
	Scopes *scopes.Vocabulary // see [WithScopes]; nil means only the scopes in section 5 of docs/spec.md
	Notify bool               // see [WithNotify]
}

// WithScopes adds the host's own scopes to the scopes in section 5 of docs/spec.md.
func WithScopes(vocabulary *scopes.Vocabulary) Option {
	return func(o *Options) { o.Scopes = vocabulary }
}

// WithNotify keeps new audit entries pending until audit.Config.Notify has accepted them.
func WithNotify() Option { return func(o *Options) { o.Notify = true } }

// Apply returns the values of the options.
func Apply(options []Option) (o Options) {
	for _, option := range options {
		option(&o)
	}
	return o
}
