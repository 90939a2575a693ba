// Package boltfault makes commits of a bolt store fail, and its clock jump, for the tests
// of this module.
package boltfault

import "time"

// Around has the store call around with each commit from now on, instead of the commit:
// which may fail before it, after it, take its time, or not commit at all. Nil ends
// that. The store is a [*bolt.Store]; package bolt sets Around.
//
// An error that wraps an [fs.PathError] of Op "write", as of a full disk, is one after
// which the store goes on, provided that nothing was committed. After any other the
// store is read-only.
var Around func(store any, around func(commit func() error) error)

// SetClock sets the system's clock as the store sees it, by so much against what it is:
// a bubble of testing/synctest cannot. Package bolt sets it.
var SetClock func(store any, by time.Duration)
