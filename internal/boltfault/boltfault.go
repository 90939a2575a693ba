// Package boltfault lets tests of this module make commits of a bolt store fail, and its clock
// jump.
package boltfault

import "time"

// Around makes a [*bolt.Store] call around in place of each commit. around may fail before or after
// it calls commit, delay it, or not call it at all. A nil around removes the hook. Package bolt sets
// Around.
//
// The store continues after an error that wraps an [fs.PathError] with Op "write", as on a full
// disk, provided that nothing was committed. After any other error the store is read-only.
var Around func(store any, around func(commit func() error) error)

// SystemClock returns a bolt.Option that replaces the store's system clock by now. Tests in a
// testing/synctest bubble need it, because the bubble's clock cannot jump. Package bolt sets it.
var SystemClock func(now func() time.Time) (option any)
