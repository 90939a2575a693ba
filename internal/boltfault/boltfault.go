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

// SystemClock returns a bolt.Option with which the store reads the system's clock by now, because
// the clock of a testing/synctest bubble cannot jump. Package bolt sets it.
var SystemClock func(now func() time.Time) (option any)
