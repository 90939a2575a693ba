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

// SetClock shifts the system's clock as seen by the store, which a testing/synctest bubble cannot
// do. Package bolt sets it.
var SetClock func(store any, by time.Duration)
