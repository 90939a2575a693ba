// Package boltoption has the options with which package bolt opens a file. Hosts set them with that
// package's functions; a simulation also replaces the system.
package boltoption

import (
	"log/slog"
	"os"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/observe"
	"github.com/storageapi/storageapi/signing"
)

// Options are the options of one file.
type Options struct {
	Wait       time.Duration  // how long to wait while the file is open elsewhere
	Left       bool           // open the file even if it was left for another store
	CachedKeys int            // number of keys in memory
	Sealer     signing.Sealer // seals the data key; nil: none
	Observer   observe.Observer
	Logger     *slog.Logger // for failures of Observer
	System     System
}

// A System has the functions by which a store reaches the operating system.
type System struct {
	Now      func() time.Time                         // the clock; nil: time.Now
	Commit   func(*bbolt.Tx) error                    // makes a transaction durable
	FreeRoom func(*os.File) (bytes int64, known bool) // free space on the file's disk
}
