// Package boltoption has the options with which package bolt opens a file. Hosts set them with the
// functions of package bolt; a simulation also replaces the operating system's functions.
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
	Sealer     signing.Sealer // seals the data key; nil means none
	Observer   observe.Observer
	Logger     *slog.Logger // for failures of Observer
	System     System
}

// A System holds the functions through which a store uses the operating system.
type System struct {
	Now      func() time.Time                         // the clock; nil means time.Now
	Commit   func(*bbolt.Tx) error                    // makes a transaction durable
	FreeRoom func(*os.File) (bytes int64, known bool) // free space on the file's disk
}
