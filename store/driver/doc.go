// Package driver defines the contract between the services and a store: the methods that packages
// apikeys, webhooks and alerts call, and the records that these packages store. It is for authors
// of stores and of wrappers of stores, as database/sql/driver is for authors of databases:
//
//	func (s *Store) KeyByID(ctx context.Context, account, id string) (driver.Key, error) {
//		key, ok := s.keys[account][id]
//		if !ok {
//			return driver.Key{}, apierr.ErrNotFound
//		}
//		return key, nil
//	}
//
// Hosts do not call these methods: they open a store and pass it to the services. The records that
// hosts also see, such as [Key] and [Webhook], have the same names in package apikeys and package
// webhooks.
//
// The contract consists of the method comments of [KeyStore], [WebhookStore] and [AlertStore], and
// of the rules for every method in [package store]: atomicity, errors, contexts, clocks, IDs and
// copies. Unqualified errors such as ErrNotFound are in package apierr. Package storetest tests a
// store against the contract.
//
// [package store]: https://pkg.go.dev/github.com/storageapi/storageapi/store
package driver
